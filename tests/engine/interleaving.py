"""Enqueue, commit and falling asleep, in every order that chance brings about."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, Any

import psycopg

from holdfast._drivers import run
from holdfast._store.enqueue import enqueue_job, enqueue_jobs

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast import NewJob

LEVELS = (
    psycopg.IsolationLevel.READ_COMMITTED,
    psycopg.IsolationLevel.REPEATABLE_READ,
    psycopg.IsolationLevel.SERIALIZABLE,
)


class Producer:
    """Enqueues one job at a time, each in a transaction of its own making, and waits until it ran."""

    def __init__(self, url: str, new: Callable[[], NewJob[Any]], ran: set[int], seed: int) -> None:
        self._url = url
        self._new = new
        self._ran = ran
        self._choice = random.Random(seed)
        self.late: list[tuple[str, float]] = []
        """What started later than a wake-up takes."""
        self.count = 0

    async def produce(self, rounds: int, *, level: psycopg.IsolationLevel, patience: float) -> None:
        conn = await psycopg.AsyncConnection.connect(self._url)
        await conn.set_isolation_level(level)
        async with conn:
            for _ in range(rounds):
                await self._dawdle()
                how, job = await self._enqueue(conn)
                committed = time.monotonic()
                while job not in self._ran:
                    if time.monotonic() - committed > patience:
                        self.late.append((f"{level.name}: {how}", time.monotonic() - committed))
                        return
                    await asyncio.sleep(0.001)
                self.count += 1

    async def _enqueue(self, conn: psycopg.AsyncConnection[Any]) -> tuple[str, int]:
        """Begin, perhaps look around, enqueue, perhaps dawdle, commit: at every step a sleeper may lie down."""
        early, single, late = (self._choice.random() < 0.5 for _ in range(3))
        if early:
            await conn.execute("SELECT 1")
            await self._dawdle()
        if single:
            job = (await run(conn, enqueue_job(self._new()))).id
        else:
            job = (await run(conn, enqueue_jobs([self._new()])))[0].id
        if late:
            await self._dawdle()
        await conn.commit()
        return f"early={early} single={single} late={late}", job

    async def _dawdle(self) -> None:
        """Most often for about as long as it takes to fall asleep; now and then until the sleep is deep."""
        await asyncio.sleep(self._choice.choice([0, 0.001, 0.003, 0.006, 0.012]) * self._choice.random() * 2)
