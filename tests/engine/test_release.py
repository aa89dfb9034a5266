"""Jobs that are held ready and will not start are released, uncounted, for others to run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from holdfast import Busy, Holdfast
from holdfast._engine.jobs import dispatch
from holdfast._engine.jobs.slots import LONGEST_HELD, Slots
from tests.kit.clock import Clock
from tests.kit.pace import ALERT, MINUTE, PATIENT, ms
from tests.kit.waiting import serving, until

if TYPE_CHECKING:
    from holdfast import Job
    from tests.kit.ledger import Ledger

JOBS = 20


@pytest.fixture
def pace(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """A pace at which everything is held ready; without it, nothing more is."""
    pace = {"default": 1_000.0}

    def count(slots: Slots) -> None:
        for stock in slots._stocks.values():
            stock.pace = dict(pace)

    monkeypatch.setattr(Slots, "_count_pace", count)
    return pace


def all_uncounted(ledger: Ledger, *, running: int) -> bool:
    found = ledger.rows("SELECT status::text, attempt::int, count(*) FROM holdfast.job GROUP BY 1, 2")
    return sorted(found) == sorted([("pending", 0, JOBS - running), *([("processing", 1, running)] if running else [])])


async def test_a_queue_that_rests_leaves_what_was_held_to_an_idle_worker(
    app: Holdfast, database: str, ledger: Ledger, pace: dict[str, float]
) -> None:
    gate = asyncio.Event()
    idle = Holdfast(database)
    ran: list[int] = []

    @app.job("call")
    async def saturated(job: Job[None]) -> None:
        await gate.wait()
        raise Busy(ms(600_000))

    @idle.job("call")
    async def call(job: Job[None]) -> None:
        ran.append(job.id)

    jobs = ledger.enqueue(*[saturated.new() for _ in range(JOBS)])
    # Both look by themselves only once a minute: whoever runs something was woken for it.
    async with app.worker(id="busy", queues={"default": 1}, **MINUTE) as busy:
        await until(lambda: len(busy.pipelines[0].held) == JOBS)
        async with idle.worker(id="idle", **MINUTE):
            await until(lambda: ledger.value("SELECT count(*) FROM holdfast.sleeper WHERE until > now()") > 0)
            gate.set()
            await until(lambda: len(ran) == JOBS - 1, 20)
    assert set(ran) < set(jobs)
    assert ledger.value("SELECT max(attempt) FROM holdfast.job_history") == 1


async def test_a_queue_that_is_paused_starts_nothing_of_what_was_held(
    app: Holdfast, ledger: Ledger, pace: dict[str, float]
) -> None:
    gate = asyncio.Event()
    ran: list[int] = []

    @app.job("act")
    async def act(job: Job[None]) -> None:
        ran.append(job.id)
        await gate.wait()

    ledger.enqueue(*[act.new() for _ in range(JOBS)])
    async with app.worker(queues={"default": 1}, **ALERT) as worker:
        await until(lambda: len(worker.pipelines[0].held) == JOBS)
        ledger.do("INSERT INTO holdfast.queue (name, paused) VALUES ('default', true)")
        await until(lambda: all_uncounted(ledger, running=1))
        gate.set()
        await until(lambda: ledger.completed() == 1)
        assert len(ran) == 1
        ledger.do("UPDATE holdfast.queue SET paused = false")
        await until(lambda: ledger.completed() == JOBS)


async def test_a_claim_under_way_while_its_queue_is_paused_is_given_back(
    app: Holdfast, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    async with app.worker(queues={"default": 5}, **PATIENT) as worker:

        def pause(jobs: object, seconds: float) -> None:
            serving(worker).session.control.paused = frozenset({"default"})

        monkeypatch.setattr(worker._transitions, "looked", pause)
        ledger.enqueue(*[act.new() for _ in range(3)])
        await until(lambda: worker.counts.get("job_released", 0) >= 3)
        assert ledger.completed() == 0


@pytest.mark.parametrize("control", ["concurrency = 0", "concurrency = 2", "rate = 0.01"])
async def test_a_queue_that_is_held_tighter_keeps_no_more_than_it_can_start(
    app: Holdfast, ledger: Ledger, pace: dict[str, float], control: str
) -> None:
    gate = asyncio.Event()

    @app.job("act")
    async def act(job: Job[None]) -> None:
        await gate.wait()

    ledger.do("INSERT INTO holdfast.queue (name) VALUES ('default')")
    ledger.enqueue(*[act.new() for _ in range(JOBS)])
    async with app.worker(queues={"default": 3}, **ALERT) as worker:
        await until(lambda: len(worker.pipelines[0].held) == JOBS)
        pace.clear()
        ledger.do(f"UPDATE holdfast.queue SET {control}")
        await until(lambda: all_uncounted(ledger, running=3))
        gate.set()


async def test_what_waits_long_for_a_slot_is_given_back(
    app: Holdfast, ledger: Ledger, pace: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The jobs were quick, and have become slow."""
    monkeypatch.setattr(dispatch, "LOOK_SECONDS", 0.1)
    gate = asyncio.Event()

    @app.job("act")
    async def act(job: Job[None]) -> None:
        await gate.wait()

    ledger.enqueue(*[act.new() for _ in range(JOBS)])
    async with app.worker(queues={"default": 1}, **PATIENT) as worker:
        await until(lambda: worker.pipelines[0].session.counts["claimed"] == JOBS)
        pace.clear()
        await until(lambda: all_uncounted(ledger, running=1))
        gate.set()
        await until(lambda: ledger.completed() == JOBS)


def test_which_queues_start_nothing_soon() -> None:
    clock = Clock(100.0)
    slots = Slots(10, {"a": 5, "b": 5}, batch=50, delays={"b": 60}, clock=clock)
    assert not slots.shut("a")
    slots.rest("a", LONGEST_HELD / 2)
    assert not slots.shut("a"), "a moment is waited for"
    slots.rest("a", 2 * LONGEST_HELD)
    assert slots.shut("a")
    clock.now += 1.5 * LONGEST_HELD
    assert not slots.shut("a")
    for _ in range(5):
        assert not slots.shut("b")
        slots.holds("b", 1)
        slots.starts("b")
        slots.ends("b")
    assert slots.shut("b"), "all of its slots rest"
    assert slots.control({"b": 0}) == {"b"}
    assert slots.control({"b": 0, "a": 4}, {"a": 0.1}) == {"a"}
    assert slots.shut("b")
    clock.now += 100
    assert not slots.shut("a"), "there is a permit"
    slots.holds("a", 1)
    slots.starts("a")
    assert slots.shut("a"), "the next comes in ten seconds"
