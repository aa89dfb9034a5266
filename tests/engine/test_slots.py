"""How many may run, and how many are held ready."""

from __future__ import annotations

import asyncio
import threading
import time
from bisect import bisect_right
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from holdfast._engine.jobs import heartbeat
from holdfast._engine.jobs.slots import AHEAD_SECONDS, MOST_AHEAD, MOST_BEHIND_URGENT, URGENT_SECONDS, Slots
from tests.kit.clock import Clock
from tests.kit.pace import ALERT, PATIENT, QUICK
from tests.kit.waiting import after, serving, until

if TYPE_CHECKING:
    from holdfast import Holdfast, Job
    from holdfast._engine.worker import Worker
    from tests.kit.ledger import Ledger


def started(slots: Slots, queue: str, jobs: int, *, end: bool = True, of: object = None) -> None:
    for _ in range(jobs):
        slots.holds(queue, 1, of=of)
        slots.starts(queue, of=of)
        if end:
            slots.ends(queue, of=of)


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("seconds", [0.002, 0.02, 0.2, 2.0])
def test_no_more_is_held_than_starts_within_a_tenth_of_a_second(seconds: float, together: bool) -> None:
    """Ten slots before an endless queue, whose jobs end together or one after another."""
    clock = Clock(100.0)
    slots = Slots(10, {"default": 10}, batch=50, clock=clock)
    ends: list[float] = []
    starts: list[float] = []
    held: list[tuple[float, int]] = []
    waiting = 0
    while clock.now < 100 + max(10 * seconds, 1.0):
        waiting += (wanted := slots.wanted().get("default", 0))
        slots.holds("default", wanted)
        while waiting and len(ends) < 10:
            waiting -= 1
            slots.starts("default")
            starts.append(clock.now)
            first_round = not together and len(starts) <= 10
            ends.append(clock.now + (seconds * len(starts) / 10 if first_round else seconds))
        held.append((clock.now, waiting))
        clock.now = min(ends)
        while clock.now in ends:
            ends.remove(clock.now)
            slots.ends("default", seconds=seconds)
    surplus = [
        waits - (bisect_right(starts, now + 0.1) - bisect_right(starts, now))
        for now, waits in held
        if now < clock.now - 0.1
    ]
    assert max(surplus) <= 10, "ends are counted in windows, and one job of each slot may fall into the next"
    assert (max(waits for _, waits in held) > 10) is (seconds < 0.1)
    assert seconds < 0.1 or not any(waits for _, waits in held), "the slots are busy for longer"


def test_a_fast_worker_claims_more_than_a_batch_and_no_more_than_urgent_jobs_may_wait_for() -> None:
    clock = Clock(100.0)
    slots = Slots(10, {"default": 10, "mail": 10}, batch=50, clock=clock)
    started(slots, "default", 1_200)
    started(slots, "default", 10, end=False)
    clock.now += 1
    assert (slots.wanted(), slots.limit()) == ({"default": 120, "mail": 1}, 120)
    started(slots, "default", 30_000)
    clock.now += 1
    assert (slots.wanted(), slots.limit()) == ({"default": MOST_AHEAD, "mail": 1}, MOST_AHEAD)
    slots.holds("default", MOST_AHEAD + 1)
    assert slots.wanted() == {"mail": 1}


def test_while_urgent_jobs_come_claims_are_small() -> None:
    clock = Clock(100.0)
    slots = Slots(10, {"default": 10}, batch=50, clock=clock)
    started(slots, "default", 30_000)
    clock.now += 1
    slots.overtaken()
    assert (slots.wanted(), slots.limit()) == ({"default": MOST_BEHIND_URGENT}, MOST_BEHIND_URGENT)
    clock.now += URGENT_SECONDS
    assert slots.limit() == MOST_AHEAD
    assert Slots(10, {"default": 10}, batch=50, clock=clock).limit() == 50, "a small one stays as small"


def test_an_idle_worker_wants_as_many_as_it_can_run() -> None:
    slots = Slots(10, {"default": 10, "pdf": 2}, batch=50, clock=Clock(100.0))
    assert slots.wanted() == {"default": 10, "pdf": 2}


