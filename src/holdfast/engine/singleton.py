"""The lock of a singleton runner: one transaction, open and idle on a connection of its own, and watched."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import psycopg

from holdfast import drivers
from holdfast.engine.link import LOST, connect, severed_after
from holdfast.logs import Log
from holdfast.store.schedule import keep_singleton, take_singleton
from holdfast.store.statement import pin_names

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

log = Log(__name__)


@asynccontextmanager
async def singleton(url: str, name: str, on_lost: Callable[[], None], *, seconds: float) -> AsyncIterator[bool]:
    """Hold the lock within the block; False: somebody else has it. `on_lost` is called when the connection dies.

    Idle in a READ COMMITTED transaction that has written nothing, the session holds neither a snapshot nor a
    transaction id: vacuum does not notice it, however long the runner runs.
    """
    async with asyncio.timeout(seconds):
        conn = await connect(url, autocommit=False, prepare_threshold=None)
    try:
        await conn.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
        with severed_after(conn, seconds):
            await drivers.run(conn, pin_names(local=True))
            held = await drivers.run(conn, take_singleton(name))
            await conn.execute(keep_singleton().encode())
        if not held:
            yield False
            return
        watch = asyncio.create_task(_watch(conn, name, on_lost))
        try:
            yield True
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
            with suppress(*LOST, TimeoutError), severed_after(conn, seconds):
                await conn.rollback()
    finally:
        await conn.close()


async def _watch(conn: psycopg.AsyncConnection[object], name: str, on_lost: Callable[[], None]) -> None:
    """Wait for the end of a connection on which nothing is ever said."""
    try:
        async for _ in conn.notifies():
            pass
    except Exception as exc:  # noqa: BLE001 - whatever it is, the lock may be gone
        log.warning("the lock of a runner is gone", extra={"runner": name, "error": type(exc).__name__})
    on_lost()
