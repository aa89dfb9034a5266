"""Faults of PostgreSQL."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg

from labs.chaos.fault import Fault, Site
from labs.chaos.ground import DATABASE, USER

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncGenerator
    from typing import Literal

# Connections opened at a time until none is left.
AT_ONCE = 20


@asynccontextmanager
async def stopped(mode: Literal["fast", "immediate"], site: Site, dice: random.Random) -> AsyncGenerator[None, None]:
    await site.ground.primary.shut(mode)
    await asyncio.sleep(dice.uniform(0.2, 3))
    yield
    await site.ground.primary.open()


@asynccontextmanager
async def killed(site: Site, dice: random.Random) -> AsyncGenerator[None, None]:
    await asyncio.to_thread(site.ground.primary.crash)
    await asyncio.sleep(dice.uniform(0.2, 3))
    yield
    await site.ground.primary.open()


@asynccontextmanager
async def terminated(site: Site, dice: random.Random) -> AsyncGenerator[None, None]:
    """End every session, or each with an even chance, whatever it is doing."""
    await terminate(site, share=dice.choice([0.5, 1]))
    yield


@asynccontextmanager
async def exhausted(site: Site, dice: random.Random) -> AsyncGenerator[None, None]:
    """Let others take every connection there is; workers that lose theirs meanwhile get none."""
    async with AsyncExitStack() as stack:
        if dice.random() < 0.5:
            await terminate(site, share=dice.choice([0.3, 1]))
        while any(await asyncio.gather(*(_taken(site, stack) for _ in range(AT_ONCE)))):
            pass
        await asyncio.sleep(dice.uniform(0.5, 4))
        yield


async def terminate(site: Site, share: float) -> None:
    async with await site.ground.admin() as conn:
        await conn.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s AND random() < %s", [USER, share]
        )


async def _taken(site: Site, stack: AsyncExitStack) -> bool:
    """Take one more connection, and say whether there was one."""
    try:
        conn: psycopg.AsyncConnection[Any] = await psycopg.AsyncConnection.connect(
            site.ground.primary.url(DATABASE), user=USER, connect_timeout=5, application_name="others"
        )
    except psycopg.OperationalError:
        return False
    stack.push_async_callback(conn.close)
    return True


FAULTS = (
    Fault("PostgreSQL stopped fast", partial(stopped, "fast"), alone=True),
    Fault("PostgreSQL stopped immediately", partial(stopped, "immediate"), alone=True),
    Fault("PostgreSQL killed", killed, alone=True),
    Fault("backends terminated", terminated),
    Fault("connections exhausted", exhausted),
)