def test_a_full_queue_is_not_wanted() -> None:
    slots = Slots(10, {"default": 10, "pdf": 2}, batch=50, clock=Clock(100.0))
    started(slots, "pdf", 2, end=False)
    assert slots.wanted() == {"default": 8}
    started(slots, "default", 8, end=False)
    assert slots.wanted() == {}
    assert not slots.may_start("pdf")
    assert not slots.may_start("default")


def test_a_claim_is_never_larger_than_the_batch() -> None:
    assert Slots(100, {"default": 100}, batch=30, clock=Clock(100.0)).wanted() == {"default": 30}


def test_held_ready_is_what_will_start_soon() -> None:
    clock = Clock(100.0)
    slots = Slots(10, {"default": 10}, batch=50, clock=clock)
    started(slots, "default", 200)
    clock.now += 1
    assert slots.wanted() == {"default": 10 + 200 * 2 * AHEAD_SECONDS}, "two hundred a second"
    clock.now += 1
    assert slots.wanted() == {"default": 10}, "nothing has ended since"


def test_a_burst_of_starts_is_no_pace() -> None:
    clock = Clock(100.0)
    slots = Slots(10, {"default": 10}, batch=50, clock=clock)
    started(slots, "default", 10, end=False)
    clock.now += 0.05
    assert slots.wanted() == {}


def test_the_control_table_decides_and_may_be_withdrawn() -> None:
    slots = Slots(10, {"default": 10, "pdf": 2}, batch=50, clock=Clock(100.0))
    slots.control({"pdf": 5, "default": 0})
    assert slots.wanted() == {"pdf": 5}
    slots.control({})
    assert slots.wanted() == {"default": 10, "pdf": 2}


def test_a_resting_queue_is_left_alone() -> None:
    clock = Clock(100.0)
    slots = Slots(10, {"default": 10, "pdf": 2}, batch=50, clock=clock)
    slots.rest("pdf", 5)
    assert slots.wanted() == {"default": 10}
    assert not slots.may_start("pdf")
    clock.now += 5.1
    assert slots.wanted() == {"default": 10, "pdf": 2}


def test_what_waits_in_a_slow_queue_does_not_starve_the_others() -> None:
    clock = Clock(100.0)
    slots = Slots(10, {"default": 10, "pdf": 2}, batch=50, clock=clock)
    started(slots, "pdf", 400)
    clock.now += 1
    wanted = slots.wanted()["pdf"]
    slots.holds("pdf", wanted)
    slots.starts("pdf")
    slots.starts("pdf")
    clock.now += 1  # these two take long, and the others wait behind them
    slots.wanted()
    clock.now += 1
    assert wanted > 2
    assert "pdf" not in slots.wanted()
    assert slots.wanted()["default"] == 8


async def test_concurrency_is_never_exceeded(app: Holdfast, ledger: Ledger) -> None:
    now: Counter[str] = Counter()
    limit: Counter[str] = Counter()

    async def act(job: Job[None], queue: str) -> None:
        now.update([queue, "all"])
        for name in (queue, "all"):
            limit[name] = max(limit[name], now[name])
        await asyncio.sleep(0.002)
        now.subtract([queue, "all"])

    kinds = {queue: app.job(f"act.{queue}", queue=queue)(act) for queue in ("default", "pdf", "mail")}
    ledger.enqueue(*[kinds[queue].new(queue) for _ in range(100) for queue in kinds])
    async with app.worker(concurrency=6, queue_concurrency={"pdf": 2, "mail": 4}, **QUICK) as worker:
        await until(lambda: worker.counts.get("job_completed") == 300)
    assert limit["all"] == 6
    assert limit["pdf"] <= 2
    assert limit["mail"] <= 4


