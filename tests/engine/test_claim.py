"""Claiming: what is due, what there is room for, and sleeping between."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from holdfast._engine.jobs import due
from holdfast._store import claim as store
from tests.kit.pace import PATIENT, QUICK
from tests.kit.waiting import after, serving, until

if TYPE_CHECKING:
    from holdfast import Holdfast, Job
    from tests.kit.ledger import Ledger


async def test_only_queues_with_free_slots_are_claimed(
    app: Holdfast, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, int]] = []
    real = store.claim_jobs

    def watching(worker: int, slots: dict[str, int], *args: Any, **options: Any) -> Any:
        asked.append(dict(slots))
        return real(worker, slots, *args, **options)

    monkeypatch.setattr(due, "claim_jobs", watching)
    gate = asyncio.Event()

    async def act(job: Job[None], wait: bool) -> None:
        if wait:
            await gate.wait()

    full = app.job("full", queue="full")(act)
    free = app.job("free", queue="free")(act)
    async with app.worker(queues={"full": 2, "free": 2}, **QUICK):
        waiting = ledger.enqueue(*[full.new(wait=True) for _ in range(6)])
        await until(lambda: ledger.statuses() == {"processing": 2, "pending": 4})
        asked.clear()
        done = ledger.enqueue(*[free.new(wait=False) for _ in range(20)])
        await until(lambda: all(ledger.status(job) == "completed" for job in done))
        await until(lambda: asked)
        assert {queue for slots in asked for queue in slots} == {"free"}
        assert ledger.statuses()["pending"] == 4, "nothing was taken that could not start"
        gate.set()
        await until(lambda: all(ledger.status(job) == "completed" for job in waiting))


async def test_an_idle_worker_asks_seldom(app: Holdfast, ledger: Ledger) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    async with app.worker(**PATIENT) as worker:
        ledger.enqueue(act.new())
        await until(lambda: ledger.completed() == 1)
        claimer = serving(worker).claimer
        await until(lambda: ledger.rows("SELECT FROM holdfast.sleeper WHERE until > now()"))
        before = claimer.claims
        await after(1.5)
        assert claimer.claims - before <= 6


async def test_a_full_worker_asks_nothing(app: Holdfast, ledger: Ledger) -> None:
    gate = asyncio.Event()

    @app.job("act")
    async def act(job: Job[None]) -> None:
        await gate.wait()

    ledger.enqueue(*[act.new() for _ in range(50)])
    async with app.worker(queues={"default": 3}, **PATIENT) as worker:
        await until(lambda: ledger.statuses().get("processing") == 3)
        claimer = serving(worker).claimer
        before = claimer.claims
        await after(0.5)
        assert claimer.claims <= before + 1
        gate.set()
        await until(lambda: ledger.completed() == 50)


async def test_order_keys_run_one_at_a_time_and_in_order(app: Holdfast, ledger: Ledger) -> None:
    running: set[str] = set()
    order: dict[str, list[int]] = {}

    @app.job("act")
    async def act(job: Job[None], key: str) -> None:
        assert key not in running
        running.add(key)
        order.setdefault(key, []).append(job.id)
        await asyncio.sleep(0.001)
        running.discard(key)

    ledger.enqueue(*[act.new(key).options(order_key=key) for _ in range(15) for key in "abc"])
    async with app.worker(queues={"default": 8}, **PATIENT):
        await until(lambda: ledger.statuses() == {"completed": 45})
    assert all(ids == sorted(ids) and len(ids) == 15 for ids in order.values())


async def test_shards_split_the_jobs(app: Holdfast, ledger: Ledger) -> None:
    ran: dict[str, set[int]] = {"0": set(), "1": set()}

    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    async def note(job: Job[Any], worker: str, proceed: Any) -> object:
        ran[worker].add(job.id)
        return await proceed()

    app.middlewares.append(note)
    jobs = ledger.enqueue(*[act.new() for _ in range(128)])
    async with app.worker(id="0", shard_index=0, shard_count=2, **QUICK):
        await until(lambda: ledger.completed() == 64)
        await after(0.2)
        assert ledger.statuses() == {"completed": 64, "pending": 64}
        async with app.worker(id="1", shard_index=1, shard_count=2, **QUICK):
            await until(lambda: ledger.completed() == 128)
    assert ran["0"] | ran["1"] == set(jobs)
    assert not ran["0"] & ran["1"]


@pytest.mark.parametrize(("queues", "batch"), [(60, 50), (3, 1)])
async def test_every_queue_is_served_though_a_claim_takes_fewer_jobs(
    app: Holdfast, ledger: Ledger, queues: int, batch: int
) -> None:
    async def act(job: Job[None]) -> None: ...

    kinds = [app.job(f"k{n}", queue=f"q{n:02}")(act) for n in range(queues)]
    async with app.worker(batch_size=batch, **QUICK):
        for some in (kinds[-1:], kinds):
            ledger.enqueue(*[kind.new() for kind in some])
            await until(lambda: set(ledger.statuses()) == {"completed"})


async def test_a_queue_with_a_backlog_does_not_keep_the_others_from_their_turn(app: Holdfast, ledger: Ledger) -> None:
    """A backlog in the first and one in the last: neither is always served before the other."""
    ran: list[str] = []

    async def act(job: Job[None]) -> None:
        ran.append(job.kind)

    kinds = [app.job(f"k{n}", queue=f"q{n}")(act) for n in range(3)]
    ledger.enqueue(*[kind.new() for kind in kinds for _ in range(30)])
    async with app.worker(batch_size=1, **QUICK):
        await until(lambda: len(ran) == 90)
    assert set(ran[:6]) == {"k0", "k1", "k2"}
