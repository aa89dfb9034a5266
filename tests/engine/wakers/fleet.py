"""Workers whose wake-ups come over a broker, and what can be seen of them."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self

import psycopg

from holdfast import Holdfast, Job
from tests.kit.pace import MINUTE
from tests.kit.waiting import until

if TYPE_CHECKING:
    from holdfast._engine.wake.carriers import Carrier
    from holdfast._engine.worker import Worker

# A record of a sleeper lasts ten seconds, so that nobody sleeps longer. What is picked up so soon, while somebody has
# a longer sleep before him, was woken up for.
AT_ONCE = 4.0


class Fleet:
    """One application, its workers, and a connection of a producer."""

    def __init__(self, database: str, carrier: Carrier) -> None:
        self.app = Holdfast(database, wake=carrier)
        self.started: asyncio.Queue[int] = asyncio.Queue()
        self.aborted: asyncio.Queue[str] = asyncio.Queue()
        self._database = database
        self._stack = AsyncExitStack()

        @self.app.job("note")
        async def note(job: Job[None], number: int) -> None:
            self.started.put_nowait(number)

        @self.app.job("linger")
        async def linger(job: Job[None]) -> None:
            self.started.put_nowait(-1)
            try:
                await asyncio.Event().wait()
            finally:
                self.aborted.put_nowait(str(job.signal.reason))

        self.note = note
        self.linger = linger

    async def __aenter__(self) -> Self:
        self.conn = await psycopg.AsyncConnection.connect(self._database, autocommit=True, prepare_threshold=None)
        await self._stack.enter_async_context(self.conn)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def start(self, name: str, *queues: str, **settings: Any) -> Worker:
        """Start a worker that is stopped with the fleet."""
        worker = self.app.worker(id=name, queues=dict.fromkeys(queues or ["default"], 2), **{**MINUTE, **settings})
        return await self._stack.enter_async_context(worker)

    async def pickup(self, number: int = 0, queue: str = "default") -> float:
        """Enqueue; return how many seconds after the commit the handler started."""
        await self.app.enqueue(self.conn, self.note.new(number).options(queue=queue))
        committed = time.monotonic()
        async with asyncio.timeout(30):
            assert await self.started.get() == number
        return time.monotonic() - committed

    async def woken(self, *queues: str) -> None:
        """Show that jobs of these queues are picked up by wake-up."""
        for number, queue in enumerate((queues or ("default",)) * 4):
            await self.asleep(queue)
            assert await self.pickup(number, queue) < AT_ONCE

    async def asleep(self, queue: str = "default") -> None:
        """Return when a worker sleeps that will not wake up soon by itself."""
        fresh = "FROM holdfast.sleeper WHERE until > now() + interval '5 seconds' AND queue = %s"
        await until(lambda: self._count(fresh, queue))

    async def listeners(self) -> int:
        """Count the connections that listen in this database."""
        return await self._count("FROM pg_stat_activity WHERE datname = current_database() AND query ~ '^LISTEN'")

    async def _count(self, rest: str, *params: str) -> int:
        cursor = await self.conn.execute("SELECT count(*) " + rest, params)
        row = await cursor.fetchone()
        assert row is not None
        return int(row[0])


def listening(worker: Worker) -> bool:
    """Tell whether the worker relies on being woken."""
    pipeline = worker.pipelines[0]
    return pipeline.serving is not None and pipeline.session.listening.is_set()