async def test_threads_count_too(app: Holdfast, ledger: Ledger) -> None:
    running: list[int] = []
    limit = 0
    together = threading.Barrier(3)

    @app.job("act")
    def act(job: Job[None]) -> None:
        nonlocal limit
        running.append(job.id)
        limit = max(limit, len(running))
        together.wait(30)
        time.sleep(0.005)
        running.remove(job.id)

    ledger.enqueue(*[act.new() for _ in range(60)])
    async with app.worker(queues={"default": 3}, **QUICK) as worker:
        await until(lambda: worker.counts.get("job_completed") == 60)
    assert limit == 3


async def test_no_more_is_held_than_runs_or_starts_soon(app: Holdfast, ledger: Ledger) -> None:
    go = asyncio.Event()

    @app.job("slow")
    async def slow(job: Job[None]) -> None:
        await go.wait()

    @app.job("quick", queue="quick")
    async def quick(job: Job[None]) -> None:
        await asyncio.sleep(0.01)

    ledger.enqueue(*[slow.new() for _ in range(100)])
    async with app.worker(queues={"default": 5}, batch_size=40, **QUICK):
        await until(lambda: ledger.statuses().get("processing") == 5)
        await after(0.3)
        assert ledger.statuses()["processing"] == 5, "nothing starts, so nothing is held ready"
        go.set()
        await until(lambda: ledger.completed() == 100)
    jobs = ledger.enqueue(*[quick.new() for _ in range(300)])
    limit = 0
    async with app.worker(queues={"quick": 2}, batch_size=40, **QUICK) as worker:
        while worker.counts.get("job_completed", 0) < len(jobs):
            slots = worker._dispatcher.slots
            limit = max(limit, slots._running_total + sum(s.waiting.total() for s in slots._stocks.values()))
            await asyncio.sleep(0.005)
    assert 2 < limit <= 2 + 40, "the slots, and at most a batch"


async def test_a_slot_that_becomes_free_is_filled_while_another_queue_is_empty(app: Holdfast, ledger: Ledger) -> None:
    @app.job("act", queue="busy")
    async def act(job: Job[None]) -> None:
        await asyncio.sleep(0.05)

    ledger.enqueue(*[act.new() for _ in range(20)])
    async with app.worker(queues={"busy": 1, "empty": 1}, **PATIENT):
        await until(lambda: ledger.completed() == 20, 10)


async def control_is_read(worker: Worker) -> None:
    """Return when the worker has read the control table as it is now."""
    beat = serving(worker).heartbeat
    now = beat.beats
    await until(lambda: beat.beats >= now + 2)


async def test_the_control_table_is_obeyed_while_running(
    app: Holdfast, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "MISSED_TICKS", 1_000)  # a server that stands still is not what is tested
    running: set[int] = set()
    limit = 0
    together = asyncio.Barrier(1)  # however slow the machine is: nobody ends before as many run as may

    @app.job("act")
    async def act(job: Job[None]) -> None:
        nonlocal limit
        running.add(job.id)
        limit = max(limit, len(running))
        await together.wait()
        await asyncio.sleep(0.01)
        running.discard(job.id)

    async with app.worker(queues={"default": 4}, batch_size=8, **ALERT) as worker:
        ledger.do("INSERT INTO holdfast.queue (name, paused) VALUES ('default', true)")
        await control_is_read(worker)
        ledger.enqueue(*[act.new() for _ in range(40)])
        await after(0.3)
        assert ledger.statuses() == {"pending": 40}
        ledger.do("UPDATE holdfast.queue SET paused = false, concurrency = 1")
        await until(lambda: ledger.completed() == 40)
        assert limit == 1
        ledger.do("UPDATE holdfast.queue SET concurrency = 2")
        together = asyncio.Barrier(2)
        await control_is_read(worker)
        ledger.enqueue(*[act.new() for _ in range(40)])
        await until(lambda: ledger.completed() == 80)
        assert limit == 2
        ledger.do("DELETE FROM holdfast.queue")
        together = asyncio.Barrier(4)
        await control_is_read(worker)
        ledger.enqueue(*[act.new() for _ in range(40)])
        await until(lambda: ledger.completed() == 120)
        assert limit == 4


