"""Anybody who may log in can send notifications. They make a worker look, and nothing more."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast import AbortReason, Holdfast, Job
from holdfast._engine.jobs import heartbeat
from holdfast._store import lease
from holdfast._store.sleeper import chain_channel
from tests.kit.pace import MINUTE, ms
from tests.kit.waiting import serving, until

if TYPE_CHECKING:
    from collections.abc import Iterable

    import psycopg
    import pytest

    from holdfast._engine.worker import Worker
    from holdfast._store.lease import Held
    from tests.kit.ledger import Ledger

# Heartbeats so rare that nothing is explained by them.
RARE: dict[str, Any] = {"lease": ms(600_000), "heartbeat": ms(100_000), "jitter": ms(0)}
CLAIMS = """
    SELECT pg_notify('holdfast_' || worker, format('lost %%s %%s %%s', job, token, reason))
    FROM generate_series(1, 3) AS worker, generate_series(1, 5) AS job, unnest(%s::bigint[]) AS token,
        unnest(%s::text[]) AS reason"""


def tokens(ledger: Ledger) -> list[int]:
    """A stranger cannot read them. One who guesses them is worse."""
    return [token for (token,) in ledger.rows("SELECT lock_token FROM holdfast.job WHERE lock_token IS NOT NULL")]


async def listening(worker: Worker) -> None:
    await until(serving(worker).session.listening.is_set)


async def test_a_running_job_is_not_stopped_by_a_forged_loss(
    app: Holdfast, ledger: Ledger, stranger: psycopg.Connection[Any]
) -> None:
    started: list[int] = []
    stopped: dict[int, AbortReason | None] = {}
    go = asyncio.Event()

    @app.job("charge")
    async def charge(job: Job[None]) -> str:
        started.append(job.id)
        try:
            await go.wait()
        except asyncio.CancelledError:
            stopped[job.id] = job.signal.reason
            raise
        return "charged"

    async with app.worker(**RARE) as worker:
        await listening(worker)
        kept, called_off = ledger.enqueue(charge.new(), charge.new())
        await until(lambda: len(started) == 2)
        stranger.execute(CLAIMS, [tokens(ledger), [*AbortReason]])
        # Sent later on the same channel, so it is read after the forged ones: and this one is true.
        assert ledger.cancel(called_off) == "requested"
        await until(lambda: ledger.status(called_off) == "cancelled")
        go.set()
        await until(lambda: ledger.status(kept) == "completed")
        assert "job_lost" not in worker.counts
    assert stopped == {called_off: AbortReason.cancelled}
    assert started == [kept, called_off]
    assert ledger.attempts(kept) == []


async def test_a_flood_of_forged_losses_costs_a_few_looks(
    app: Holdfast, ledger: Ledger, stranger: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []

    def check_claims(worker: int, held: Iterable[Held]) -> Any:
        looks.append(time.monotonic())
        return lease.check_claims(worker, held)

    monkeypatch.setattr(heartbeat, "check_claims", check_claims)
    started, go = asyncio.Event(), asyncio.Event()

    @app.job("charge")
    async def charge(job: Job[None]) -> None:
        started.set()
        await go.wait()

    async with app.worker(**RARE) as worker:
        await listening(worker)
        job = ledger.enqueue_one(charge.new())
        await started.wait()
        begun = time.monotonic()
        for _ in range(100):
            await asyncio.to_thread(stranger.execute, CLAIMS, [tokens(ledger), [*AbortReason]])
        await until(lambda: looks)
        go.set()
        await until(lambda: ledger.status(job) == "completed")
        took = time.monotonic() - begun
    assert 1 <= len(looks) <= 2 + took / heartbeat.CHECK_PAUSE


async def test_waiting_for_a_result_is_not_ended_by_a_forged_end(
    app: Holdfast, ledger: Ledger, stranger: psycopg.Connection[Any]
) -> None:
    @app.job("charge")
    async def charge(job: Job[None]) -> str:
        return "charged"

    job = ledger.enqueue_one(charge.new())
    waiting = asyncio.create_task(app.wait(job, timeout=timedelta(minutes=1)))
    await until(lambda: ledger.value("SELECT count(*) FROM holdfast.watcher WHERE chain_id = %s", job))
    listener = ledger.value("SELECT listener FROM holdfast.watcher WHERE chain_id = %s LIMIT 1", job)
    for words in (f"ended {job}", "ended 999999", "ended x", "completed", f"ended {job} 'a lie'"):
        stranger.execute("SELECT pg_notify(%s, %s)", [chain_channel(listener), words])
    async with app.worker(**RARE):
        assert await waiting == "charged"


async def test_forged_wake_ups_make_nothing_run(
    app: Holdfast, ledger: Ledger, stranger: psycopg.Connection[Any]
) -> None:
    ran: list[int] = []

    @app.job("charge")
    async def charge(job: Job[None]) -> None:
        ran.append(job.id)

    later = ledger.enqueue_one(charge.new().options(delay=timedelta(hours=1)))
    async with app.worker(**RARE, **{key: value for key, value in MINUTE.items() if key not in RARE}) as worker:
        await listening(worker)
        for words in ("default", "", "holdfast.event", "no such queue", "x" * 7_000, f"run {later}"):
            stranger.execute("SELECT pg_notify('holdfast', %s)", [words])
            stranger.execute("SELECT pg_notify('holdfast_' || n, %s) FROM generate_series(1, 3) AS n", [words])
        job = ledger.enqueue_one(charge.new())
        await until(lambda: ledger.status(job) == "completed")
        assert ran == [job]
        assert ledger.status(later) == "pending"
