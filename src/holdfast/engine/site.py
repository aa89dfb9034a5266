"""A database as runners see it: a link for short statements, and the id of a worker row to sign with."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from psycopg.conninfo import conninfo_to_dict

from holdfast.engine.connections import check_isolation
from holdfast.engine.link import LOST, Link
from holdfast.logs import Log
from holdfast.store.schema import check_async
from holdfast.store.worker import register_worker, stop_worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

log = Log(__name__)


# A statement that takes long may take this long, in seconds.
APART_SECONDS = 60.0


class Site:
    """The link is borrowed from the one who writes endings: nothing that takes long is run on it."""

    def __init__(self, url: str, link: Link, worker: Callable[[], int]) -> None:
        """`worker()`: the id of the row, 0 while the database has never answered."""
        self.url = url
        self.link = link
        self._worker = worker
        self._apart: set[Link] = set()

    @asynccontextmanager
    async def apart(self) -> AsyncIterator[Link]:
        """Yield a link with a connection of its own, for what may take long; it is closed at the end of the block."""
        async with Link(self.url, timeout=APART_SECONDS) as link:
            self._apart.add(link)
            try:
                yield link
            finally:
                self._apart.discard(link)

    def hurry(self, seconds: float) -> None:
        """Let no statement take longer than this from now on, those under way included."""
        for link in (self.link, *self._apart):
            link.hurry(seconds)

    @property
    def worker(self) -> int:
        return self._worker()

    @property
    def name(self) -> str:
        """Which database this is, for people."""
        return str(conninfo_to_dict(self.url).get("dbname") or "")


@asynccontextmanager
async def open_site(url: str, *, name: str, seconds: float) -> AsyncIterator[Site]:
    """Connect, and sign in as a worker of our own; a statement may take so many seconds."""
    async with Link(url, timeout=seconds) as link:
        await link.run_with(check_async)
        await link.run_with(check_isolation)
        worker = await link.run(register_worker(name, queues=[], kinds=[]))
        try:
            yield Site(url, link, lambda: worker)
        finally:
            try:
                await link.run(stop_worker(worker, "stopped"))
            except (*LOST, TimeoutError):
                log.warning("could not record that the worker stopped")
