"""The library is upgraded while it works: for a while the code of two versions runs side by side."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import psycopg

from labs.chaos import upgrade
from labs.chaos.fault import Fault
from labs.chaos.ground import USER

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncGenerator

    from labs.chaos.fault import Site
    from labs.chaos.fleet import Replica

REFUSED = 1


@asynccontextmanager
async def migrated_first(site: Site, dice: random.Random) -> AsyncGenerator[None, None]:
    """Migrate, and replace the replicas one by one; one of the old ones crashes meanwhile and comes back."""
    version = await asyncio.to_thread(_next, site)
    await asyncio.to_thread(_migrate, site, version)
    first, *rest = dice.sample(site.fleet.replicas, len(site.fleet.replicas))
    await _replace(first, version)
    if rest:
        rest[-1].kill()
        await rest[-1].restart()
    await asyncio.sleep(dice.uniform(0.5, 2))
    yield
    for replica in rest:
        await _replace(replica, version)


@asynccontextmanager
async def replica_first(site: Site, dice: random.Random) -> AsyncGenerator[None, None]:
    """Start a replica of the new version too early: it refuses, and says why, until the schema is there."""
    version = await asyncio.to_thread(_next, site)
    early, *rest = dice.sample(site.fleet.replicas, len(site.fleet.replicas))
    with site.fleet.expecting(REFUSED):
        await _replace(early, version)
        output = early.log()
        if early.ready or "SchemaOutdated" not in output:
            raise AssertionError(f"a replica that came before its schema did not refuse clearly: {output}")
        await asyncio.sleep(dice.uniform(0.5, 1.5))
        await asyncio.to_thread(_migrate, site, version)
        yield
        await _works(early)
    for replica in rest:
        await _replace(replica, version)


async def _replace(replica: Replica, version: int) -> None:
    await replica.terminate()
    await replica.restart(**{upgrade.VARIABLE: str(version)})


async def _works(replica: Replica, seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not replica.ready:  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.02)


def _next(site: Site) -> int:
    with psycopg.connect(site.ground.admin_url(), autocommit=True) as conn:
        row = conn.execute("SELECT count(*) FROM holdfast.migration").fetchone()
    assert row is not None
    return int(row[0]) - len(upgrade.TODAY) + 1


def _migrate(site: Site, version: int) -> None:
    # As the owner of the schema, straight to the server.
    with psycopg.connect(site.ground.admin_url(), user=USER, autocommit=True) as conn:
        upgrade.migrate(conn, version)


FAULTS = (
    Fault("upgrade, schema first", migrated_first, alone=True),
    Fault("upgrade, replica first", replica_first, alone=True),
)
