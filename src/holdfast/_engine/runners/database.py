"""A database as runners use it: a link for short statements, and the id of the worker's row."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from holdfast._engine.address import database_of
from holdfast._engine.link import LOST, Link, check_isolation
from holdfast._engine.own_row import OwnRow
from holdfast._logs.log import Log
from holdfast._store.schema import check_async
from holdfast._store.worker import beat_worker, register_worker, stop_worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

log = Log(__name__)


# The limit for long statements, in seconds.
APART_SECONDS = 60.0
# Seconds between two heartbeats. A worker counts as dead after a minute without one.
BEAT_SECONDS = 15.0


class RunnerDatabase:
    """A database for runners. The finisher shares the link, so no long statement may run on it."""

    def __init__(self, url: str, link: Link, row: OwnRow, *, name: str) -> None:
        """`name`: that of the database, for people."""
        self.url = url
        self.name = name
        self.link = link
        self.row = row
        self._apart: set[Link] = set()

    @asynccontextmanager
    async def apart(self) -> AsyncIterator[Link]:
        """Yield a link with its own connection for long statements. It is closed at the end of the block."""
        async with Link(self.url, timeout=APART_SECONDS) as link:
            self._apart.add(link)
            try:
                yield link
            finally:
                self._apart.discard(link)

    def hurry(self, seconds: float) -> None:
        """Limit every statement to `seconds` from now on, including current ones."""
        for link in (self.link, *self._apart):
            link.hurry(seconds)

    @property
    def worker(self) -> int:
        """The id of the worker's row; 0 until the database has answered for the first time."""
        return self.row.id


@asynccontextmanager
async def open_runner_database(
    url: str, *, name: str, seconds: float, database: str | None = None
) -> AsyncIterator[RunnerDatabase]:
    """Connect, and register as a separate worker of this `name`. `seconds`: the limit of a statement.

    `database`: the name of the database, for people. Defaults to the one in its address.
    """
    async with Link(url, timeout=seconds) as link:
        await link.run_with(check_async)
        await link.run_with(check_isolation)
        worker = await link.run(register_worker(name, queues=[], kinds=[]))
        beat = asyncio.create_task(_beat(link, worker, min(BEAT_SECONDS, seconds / 4)))
        try:
            yield RunnerDatabase(url, link, OwnRow(worker), name=database or database_of(url))
        finally:
            beat.cancel()
            await asyncio.gather(beat, return_exceptions=True)
            try:
                await link.run(stop_worker(worker, "stopped"))
            except (*LOST, TimeoutError):
                log.warning("could not record that the worker stopped")


async def _beat(link: Link, worker: int, seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds)
        with suppress(*LOST, TimeoutError):
            await link.run(beat_worker(worker, {}))
