"""Rates, and rests between two jobs."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast._app.app import application_of
from holdfast._engine.jobs.pacing import KEPT_SECONDS, Bucket
from holdfast._engine.jobs.slots import Slots
from holdfast._engine.once import run_tick
from holdfast._model.settings import Settings
from tests.engine.test_slots import started
from tests.kit.clock import Clock
from tests.kit.pace import PATIENT, QUICK, ms
from tests.kit.waiting import Stopwatch, serving, until

if TYPE_CHECKING:
    from holdfast import Holdfast, Job
    from tests.kit.ledger import Ledger


def test_permits_come_in_at_the_rate_and_few_are_kept() -> None:
    clock = Clock(100.0)
    bucket = Bucket(50, clock)
    assert bucket.permits == 1, "the first may start at once"
    bucket.take()
    assert bucket.opens_in() == pytest.approx(1 / 50)
    clock.now += 1 / 49
    assert bucket.opens_in() is None
    clock.now += 3600
    assert bucket.permits == 1 + 50 * KEPT_SECONDS


def test_a_rate_bounds_what_starts_and_what_is_claimed() -> None:
    clock = Clock(100.0)
    slots = Slots(10, {"default": 10, "pdf": 2}, batch=50, clock=clock)
    slots.control({}, {"default": 20.0, "unserved": 1.0})
    assert slots.wanted() == {"default": 1, "pdf": 2}
    started(slots, "default", 1)
    assert not slots.may_start("default")
    assert slots.may_start("pdf")
    assert slots.wanted() == {"pdf": 2}
    assert slots.opens_in() == pytest.approx(1 / 20)
    clock.now += 10
    assert slots.wanted() == {"default": 3, "pdf": 2}, "what came in within a tenth of a second, and one"
    assert slots.opens_in() is None
    slots.holds("default", 2)
    assert slots.wanted() == {"pdf": 2}, "two are held ready"


def test_a_rate_that_stays_keeps_its_permits_and_one_that_goes_is_forgotten() -> None:
    slots = Slots(10, {"default": 10}, batch=50, clock=Clock(100.0))
    slots.control({}, {"default": 5.0})
    started(slots, "default", 1)
    slots.control({}, {"default": 5.0})
    assert not slots.may_start("default")
    slots.control({}, {"default": float("inf")})
    assert slots.may_start("default")
    assert not slots.paced
    slots.control({}, {"default": 6.0})
    assert slots.wanted() == {"default": 1}
    slots.control({})
    assert slots.wanted() == {"default": 10}


def test_of_several_databases_the_strictest_holds() -> None:
    slots = Slots(10, {"default": 10, "pdf": 2}, batch=50, clock=Clock(100.0))
    slots.control({"default": 4, "pdf": 5}, {"default": 7.0}, of="one")
    slots.control({"default": 6}, {"default": 3.0}, of="two")
    assert slots._limits == {"default": 4, "pdf": 5}
    assert slots._pacing._buckets["default"].rate == 3
    slots.control({}, of="two")
    assert slots._pacing._buckets["default"].rate == 7


def test_a_slot_rests_between_two_jobs() -> None:
    clock = Clock(100.0)
    slots = Slots(10, {"default": 10, "pdf": 2}, batch=50, delays={"pdf": 3.0}, clock=clock)
    started(slots, "pdf", 1)
    assert slots.may_start("pdf"), "the other slot"
    assert slots.wanted() == {"default": 10, "pdf": 1}
    clock.now += 1
    started(slots, "pdf", 1)
    assert not slots.may_start("pdf")
    assert slots.wanted() == {"default": 10}, "the slots of others are free"
    assert slots.opens_in() == 2
    clock.now += 2
    assert slots.may_start("pdf")
    assert slots.wanted() == {"default": 10, "pdf": 1}
    clock.now += 1
    assert slots.wanted() == {"default": 10, "pdf": 2}
    assert slots.opens_in() is None


def test_a_rest_that_is_over_opens_nothing_more() -> None:
    clock = Clock(100.0)
    slots = Slots(10, {"default": 10, "pdf": 2}, batch=50, delays={"pdf": 3.0}, clock=clock)
    started(slots, "pdf", 1)
    assert slots.opens_in() == 3
    clock.now += 3
    assert slots.opens_in() is None, "though nobody has asked for the queue since"


def test_which_queue_opens_when() -> None:
    clock = Clock(100.0)
    slots = Slots(10, {"default": 10, "mail": 5, "pdf": 2}, batch=50, delays={"pdf": 3.0}, clock=clock)
    slots.rest("mail", 30)
    started(slots, "pdf", 1)
    assert slots.opens_in() == slots.opens_in(["mail", "pdf"]) == 3
    assert slots.opens_in(["mail"]) == 30
    assert slots.opens_in(["default"]) is None
    clock.now += 30
    assert slots.opens_in() is None


def test_unpaced_queues_are_held_ready_as_before() -> None:
    clock = Clock(100.0)
    paced, free = (
        Slots(10, {"default": 10, "pdf": 2}, batch=50, delays=delays, clock=clock) for delays in ({"pdf": 1.0}, {})
    )
    for slots in (paced, free):
        started(slots, "default", 200)
    clock.now += 1
    assert paced.wanted() == free.wanted()
    assert paced.wanted()["default"] > 10


async def test_the_rate_of_the_control_table_is_obeyed_while_running(app: Holdfast, ledger: Ledger) -> None:
    clock = asyncio.get_running_loop().time
    starts: list[float] = []

    @app.job("act", queue="slow")
    async def act(job: Job[None]) -> None:
        starts.append(clock())

    @app.job("other")
    async def other(job: Job[None]) -> None:
        before_others.append(len(starts))

    before_others: list[int] = []
    ledger.do("INSERT INTO holdfast.queue (name, rate) VALUES ('slow', 40)")
    ledger.enqueue(*[act.new() for _ in range(40)], *[other.new() for _ in range(10)])
    async with app.worker(queues={"slow": 10, "default": 10}, **QUICK) as worker:
        await until(lambda: len(starts) == 40)
        assert len(before_others) == 10
        assert max(before_others) < 40, "nobody else is held up"
        kept = 1 + 40 * KEPT_SECONDS
        assert starts[-1] - starts[0] > (40 - kept) / 40 - 0.2, "less what the first may have been late"
        assert ledger.wasted() == []
        beat = serving(worker).heartbeat
        ledger.do("DELETE FROM holdfast.queue")
        now = beat.beats
        await until(lambda: beat.beats >= now + 2)
        await until(lambda: not worker._dispatcher.slots.paced)
        ledger.enqueue(*[act.new() for _ in range(1_000)])
        async with Stopwatch() as watch:
            await until(lambda: len(starts) == 1_040)
        assert watch.seconds < 15, "at the rate it would have taken 25 seconds"


async def test_a_rate_holds_no_more_than_may_start(app: Holdfast, ledger: Ledger) -> None:
    """One in ten seconds: the second stays in the database, for a worker that may run it sooner."""
    ran: list[int] = []

    @app.job("act")
    async def act(job: Job[None]) -> None:
        ran.append(job.id)

    ledger.do("INSERT INTO holdfast.queue (name, rate) VALUES ('default', 0.1)")
    ledger.enqueue(*[act.new() for _ in range(5)])
    async with app.worker(id="one", **PATIENT):
        await until(lambda: ledger.statuses() == {"completed": 1, "pending": 4})
        async with app.worker(id="two", **PATIENT):
            await until(lambda: ledger.statuses() == {"completed": 2, "pending": 3})


async def test_a_rate_opens_by_itself_where_other_queues_sleep(app: Holdfast, ledger: Ledger) -> None:
    """The claimer sleeps for the other queue, for ten seconds: the next permit wakes it."""

    @app.job("act", queue="slow")
    async def act(job: Job[None]) -> None: ...

    ledger.do("INSERT INTO holdfast.queue (name, rate) VALUES ('slow', 2)")
    ledger.enqueue(*[act.new() for _ in range(3)])
    async with app.worker(queues={"slow": 1, "default": 1}, **PATIENT):
        await until(lambda: ledger.completed() == 3, 8)


async def test_a_slot_rests_after_each_job_of_its_queue(app: Holdfast, ledger: Ledger) -> None:
    clock = asyncio.get_running_loop().time
    times: list[tuple[float, float]] = []

    @app.job("act", queue="gentle")
    async def act(job: Job[None]) -> None:
        begun = clock()
        await asyncio.sleep(0.01)
        times.append((begun, clock()))

    @app.job("other")
    async def other(job: Job[None]) -> None: ...

    ledger.enqueue(*[act.new() for _ in range(8)], *[other.new() for _ in range(50)])
    async with app.worker(queues={"gentle": 2, "default": 2}, next_job_delay={"gentle": ms(200)}, **PATIENT):
        await until(lambda: ledger.completed() == 58)
    for place in range(2, 8):
        assert times[place][0] - times[place - 2][1] >= 0.2, "of two slots each rests"
    assert ledger.wasted() == []


async def test_a_worker_that_has_stopped_looks_at_nothing(app: Holdfast, ledger: Ledger) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    ledger.enqueue(act.new())
    async with app.worker(next_job_delay={"default": ms(50)}, **QUICK) as worker:
        await until(lambda: ledger.completed() == 1)
    await until(lambda: worker._dispatcher._opening is None)


async def test_a_tick_is_paced_too(app: Holdfast, ledger: Ledger) -> None:
    clock = asyncio.get_running_loop().time
    starts: list[float] = []

    @app.job("act")
    async def act(job: Job[None]) -> None:
        starts.append(clock())

    ledger.do("INSERT INTO holdfast.queue (name, rate) VALUES ('default', 10)")
    ledger.enqueue(*[act.new() for _ in range(6)])
    await run_tick(application_of(app, Settings.load({}, tick_runners=("outbox",), **QUICK)))
    assert len(starts) == 6
    assert starts[-1] - starts[0] > (6 - 1 - 10 * KEPT_SECONDS) / 10 - 0.2


@pytest.mark.parametrize(
    "options",
    [
        {"next_job_delay": {"pfd": ms(1)}},
        {"next_job_delay": {"default": ms(-1)}},
        {"next_job_delay": {"default": timedelta(days=2)}},
        {"poll_interval": ms(0)},
        {"poll_interval": timedelta(days=2)},
    ],
)
def test_options_that_are_refused(app: Holdfast, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"poll_interval|next_job_delay"):
        app.worker(**options)


async def test_the_poll_interval_caps_the_pause_when_idle(app: Holdfast, ledger: Ledger) -> None:
    """Nobody can wake it, and by the settings it would look every half hour."""
    clock = asyncio.get_running_loop().time

    @app.job("act")
    async def act(job: Job[None]) -> float:
        return clock()

    lazy: dict[str, Any] = {"listen": False, "idle_min": timedelta(minutes=30), "idle_max": timedelta(minutes=30)}
    async with app.worker(poll_interval=ms(50), **lazy) as worker:
        claimer = serving(worker).claimer
        for _ in range(3):
            now = claimer.claims
            await until(lambda: claimer.claims >= now + 3)  # noqa: B023 - awaited in the same turn
            job = ledger.enqueue_one(act.new())
            await until(lambda: ledger.status(job) == "completed")  # noqa: B023 - awaited in the same turn