async def test_the_control_tables_lease_is_obeyed_while_running(app: Holdfast, ledger: Ledger) -> None:
    go = asyncio.Event()

    @app.job("act")
    async def act(job: Job[None]) -> None:
        await go.wait()

    async with app.worker(queues={"default": 1}, **ALERT) as worker:
        ledger.do("INSERT INTO holdfast.queue (name, lease_ms) VALUES ('default', 60000)")
        await control_is_read(worker)
        ledger.enqueue(act.new())
        await until(lambda: ledger.value("SELECT max(locked_until) > now() + interval '50 seconds' FROM holdfast.job"))
        go.set()


async def test_a_paused_queue_starts_nothing_that_was_held_ready(app: Holdfast, ledger: Ledger) -> None:
    started = 0

    @app.job("act")
    async def act(job: Job[None]) -> None:
        nonlocal started
        started += 1
        await asyncio.sleep(0.02)

    ledger.enqueue(*[act.new() for _ in range(400)])
    async with app.worker(queues={"default": 1}, **ALERT) as worker:
        await until(lambda: started > 60)
        ledger.do("INSERT INTO holdfast.queue (name, paused) VALUES ('default', true)")
        await control_is_read(worker)
        before = started
        await after(1)
        assert started <= before + 5, "those of a claim that was under way"
        assert started < 400


def test_a_quick_queue_leaves_the_others_their_share_of_a_claim() -> None:
    clock = Clock(100.0)
    slots = Slots(10, {"default": 10, "mail": 10}, batch=50, clock=clock)
    started(slots, "default", 3_000)
    started(slots, "default", 10, end=False)
    clock.now += 1
    assert slots.wanted() == {"default": 250, "mail": 1}, "one is ready for the next slot"
    slots.holds("mail", 1)
    assert slots.wanted() == {"default": 250}
    started(slots, "mail", 3_000)
    started(slots, "default", 3_000)
    clock.now += 1
    slots.holds("mail", -1)
    assert slots.wanted() == {"default": 250, "mail": 250}


def test_nothing_is_held_ready_while_no_slot_becomes_free() -> None:
    clock = Clock(100.0)
    slots = Slots(10, {"default": 10, "mail": 10}, batch=50, clock=clock)
    started(slots, "default", 10, end=False)
    clock.now += 1
    assert slots.wanted() == {}


def test_the_backlog_of_one_database_leaves_another_its_next_slot() -> None:
    clock = Clock(100.0)
    slots = Slots(10, {"default": 10}, batch=50, clock=clock)
    started(slots, "default", 200, of="b")
    started(slots, "default", 10, end=False, of="b")
    clock.now += 1
    slots.holds("default", 20, of="b")
    assert slots.wanted(of="b") == {}, "it has enough ready"
    assert slots.wanted(of="a") == {"default": 1}, "one is ready for the next slot"
    slots.holds("default", 1, of="a")
    assert slots.wanted(of="a") == {}
    slots.forget("a")
    assert slots.wanted(of="b") == {}


def test_free_slots_are_not_wanted_twice_for_jobs_that_wait_in_another_database() -> None:
    slots = Slots(10, {"default": 10}, batch=50, clock=Clock(100.0))
    slots.holds("default", 7, of="b")
    assert slots.wanted(of="a") == {"default": 3}
    assert slots.wanted(of="b") == {}


async def test_a_backlog_of_quick_jobs_does_not_starve_another_queue(app: Holdfast, ledger: Ledger) -> None:
    ran: Counter[str] = Counter()
    before: list[int] = []

    @app.job("quick")
    async def quick(job: Job[None]) -> None:
        await asyncio.sleep(0.003)
        ran["quick"] += 1

    @app.job("mail", queue="mail")
    async def mail(job: Job[None]) -> None:
        before.append(ran["quick"])

    ledger.enqueue(*[quick.new() for _ in range(4_000)])
    async with app.worker(**PATIENT):
        await until(lambda: ran["quick"] > 500)
        begun = ran["quick"]
        ledger.enqueue(mail.new())
        await until(lambda: before)
    assert before[0] - begun < 1_500
