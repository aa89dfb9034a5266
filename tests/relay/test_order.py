"""The guarantees of the event log: every committed event, once, and in order where there is one."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
import pytest

from tests.kit.databases import clone, create_template
from tests.relay.reading import Reader
from tools.postgres import Server

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.relay.reading import ReadEvent

WRITERS = 200
KEYS = 12
PUBLISH = "SELECT holdfast.publish('t', %s::json, key => %s)"


class Written(NamedTuple):
    """An event that was committed: its publish ran after `began`, and its commit had answered at `committed`."""

    key: str
    began: float
    committed: float


@pytest.fixture(scope="module")
def busy_server(server_version: int) -> Iterator[Server]:
    with Server(server_version, max_connections=WRITERS + 50, max_prepared_transactions=WRITERS) as server:
        yield server


@pytest.fixture(scope="module")
def busy_template(busy_server: Server) -> str:
    return create_template(busy_server)


@pytest.fixture
def busy_database(busy_server: Server, busy_template: str) -> Iterator[str]:
    with clone(busy_server, busy_template) as url:
        yield url


class Writer:
    """Publishes in transactions of every sort: short, long, rolled back, with savepoints, prepared."""

    def __init__(self, number: int, url: str, seed: int, written: dict[int, Written]) -> None:
        self.number = number
        self.url = url
        self.random = random.Random(f"{seed}-{number}")
        self.written = written

    async def write(self, rounds: int) -> None:
        async with await psycopg.AsyncConnection.connect(self.url, autocommit=True) as conn:
            for turn in range(rounds):
                await self._transaction(conn, f"w{self.number}-{turn}")
                await asyncio.sleep(self.random.random() * 0.05)

    async def _transaction(self, conn: psycopg.AsyncConnection[Any], name: str) -> None:
        published: dict[int, tuple[str, float]] = {}
        await conn.execute("BEGIN")
        for _ in range(self.random.randint(1, 4)):
            kept = self.random.random() < 0.8
            await conn.execute("SAVEPOINT s")
            event, key, began = await self._publish(conn)
            if kept:
                await conn.execute("RELEASE s")
                published[event] = (key, began)
            else:
                await conn.execute("ROLLBACK TO s")
            if self.random.random() < 0.3:
                await asyncio.sleep(self.random.random() * 0.1)
        if self.random.random() < 0.2:
            await conn.execute("ROLLBACK")
            return
        if self.random.random() < 0.2:
            await conn.execute(f"PREPARE TRANSACTION '{name}'".encode())
            await asyncio.sleep(self.random.random() * 0.2)
            if self.random.random() < 0.3:
                await conn.execute(f"ROLLBACK PREPARED '{name}'".encode())
                return
            await conn.execute(f"COMMIT PREPARED '{name}'".encode())
        else:
            await conn.execute("COMMIT")
        now = time.monotonic()
        self.written.update({event: Written(key, began, now) for event, (key, began) in published.items()})

    async def _publish(self, conn: psycopg.AsyncConnection[Any]) -> tuple[int, str, float]:
        key = str(self.random.randrange(KEYS))
        began = time.monotonic()
        cursor = await conn.execute(PUBLISH, ['{"n": 1}', key])
        row = await cursor.fetchone()
        assert row is not None
        return row[0], key, began


async def _read_until(done: asyncio.Event, reader: Reader, partition: int, seed: int) -> None:
    """Read pages of every size, sometimes throwing one away as a reader that dies does."""
    rng = random.Random(seed)
    while True:
        # Only what begins after the last commit sees all of them; the rest of an older difference does not.
        last_turn = done.is_set() and reader.held[partition].position.phase is None
        page = await reader.page(partition, limit=rng.choice([1, 2, 3, 7, 50]))
        if rng.random() < 0.9:
            assert await reader.advance(page, partition)
            if page.last and last_turn and not page.events:
                return
        if page.last:
            await asyncio.sleep(0.005)


def _order_broken(events: Sequence[ReadEvent], written: dict[int, Written]) -> list[tuple[int, int]]:
    """Return pairs that came in the wrong order: the second was committed before the first was published."""
    broken = []
    for key in {event.key for event in events}:
        earliest: tuple[float, int] = (float("inf"), 0)
        for event in reversed([event for event in events if event.key == key]):
            if earliest[0] < written[event.id].began:
                broken.append((event.id, earliest[1]))
            earliest = min(earliest, (written[event.id].committed, event.id))
    return broken


@pytest.mark.nightly(daily=["4"])
@pytest.mark.parametrize("partitions", [1, 4])
async def test_every_committed_event_comes_once_and_in_order(busy_database: str, partitions: int) -> None:
    seed = random.randrange(10**6)
    written: dict[int, Written] = {}
    async with await psycopg.AsyncConnection.connect(busy_database, autocommit=True) as conn:
        reader = Reader(conn, "all", partitions=partitions)
        await reader.join()
        long = await psycopg.AsyncConnection.connect(busy_database, autocommit=True)
        await long.execute("BEGIN")
        cursor = await long.execute(PUBLISH, ["{}", "long"])
        row = await cursor.fetchone()
        assert row is not None
        began = time.monotonic()
        done = asyncio.Event()
        readers = [asyncio.create_task(_read_until(done, reader, part, seed + part)) for part in range(partitions)]
        await asyncio.gather(*(Writer(n, busy_database, seed, written).write(3) for n in range(WRITERS)))
        assert not any(event.key == "long" for event in reader.events)
        await long.execute("COMMIT")
        written[row[0]] = Written("long", began, time.monotonic())
        await long.close()
        done.set()
        await asyncio.gather(*readers)
    ids = [event.id for event in reader.events]
    assert len(ids) == len(set(ids)), f"seed {seed}: some came twice"
    assert set(ids) == set(written), f"seed {seed}: {set(written) - set(ids)} lost, {set(ids) - set(written)} made up"
    assert _order_broken(reader.events, written) == [], f"seed {seed}"
