"""A database comes back as it was at an earlier moment, and gives ids again that it has given before."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast import Holdfast, Job
from holdfast._store.schema import migrate
from tests.kit.waiting import until
from tests.relay.restoring import BaseBackup, Dump, LaggingStandby, PointInTime
from tests.relay.test_relays import FAST, subscribed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast._relay.message import Message, Publish
    from tests.relay.restoring import Way

# More than a sequence skips when a server has crashed.
MANY = 80
DUE = "SELECT holdfast.reschedule_job(%s, now())"
AGAIN = "SELECT holdfast.replay_subscription(id, NULL, 0) FROM holdfast.subscription"
NEWEST = "SELECT last_value FROM holdfast.token"


class Sink:
    """Takes everything, and keeps the ids of the messages by their number."""

    name = "sink"

    def __init__(self) -> None:
        self.ids: defaultdict[int, set[str]] = defaultdict(set)
        self.taken = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Publish]:
        yield self._publish

    async def _publish(self, message: Message) -> None:
        self.taken += 1
        self.ids[json.loads(message.body)["n"]].add(message.id)

    def of(self, numbers: range) -> set[str]:
        return {id_ for n in numbers for id_ in self.ids.get(n, ())}


@pytest.mark.nightly(daily=["BaseBackup"])
@pytest.mark.parametrize("kind", [BaseBackup, PointInTime, LaggingStandby, Dump])
async def test_what_is_new_after_a_restore_is_not_taken_for_what_was_lost(kind: type[Way]) -> None:
    """With a worker that lives through it. Older events and jobs keep their message ids and idempotency keys."""
    sink, keys = Sink(), defaultdict[int, list[str]](list)
    with kind() as way:
        app = Holdfast(way.url)
        posted = app.event("said", dict)
        app.relay("out", posted, to=sink, lease=timedelta(seconds=2))

        @app.job("pay")
        async def pay(job: Job[None], n: int) -> None:
            keys[n].append(job.idempotency_key)

        async def write(conn: psycopg.AsyncConnection, numbers: range) -> tuple[set[int], set[int]]:
            """Publish an event and enqueue a job for each number; return the ids of both once all are out and run."""
            events = await app.publish_many(conn, [posted.new({"n": n}) for n in numbers])
            jobs = await app.enqueue_many(conn, [pay.new(n) for n in numbers])
            await conn.commit()
            await until(lambda: all(sink.ids[n] and keys[n] for n in numbers))
            return set(events), {job.id for job in jobs}

        with psycopg.connect(way.here.url(), autocommit=True) as owner:
            migrate(owner)
        async with asyncio.timeout(60), app.worker(**FAST):
            async with await psycopg.AsyncConnection.connect(way.url, autocommit=True) as conn:
                await subscribed(conn, 1)
                kept = await app.enqueue(conn, pay.new(0).options(delay=3600))
                await app.publish(conn, posted.new({"n": 0}))
                await until(lambda: sink.ids[0])
                await asyncio.to_thread(way.back_up)
                await conn.execute(DUE, [kept.id])
                await until(lambda: keys[0])
                lost = await write(conn, range(1, MANY))
                token = (await (await conn.execute(NEWEST)).fetchone() or [0])[0]
            await asyncio.to_thread(way.come_back)
            async with await psycopg.AsyncConnection.connect(way.url, autocommit=True) as conn:
                new = await write(conn, range(MANY, 2 * MANY))
                assert new[0] & lost[0], "this proves nothing unless ids of events are given again"
                assert new[1] & lost[1], "this proves nothing unless ids of jobs are given again"
                assert (await (await conn.execute(NEWEST)).fetchone() or [0])[0] > token
                await conn.execute(DUE, [kept.id])
                await until(lambda: len(keys[0]) == 2)
                taken = sink.taken
                await conn.execute(AGAIN)
                await until(lambda: sink.taken > taken)
        assert sink.of(range(1, MANY)).isdisjoint(sink.of(range(MANY, 2 * MANY)))
        assert not {key for n in range(1, MANY) for key in keys[n]} & {
            key for n in range(MANY, 2 * MANY) for key in keys[n]
        }
        assert len(sink.ids[0]) == 1, "what was published before the backup has its old message id"
        assert len(set(keys[0])) == 1, "what was enqueued before the backup has its old idempotency key"
