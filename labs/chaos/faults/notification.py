"""Notifications that are not true, from a login that may do nothing but connect."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import psycopg

from holdfast._engine.link import LOST
from labs.chaos.fault import Fault, Site
from labs.chaos.ground import DATABASE

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncGenerator

FORGER = "forger"
_CREATE = f"""
    DO $$ BEGIN
        CREATE ROLE {FORGER} LOGIN;
    EXCEPTION WHEN duplicate_object THEN
        NULL;
    END $$
"""
# An attacker could guess these: ids and tokens are consecutive numbers. Here every guess is right.
_RUNNING = "SELECT id, lock_token, locked_by FROM holdfast.job WHERE status = 'processing' LIMIT 200"
_CHANNELS = """
    SELECT 'holdfast' UNION ALL SELECT 'holdfast_' || id FROM holdfast.worker WHERE stopped_at IS NULL
    UNION ALL SELECT 'holdfast_watch_' || listener FROM holdfast.watcher
"""
_REASONS = ("cancelled", "already_completed", "not_found", "taken_by_another_worker", "error", "rubbish")
_RUBBISH = (
    "",
    "lost",
    "lost 1",
    "lost x y z",
    "ended",
    "ended -1",
    "cancelled 1 1",
    "plain",
    "holdfast.event",
    "x" * 7000,
)


@asynccontextmanager
async def forged(site: Site, dice: random.Random) -> AsyncGenerator[None, None]:
    """Tell every worker that what it runs is cancelled, lost or done, and much else besides. Nobody believes it."""
    until = time.monotonic() + dice.uniform(0.5, 2)
    try:
        while time.monotonic() < until:
            await forge(site, dice)
            await asyncio.sleep(0.05)
    except LOST:
        site.say("left out: the server does not answer, so no notification can be sent")
    yield


async def forge(site: Site, dice: random.Random) -> None:
    """Send one word of each sort to everybody who listens."""
    async with await site.ground.admin() as conn:
        await conn.execute(_CREATE)
        running = await (await conn.execute(_RUNNING)).fetchall()
        channels = [channel for (channel,) in await (await conn.execute(_CHANNELS)).fetchall()]
    notifications = [(channel, dice.choice(_RUBBISH)) for channel in channels]
    notifications += [
        (f"holdfast_{worker}", f"lost {job} {token} {dice.choice(_REASONS)}") for job, token, worker in running
    ]
    # One name for each worker: it looks at more than it has slots for itself.
    workers = [channel for channel in channels if channel != "holdfast"]
    notifications += [(worker, f"{word} {running[0][0]}") for worker in workers if running for word in ("job", "late")]
    notifications += [(channel, f"ended {job}") for channel in channels for job, _, _ in running[:20]]
    url = site.ground.primary.url(DATABASE)
    async with await psycopg.AsyncConnection.connect(url, user=FORGER, autocommit=True) as forger:
        await forger.execute(
            "SELECT pg_notify(channel, words) FROM unnest(%s::text[], %s::text[]) AS s (channel, words)",
            [[channel for channel, _ in notifications], [words for _, words in notifications]],
        )


FAULTS = (Fault("forged notifications", forged),)
