"""A worker's row is gone, or another's, as after a restore from a backup; the worker goes on."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from holdfast._drivers import run
from holdfast._engine.link import LOST
from holdfast._store.finish import complete_job
from holdfast._store.lease import Held
from labs.chaos import application
from labs.chaos.application import app
from labs.chaos.fault import Fault
from labs.chaos.faults.process import some_replica
from labs.chaos.faults.server import terminate

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncGenerator

    from labs.chaos.fault import Site

RUNNING = 5
"""So many jobs has the other one under way."""
ELSEWHERE = "elsewhere"
"""The queue that only it serves."""
# Their lease is long enough that they are not taken away meanwhile.
LEASE = "1 minute"

_DELETE = """
    WITH deleted AS (DELETE FROM holdfast.worker WHERE name = %s RETURNING *)
    INSERT INTO chaos.gone (id, name, started_at, heartbeat_at, stopped_at, versions)
    SELECT id, name, started_at, heartbeat_at, stopped_at, versions FROM deleted RETURNING id
"""
_GIVE = """
    INSERT INTO holdfast.worker (id, name, queues) OVERRIDING SYSTEM VALUE VALUES (%s, 'another', %s)
"""
_HOLD = f"""
    UPDATE holdfast.job SET status = 'processing', attempt = 1, locked_by = %s, lock_token = %s,
        locked_until = now() + interval '{LEASE}' WHERE id = ANY (%s)
"""
_PROMISE = """
    INSERT INTO chaos.promise (job, batch, n, workload, expected)
    SELECT job, %s, 0, 'held', 'completed' FROM unnest(%s::bigint[]) AS p (job)
"""


class Other(NamedTuple):
    """Somebody who has a replica's id, and runs jobs under it."""

    worker: int
    token: int
    jobs: list[int]


@asynccontextmanager
async def deleted(site: Site, dice: random.Random) -> AsyncGenerator[None, None]:
    """Take the row of a working replica away. It registers anew at its next heartbeat."""
    replica = some_replica(site, dice)
    try:
        async with await site.ground.admin() as conn:
            await conn.execute(_DELETE, [replica.name])
    except LOST:
        site.say("left out: the server does not answer, and no row can be taken away")
    await asyncio.sleep(dice.uniform(0.5, 1.5))
    yield


@asynccontextmanager
async def given_away(site: Site, dice: random.Random) -> AsyncGenerator[None, None]:
    """Give a replica's id to another worker, and end every session: the replica looks for claims without an answer.

    It must not give back the jobs that the other worker runs.
    """
    other = await give_away(site, some_replica(site, dice).name)
    await terminate(site, share=1)
    await asyncio.sleep(3 * site.pace.heartbeat + dice.uniform(0.2, 1))
    await end(site, other)
    yield


async def give_away(site: Site, name: str) -> Other:
    """Give the id of this replica to another worker that runs jobs."""
    async with await site.ground.admin() as conn, conn.transaction():
        row = await (await conn.execute(_DELETE, [name])).fetchone()
        assert row is not None, f"{name} has no row"
        await conn.execute(_GIVE, [row[0], [ELSEWHERE]])
        handles = await app.enqueue_many(conn, [application.plain.new() for _ in range(RUNNING)])
        token = await (await conn.execute("SELECT nextval('holdfast.token')")).fetchone()
        assert token is not None
        other = Other(row[0], token[0], [handle.id for handle in handles])
        await conn.execute(_HOLD, [*other])
        batch = site.load.batch()
        await conn.execute(_PROMISE, [batch, other.jobs])
    site.load.tally.acknowledged[batch] = RUNNING
    site.load.tally.jobs += RUNNING
    return other


async def end(site: Site, other: Other) -> None:
    """Let the other complete what it runs, if that is still its own, and leave."""
    async with await site.ground.admin() as conn:
        for job in other.jobs:
            await run(conn, complete_job(other.worker, Held(job, other.token)))
        await conn.execute("DELETE FROM holdfast.worker WHERE id = %s AND name = 'another'", [other.worker])


FAULTS = (
    Fault("worker's row deleted", deleted),
    Fault("worker's row given to another", given_away, alone=True),
)
