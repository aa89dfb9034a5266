"""The lease that the control table gives a queue holds from the claim on, and the heartbeat keeps up with it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from holdfast import Holdfast, Job, Lease
from holdfast._engine.jobs import due
from holdfast._store.claim import claim_jobs
from tests.kit.pace import AT_ONCE, PATIENT, ms
from tests.kit.waiting import after, serving, until

if TYPE_CHECKING:
    import pytest

    from tests.kit.ledger import Ledger

LEFT = "SELECT extract(epoch FROM locked_until - now())::float FROM holdfast.job WHERE id = %s"


async def test_it_holds_at_the_claim(app: Holdfast, ledger: Ledger) -> None:
    """Before any heartbeat, and for no other queue."""

    @app.job("act")
    async def act(job: Job[None]) -> None:
        await asyncio.sleep(30)

    @app.job("short", lease=Lease(seconds=20))
    async def short(job: Job[None]) -> None:
        await asyncio.sleep(30)

    ledger.do("INSERT INTO holdfast.queue (name, lease_ms) VALUES ('long', 600000), ('unserved', 1000)")
    jobs = ledger.enqueue(*[kind.new().options(queue=queue) for kind in (act, short) for queue in ("default", "long")])
    async with app.worker(queues={"default": 5, "long": 5}, **PATIENT | {"shutdown_timeout": ms(0)}) as worker:
        await until(lambda: ledger.statuses() == {"processing": 4})
        beat = serving(worker).heartbeat
        left = [ledger.value(LEFT, job) for job in jobs]
        assert beat.beats == 0
        assert beat.interval == 5, "a quarter of the shortest lease that is in use here"
        for seconds, lease in zip(left, (60, 600, 20, 600), strict=True):
            assert lease - 5 < seconds <= lease


async def test_a_claim_is_one_call_unless_a_row_says_so(
    app: Holdfast, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[set[str], set[float]]] = []

    def spy(worker: int, slots: Any, leases: Any, **options: Any) -> Any:
        calls.append((set(slots), {lease.seconds for lease in leases.values()}))
        return claim_jobs(worker, slots, leases, **options)

    monkeypatch.setattr(due, "claim_jobs", spy)

    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    async def work() -> list[tuple[set[str], set[float]]]:
        done = ledger.completed()
        calls.clear()
        async with app.worker(queues={"a": 2, "b": 2, "c": 2}, listen=False, **PATIENT):
            ledger.enqueue(*[act.new().options(queue=queue) for queue in "abc"])
            await until(lambda: ledger.completed() == done + 3)
        return calls

    assert {frozenset(slots) for slots, _ in await work()} == {frozenset("abc")}
    ledger.do("INSERT INTO holdfast.queue (name, lease_ms) VALUES ('a', 20000), ('c', 20000)")
    made = await work()
    assert made[0] == ({"a", "c"}, {20.0})
    assert made[1] == ({"b"}, {60.0})


async def test_what_runs_survives_a_lease_that_becomes_short_and_long_again(app: Holdfast, ledger: Ledger) -> None:
    """By the settings a heartbeat comes every seven seconds: too late for a lease of six."""
    go = asyncio.Event()

    @app.job("act", retry=AT_ONCE, max_runtime=ms(60_000))
    async def act(job: Job[None]) -> int:
        await go.wait()
        return job.attempt

    slow: dict[str, Any] = {"heartbeat": ms(7_000), "lease": ms(30_000), "reap_interval": ms(100), "jitter": ms(0)}
    async with app.worker(**slow) as worker:
        beat = serving(worker).heartbeat
        job = ledger.enqueue_one(act.new())
        await until(lambda: ledger.status(job) == "processing")
        ledger.do("INSERT INTO holdfast.queue (name, lease_ms) VALUES ('default', 6000)")
        beat._woken.set()
        await until(lambda: beat.interval == 1.5)
        later = ledger.enqueue_one(act.new())
        await after(7.5)
        assert ledger.value(LEFT, job) <= 6
        ledger.do("DELETE FROM holdfast.queue")
        await until(lambda: beat.interval == 7)
        assert min(ledger.value(LEFT, one) for one in (job, later)) > 20, "renewed before the pace became slow again"
        go.set()
        await until(lambda: ledger.completed() == 2)
        assert "job_lost" not in worker.counts
    assert [ledger.job(one).result for one in (job, later)] == [1, 1]
