"""Starting attempts: urgent first, in turn, giving way."""

from __future__ import annotations

import asyncio
import sys
import time
from statistics import median
from typing import TYPE_CHECKING

from holdfast._engine.jobs.dispatch import TURN_SECONDS
from holdfast._engine.jobs.slots import MOST_BEHIND_URGENT, Slots
from tests.kit.pace import PATIENT, QUICK
from tests.kit.waiting import until

if TYPE_CHECKING:
    import pytest

    from holdfast import Holdfast, Job
    from tests.kit.ledger import Ledger


async def test_urgent_jobs_start_first_then_the_oldest(app: Holdfast, ledger: Ledger) -> None:
    order: list[tuple[int, int]] = []

    @app.job("act")
    async def act(job: Job[None], priority: int) -> None:
        order.append((priority, job.id))

    ledger.enqueue(*[act.new(p).options(priority=p) for p in (5, 9, 0, 3, 5, 0, 9, 1) for _ in range(3)])
    async with app.worker(queues={"default": 1}, **QUICK):
        await until(lambda: len(order) == 24)
    assert order == sorted(order)


async def test_an_urgent_job_overtakes_what_is_held_ready(app: Holdfast, ledger: Ledger) -> None:
    order: list[str] = []

    @app.job("act")
    async def act(job: Job[None], name: str) -> None:
        order.append(name)
        await asyncio.sleep(0.02)

    ledger.enqueue(*[act.new("bulk") for _ in range(400)])
    async with app.worker(queues={"default": 2}, batch_size=100, **PATIENT):
        await until(lambda: len(order) > 100)
        for _ in range(3):
            before = len(order)
            ledger.enqueue(act.new("urgent").options(priority=0))
            await until(lambda: "urgent" in order[before:])  # noqa: B023 - awaited in the same turn
            # A round trip or two of the claim, at a hundred starts a second: not the second's worth that is held ready.
            assert order[before:].index("urgent") <= 40, order[before:].index("urgent")


async def test_urgent_jobs_that_keep_coming_wait_for_two_small_claims(app: Holdfast, ledger: Ledger) -> None:
    order: list[str] = []

    @app.job("act")
    async def act(job: Job[None], name: str) -> None:
        order.append(name)

    ledger.do(
        "INSERT INTO holdfast.job (created_at, available_at, queue, kind, payload)"
        " SELECT now(), now(), 'default', 'act', '{\"name\": \"bulk\"}' FROM generate_series(1, 20000)"
    )
    overtaken: list[int] = []
    async with app.worker(queues={"default": 10}, batch_size=500, **PATIENT):
        await until(lambda: len(order) > 1_000)
        for _ in range(20):
            ledger.enqueue(act.new("urgent").options(priority=0))
            before = len(order)
            await until(lambda: "urgent" in order[before:])  # noqa: B023 - awaited in the same turn
            overtaken.append(order[before:].index("urgent"))
        assert len(order) < 20_000
    # The first comes as a surprise. The others wait for the claim under way, and now and then for what was held ready.
    assert max(overtaken[1:]) <= 2 * MOST_BEHIND_URGENT, overtaken
    assert median(overtaken[1:]) <= MOST_BEHIND_URGENT, overtaken


async def test_handlers_that_never_wait_leave_room_for_others(app: Holdfast, ledger: Ledger) -> None:
    started, slots = 0, 5

    @app.job("act")
    async def act(job: Job[None]) -> None:
        nonlocal started
        started += 1
        time.sleep(TURN_SECONDS)  # noqa: ASYNC251 - it never waits: that is the point

    ledger.enqueue(*[act.new() for _ in range(100)])
    in_one_turn: list[int] = []
    async with app.worker(queues={"default": slots}, batch_size=20, **QUICK):
        while started < 100:
            before = started
            await asyncio.sleep(0)
            in_one_turn.append(started - before)
    # One fills a turn of the dispatcher, however many claims come meanwhile; without eager tasks, all that have a slot.
    assert max(in_one_turn) <= (1 if sys.version_info >= (3, 12) else slots), in_one_turn


async def test_a_job_called_off_while_held_ready_never_starts(
    app: Holdfast, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    # At such a pace everything is held ready.
    monkeypatch.setattr(
        Slots, "_count_pace", lambda slots: [s.pace.update(default=1e3) for s in slots._stocks.values()]
    )
    ran: list[int] = []
    gate = asyncio.Event()

    @app.job("act")
    async def act(job: Job[None]) -> None:
        ran.append(job.id)
        await gate.wait()

    async with app.worker(queues={"default": 1}, **QUICK) as worker:
        jobs = ledger.enqueue(*[act.new() for _ in range(6)])
        await until(lambda: len(worker.pipelines[0].held) == 6)
        called_off = jobs[3:]
        assert [ledger.cancel(job) for job in called_off] == ["requested"] * 3
        held = worker.pipelines[0].held
        await until(lambda: sum(attempt.signal.aborted for attempt in held.values()) == 3)
        gate.set()
        await until(lambda: ledger.statuses() == {"completed": 3, "cancelled": 3})
    assert ran == jobs[:3]
