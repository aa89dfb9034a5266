"""How long a fleet takes, once a fault is healed, until nothing is left of it."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg

from labs.chaos import application
from labs.chaos.broker import UNANSWERED
from labs.chaos.producer import Promised
from labs.chaos.ticks import PREFIX

if TYPE_CHECKING:
    from labs.chaos.fault import Site

LOOK_EVERY = 0.05
# A fleet that has not recovered by then, in seconds, never will.
LIMIT = 60.0
_NO_EVENT = "an event has not arrived"

# Recovered: every live replica has sent a heartbeat since, a job that was enqueued since is done, an event that was
# published since has arrived, and no job is held by a worker that is gone or with an expired lease. A tick may
# end at any time: what it had then waits for the end of its lease.
_LOOK = """
    SELECT (SELECT count(*) FROM holdfast.worker WHERE name = ANY (%(names)s) AND heartbeat_at > %(since)s),
        EXISTS (SELECT FROM holdfast.job_history WHERE id = %(probe)s),
        (SELECT count(*) FROM holdfast.job WHERE status = 'processing' AND (locked_until < now() OR locked_by <> ALL (
            ARRAY(SELECT id FROM holdfast.worker WHERE name = ANY (%(names)s) OR starts_with(name, %(ticks)s)))))
"""
_PROBES = """
    SELECT j.id, j.status, j.attempt, w.name, j.locked_until - clock_timestamp()
    FROM holdfast.job j LEFT JOIN holdfast.worker w ON w.id = j.locked_by WHERE j.kind = 'probe' ORDER BY j.id LIMIT 20
"""


@dataclass(frozen=True, slots=True)
class Recovery:
    """A fault, and how long the recovery took."""

    faults: tuple[str, ...]
    begun: float
    """Seconds after the start of the run."""
    healed: float
    seconds: float
    bound: float
    missing: str = ""
    """The conditions that were not met when the bound had passed."""
    last: str = ""
    """The condition that was met last."""

    @property
    def name(self) -> str:
        return " + ".join(self.faults)


async def recover(site: Site, faults: tuple[str, ...], begun: float) -> Recovery:
    """Wait until the fleet has recovered from what was healed just now."""
    healed = time.monotonic()
    missing = last = ""
    seen = None
    async with AsyncExitStack() as stack:
        probe = asyncio.create_task(site.load.promise(Promised(application.probe.new().options(priority=0), "probe")))
        stack.callback(probe.cancel)
        saying = asyncio.create_task(_say(site))
        stack.callback(saying.cancel)
        conn = since = None
        while seen != "" and time.monotonic() - healed < LIMIT:
            if seen is not None:
                await asyncio.sleep(LOOK_EVERY)
            try:
                if conn is None:
                    conn = await stack.enter_async_context(await site.ground.admin())
                if since is None:
                    since = (await (await conn.execute("SELECT clock_timestamp()")).fetchone() or (None,))[0]
                seen = await _look(site, conn, since, probe) or await _listen(site, saying)
            except psycopg.Error as error:
                conn, seen = None, f"the server does not answer: {error}"
            last = seen or last
            if seen and not missing and time.monotonic() - healed > site.pace.bound:
                missing = seen
                if conn is not None:
                    await _explain(site, conn, since, missing)
    return Recovery(
        faults, begun - site.begun, healed - site.begun, time.monotonic() - healed, site.pace.bound, missing, last
    )


async def _look(
    site: Site, conn: psycopg.AsyncConnection[tuple[object, ...]], since: object, probe: asyncio.Task[list[int]]
) -> str:
    """Say what is still missing."""
    names = [replica.name for replica in site.fleet.working]
    done = probe.result()[0] if probe.done() else 0
    found = await (
        await conn.execute(_LOOK, {"names": names, "since": since, "probe": done, "ticks": PREFIX})
    ).fetchone()
    assert found is not None
    beating, probed, stuck = found
    missing = []
    if beating != len(names):
        missing.append(f"{beating} of {len(names)} replicas sent a heartbeat")
    if not probe.done():
        missing.append("nothing can be enqueued")
    elif not probed:
        missing.append("the probe waits")
    if stuck:
        missing.append(f"{stuck} jobs held by dead workers or with expired leases")
    return ", ".join(missing)


async def _explain(site: Site, conn: psycopg.AsyncConnection[tuple[object, ...]], since: object, missing: str) -> None:
    """Log the holders of the probes, and the stacks of replicas that may be the cause, while they still exist."""
    for line in await (await conn.execute(_PROBES)).fetchall():
        site.say("probe {}: {}, attempt {}, held by {} for another {}".format(*line))
    query = "SELECT name FROM holdfast.worker WHERE heartbeat_at > %s"
    beating = {name for (name,) in await (await conn.execute(query, [since])).fetchall()}
    for replica in site.fleet.working:
        if replica.name not in beating or missing == _NO_EVENT:
            site.say(f"stacks of {replica.name}:\n{await replica.explain()}")
    site.say(f"the pooler's state:\n{await site.ground.pooler.explain()}")


async def _say(site: Site) -> str:
    """Publish an event, once a commit was acknowledged, and answer with its key, which no other has."""
    voice = site.publisher.voice()
    while True:
        key = f"recovery-{site.load.batch()}"
        if await voice.commit([[key]]) is not None:
            await voice.close()
            return key


async def _listen(site: Site, saying: asyncio.Task[str]) -> str:
    """Say what is still missing of the events."""
    if not saying.done():
        return "nothing can be published"
    try:
        return "" if await site.ground.broker.has(saying.result()) else _NO_EVENT
    except UNANSWERED as error:
        return f"the broker does not answer: {error}"
