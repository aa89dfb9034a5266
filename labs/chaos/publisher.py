"""Publishes events in transactions of every sort, with each event's promise in the same transaction and savepoint."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast._engine.address import watched
from holdfast._engine.link import LOST, sever
from labs.chaos.application import app
from labs.chaos.events import published

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from labs.chaos.producer import Producer

VOICES = 3
KEYS = 8
PATIENCE = 3.0
_PROMISE = """
    INSERT INTO chaos.published (event, batch, key, n) SELECT event, %s, key, n
    FROM unnest(%s::bigint[], %s::text[], %s::bigint[]) AS p (event, key, n)
"""


@dataclass(slots=True)
class EventTally:
    """Counts of the voices' work."""

    events: int = 0
    """Published, and acknowledged."""
    rolled_back: int = 0
    """With the transaction, or with a savepoint."""


class Publisher:
    """While its `async with` block runs, events keep pace with the jobs of the load."""

    def __init__(self, load: Producer, dice: random.Random, *, share: float = 0.06) -> None:
        """`share`: events for each job of the load."""
        self.load = load
        self.tally = EventTally()
        self._size = max(4, min(30, load.jobs // 400))
        self._share = share
        self._dice = dice
        self._voices: list[Voice] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._speak(self.voice())) for _ in range(VOICES)]
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for voice in self._voices:
            await voice.close()

    def voice(self) -> Voice:
        """Return one more voice for the caller's own use; it is closed with the others."""
        self._voices.append(Voice(self, len(self._voices), random.Random(self._dice.random())))
        return self._voices[-1]

    async def finished(self) -> None:
        """Return when as many events are published as are due; an error of a voice is raised."""
        await asyncio.gather(*self._tasks)

    async def _speak(self, voice: Voice) -> None:
        while True:
            if self.tally.events < self._share * self.load.tally.jobs:
                await voice.speak(self._size)
            elif self.load.done:
                return
            else:
                await asyncio.sleep(0.05)


class Voice:
    """One connection, one transaction after the other. A key belongs to one voice: its order is known."""

    def __init__(self, publisher: Publisher, number: int, dice: random.Random) -> None:
        self._publisher = publisher
        self._number = number
        self._dice = dice
        self._conn: psycopg.AsyncConnection[Any] | None = None
        self._epoch = 0
        self._places: dict[str, int] = {}

    async def close(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            sever(conn)
            with suppress(*LOST):
                await conn.close()

    async def speak(self, limit: int) -> None:
        """Publish some events in a transaction: short or long, with savepoints or without, kept or not."""
        fate = self._dice.random()
        whim = None if fate < 0.08 else self._dice.uniform(0.05, 1.5) if fate < 0.25 else 0.0
        parts = [[self.key() for _ in range(self._dice.randint(1, limit))] for _ in range(self._dice.randint(1, 3))]
        await self.commit(parts, savepoints=self._dice.random() < 0.4, whim=whim)

    def key(self) -> str:
        return f"{self._number}-{self._epoch}-{self._dice.randrange(KEYS)}"

    async def commit(
        self, parts: Sequence[Sequence[str]], *, savepoints: bool = False, whim: float | None = 0
    ) -> list[int] | None:
        """Publish an event for each key; None when that is rolled back or the answer is unknown.

        `savepoints`: each part has one, and on a whim goes back to it. `whim`: hold the transaction open for so many
        seconds; None: roll it back.
        """
        load, tally = self._publisher.load, self._publisher.tally
        batch, before, committing, overdue = load.batch(), dict(self._places), False, None
        ids: list[int] = []
        try:
            conn = await self._connected()
            overdue = asyncio.get_running_loop().call_later(PATIENCE + (whim or 0), sever, conn)
            for keys in parts:
                ids += await self._part(conn, batch, keys, savepoint=savepoints)
            if whim is None:
                await conn.rollback()
                self._places = before
                tally.rolled_back += len(ids)
                return None
            await asyncio.sleep(whim)
            committing = True
            await conn.commit()
        except (*LOST, TimeoutError, psycopg.Error) as error:
            load.tally.errors[type(error).__name__] += 1
            await self.close()
            self._places = before
            if committing:
                # It may come true yet, and later than what we say next: so no key may be used again.
                load.tally.unknown += 1
                self._epoch += 1
                self._places = {}
            await asyncio.sleep(self._dice.uniform(0.05, 0.2))
            return None
        finally:
            if overdue is not None:
                overdue.cancel()
        if ids:
            load.tally.acknowledged[batch] = len(ids)
        tally.events += len(ids)
        return ids

    async def _part(
        self, conn: psycopg.AsyncConnection[Any], batch: int, keys: Sequence[str], *, savepoint: bool
    ) -> list[int]:
        back = savepoint and self._dice.random() < 0.4
        before = dict(self._places)
        if savepoint:
            await conn.execute("SAVEPOINT part")
        places = [self._place(key) for key in keys]
        events = [published.new({"n": n}, key=key) for key, n in zip(keys, places, strict=True)]
        ids = [await app.publish(conn, events[0])] if len(events) == 1 else await app.publish_many(conn, events)
        await conn.execute(_PROMISE, [batch, ids, list(keys), places])
        if back:
            await conn.execute("ROLLBACK TO SAVEPOINT part")
            self._places = before
            self._publisher.tally.rolled_back += len(ids)
            return []
        if savepoint:
            await conn.execute("RELEASE SAVEPOINT part")
        return ids

    def _place(self, key: str) -> int:
        place = self._places[key] = self._places.get(key, 0) + 1
        return place

    async def _connected(self) -> psycopg.AsyncConnection[Any]:
        if self._conn is None or self._conn.closed:
            async with asyncio.timeout(PATIENCE):
                params = watched(
                    conninfo_to_dict(self._publisher.load.url) | {"application_name": "publisher"}, PATIENCE
                )
                self._conn = await psycopg.AsyncConnection.connect(make_conninfo(**params), prepare_threshold=None)
        return self._conn
