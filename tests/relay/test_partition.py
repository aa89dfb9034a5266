"""How much a relay takes in hand at once."""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast, Settings
from holdfast._drivers import run
from holdfast._engine.link import Links
from holdfast._engine.own_row import OwnRow
from holdfast._engine.report.transition import Transitions
from holdfast._engine.runner import Budget
from holdfast._engine.session import Session
from holdfast._relay import partition
from holdfast._relay.publisher import DeliveryResult
from holdfast._store.event import Cut, LogPage, Position
from holdfast._store.subscription import HeldPartition, ReleasedEvents
from holdfast._store.worker import register_worker
from tests.relay.ledger import Ledger


async def _steps(database: str, count: int, budget: Budget) -> list[int]:
    """Relay so many events of one key; how many each step of the position has passed."""
    app = Holdfast(database)
    sold = app.event("shop.sold", dict)
    app.relay("out", sold, to=Ledger(), start="beginning")
    make = app.relays(Settings.load({}))
    assert make is not None
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        await app.publish_many(conn, [sold.new({"n": n}, key="a") for n in range(count)])
        worker = await run(conn, register_worker("once", queues=[], kinds=[]))
        relays = make(Session(Links(database, name="", timeout=30), OwnRow(worker)), Transitions("once", ()))
        assert await relays.drain(budget) == {"out": count}
        return await _passed(conn)


async def _passed(conn: psycopg.AsyncConnection[Any]) -> list[int]:
    rows = await conn.execute("SELECT coalesce(last_id, seen_id) FROM holdfast.position ORDER BY seq")
    ids = [0, *(row[0] for row in await rows.fetchall())]
    return [after - before for before, after in itertools.pairwise(ids) if after > before]


async def test_where_time_is_limited_pages_begin_small_and_grow(database: str) -> None:
    steps = await _steps(database, 10_000, Budget(seconds=600))
    assert steps[0] == 1
    assert partition.PAGE in steps
    assert len(steps) < 20


async def test_where_it_is_not_they_are_large_at_once(database: str) -> None:
    assert await _steps(database, 5_000, Budget()) == [2_000, 2_000, 1_000]


@pytest.mark.parametrize(
    ("size", "seconds", "full", "then"),
    [
        (1, 0.1, True, 4),
        (partition.PAGE, 0.1, True, partition.PAGE),
        (1_500, 0.1, True, partition.PAGE),
        (64, 0.1, False, 64),
        (64, 2.0, True, 64),
        (64, 60.0, True, 32),
        (64, 60.0, False, 32),
        (1, 60.0, True, 1),
    ],
)
def test_the_next_page_is_as_large_as_the_sink_is_quick(size: int, seconds: float, full: bool, then: int) -> None:
    assert partition.next_size(size, seconds, full=full) == then


async def test_a_cancel_while_the_reading_ends_is_not_lost() -> None:
    budget, reading, ending, gate = Budget(), asyncio.Event(), asyncio.Event(), asyncio.Event()
    position = Position("1:1:", 1, 1, "1", phase="new")
    held = HeldPartition(0, 1, 1, position)
    answers = iter([ReleasedEvents([], {}), LogPage([], position)])

    async def run(_: object) -> object:
        if (answer := next(answers, None)) is not None:
            return answer
        if reading.is_set():
            return held
        reading.set()
        try:
            return await asyncio.Event().wait()
        finally:
            # As a statement that is cancelled: it waits for its server.
            ending.set()
            await gate.wait()

    async def hand_over(_: object) -> DeliveryResult:
        await reading.wait()
        budget.end()
        return DeliveryResult(1, [], {})

    link: Any = SimpleNamespace(run=run)
    publisher: Any = SimpleNamespace(hand_over=hand_over, parked=set())
    one = partition.Partition(link, subscription=1, worker=1, cut=Cut((), 1, 0, 0), held=held, publisher=publisher)
    task = asyncio.create_task(one.hand_over_all(budget))
    await ending.wait()
    task.cancel()
    await asyncio.sleep(0)
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task
