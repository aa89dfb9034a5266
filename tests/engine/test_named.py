"""A sleeping worker claims the jobs that notifications name, and sleeps on."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from holdfast._engine.jobs import claim, named
from holdfast._store.statement import statements
from tests.kit.pace import MINUTE
from tests.kit.waiting import serving, until

if TYPE_CHECKING:
    import psycopg
    import pytest

    from holdfast import Holdfast, Job
    from holdfast._engine.worker import Worker
    from holdfast._store.statement import Statement
    from tests.kit.ledger import Ledger

ASLEEP = "SELECT count(DISTINCT worker_id) FROM holdfast.sleeper WHERE until > now()"


async def asleep(worker: Worker) -> None:
    claimer = serving(worker).claimer
    await until(lambda: claimer.asleep and claimer._recorded.seen is not None and not claimer._link.busy)


def asked(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the statements that the claimer sends from now on."""
    names, found = {sql: name for name, sql in statements().items()}, list[str]()
    link = serving(worker).claimer._link
    ask = link._ask

    async def note(conn: psycopg.AsyncConnection[Any], statement: Statement[Any]) -> Any:
        if (name := names.get(statement.sql, "")) != "next_suspect":
            found.append(name)
        return await ask(conn, statement)

    monkeypatch.setattr(link, "_ask", note)
    return found


async def test_the_pickup_of_a_single_job_is_one_plain_statement(
    app: Holdfast, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    async with app.worker(**MINUTE) as worker:
        await asleep(worker)
        statements = asked(worker, monkeypatch)
        for number in range(5):
            ledger.do("SELECT holdfast.enqueue('act')")
            await until(lambda: ledger.completed() == number + 1)  # noqa: B023 - awaited in the same turn
    assert statements[:5] == ["claim_named"] * 5


async def test_a_job_named_to_a_killed_worker_is_taken_by_another(app: Holdfast, ledger: Ledger) -> None:
    began: list[float] = []

    @app.job("act")
    async def act(job: Job[None]) -> None:
        began.append(time.monotonic())

    async with app.worker(**MINUTE) as worker:
        await asleep(worker)
        # The newest record is that of a worker that is gone.
        ledger.do("INSERT INTO holdfast.sleeper VALUES (now() + interval '70 seconds', 4711, 'default', '{act}')")
        sent = time.monotonic()
        ledger.do("SELECT holdfast.enqueue('act')")
        await until(lambda: bool(began), 5)
    assert began[0] - sent >= named.LATE_SECONDS


async def test_a_name_that_names_nothing_costs_a_look(
    app: Holdfast, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    async with app.worker(**MINUTE) as worker:
        await asleep(worker)
        statements = asked(worker, monkeypatch)
        channel = f"holdfast_{worker.pipelines[0].worker}"
        for text in ("late 17", "job 17", f"job {'9' * 30}", "job 1 default"):
            ledger.do("SELECT pg_notify(%s, %s)", channel, text)
        await until(lambda: statements.count("claim_named") == 2)
        assert ledger.value(ASLEEP) == 1
        assert set(statements) == {"claim_named", "claim_jobs"}


async def test_many_names_end_the_sleep(app: Holdfast, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named, "MANY_SECONDS", 60.0)

    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    async with app.worker(**MINUTE) as worker:
        await asleep(worker)
        statements = asked(worker, monkeypatch)
        for number in range(named.MANY_JOBS):
            ledger.do("SELECT holdfast.enqueue('act')")
            await until(lambda: ledger.completed() == number + 1)  # noqa: B023 - awaited in the same turn
        await until(lambda: "end_sleep" in statements)
    assert statements.count("claim_named") <= named.MANY_JOBS


async def test_while_many_come_a_claim_that_left_nothing_is_not_repeated_at_once(
    app: Holdfast, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(named, "MANY_SECONDS", 60.0)
    monkeypatch.setattr(claim, "LINGER_FOR", 60.0)
    monkeypatch.setattr(claim, "LINGER_FIRST", 60.0)

    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    async with app.worker(**MINUTE) as worker:
        await asleep(worker)
        claimer = serving(worker).claimer
        claimer._named.count(named.MANY_JOBS)
        statements = asked(worker, monkeypatch)
        for number in range(6):
            if number == 1:
                await until(lambda: not claimer.asleep and not claimer._link.busy)
                statements.clear()
            ledger.do("SELECT holdfast.enqueue('act')")
            claimer.wake()
            await until(lambda: ledger.completed() == number + 1)  # noqa: B023 - awaited in the same turn
        assert statements == ["claim_jobs"] * 5


async def test_a_worker_whose_queue_is_full_is_named_nothing(app: Holdfast, ledger: Ledger) -> None:
    gate = asyncio.Event()

    @app.job("act")
    async def act(job: Job[None]) -> None:
        await gate.wait()

    async with app.worker(queues={"default": 1}, **MINUTE) as worker:
        await asleep(worker)
        ledger.do("SELECT holdfast.enqueue('act')")
        await until(lambda: ledger.value(ASLEEP) == 0)
        assert ledger.statuses() == {"processing": 1}
        gate.set()
        await until(lambda: ledger.completed() == 1)
