"""A log that never ends while it is read: what is due is tried again all the same."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg

from holdfast import Holdfast, Retry, Settings
from holdfast._drivers import run
from holdfast._engine.link import Links
from holdfast._engine.own_row import OwnRow
from holdfast._engine.report.transition import Transitions
from holdfast._engine.session import Session
from holdfast._relay import partition
from holdfast._relay import publisher as delivery
from holdfast._store.worker import register_worker
from tests.kit.waiting import until
from tests.relay.ledger import Ledger
from tests.relay.test_relays import FAST, subscribed

if TYPE_CHECKING:
    import pytest

    from holdfast._model.event import Topic


async def _publish_always(app: Holdfast, database: str, topic: Topic[Any]) -> None:
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        number = 1
        while True:
            await app.publish_many(conn, [topic.new({"n": number + n}, key=str(number + n)) for n in range(5)])
            number += 5
            await asyncio.sleep(0.01)


async def test_what_is_due_is_tried_between_two_pages(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "PATIENCE", 0.05)
    monkeypatch.setattr(partition, "PAGE", 10)
    failures = [RuntimeError("not now")]
    soon = Retry.table([timedelta(milliseconds=300)], max_attempts=5, jitter=timedelta(0))
    sink = Ledger(lambda n: failures.pop() if n == 0 and failures else None, seconds=0.02, retry=soon)
    app = Holdfast(database)
    sold = app.event("shop.sold", dict)
    app.relay("out", sold, to=sink, poison="park_key", window=1)
    make = app.relays(Settings.load({}, **FAST))
    assert make is not None
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        worker = await run(conn, register_worker("busy", queues=[], kinds=[]))
        async with make(
            Session(Links(database, name="", timeout=30), OwnRow(worker)), Transitions("busy", ())
        ) as relays:
            await subscribed(conn, 1)
            publishing = asyncio.create_task(_publish_always(app, database, sold))
            await until(lambda: 1 in sink.taken)
            await app.publish(conn, sold.new({"n": 0}, key="0"))
            # More is published than it takes: it never comes to the end.
            await until(lambda: 0 in sink.taken)
            assert relays.counts["out"] > 0
            publishing.cancel()
            await asyncio.gather(publishing, return_exceptions=True)
    assert sink.asked.count(0) == 2
