"""Plays with a crowd: one ending concerns thousands of jobs, and no other may wait for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labs.chaos import application
from labs.chaos.breaks import kinds
from labs.chaos.breaks.scene import Play
from labs.chaos.pace import Pace
from labs.chaos.producer import Promised

if TYPE_CHECKING:
    from labs.chaos.breaks.scene import Scene

# Endings that no crowd delays are written within this time, the runs and their start included, in seconds.
AT_ONCE = 3.0
INNOCENT = 20
CROWD = 100_000
IN_KEY = 3_000
KEY = "crowded"
# Of a kind without a handler: released or not, they stay until they are deleted.
_WAIT = """
    SELECT count(holdfast.enqueue('break.crowd', order_key => %s, blockers => ARRAY[%s::bigint]))
    FROM generate_series(1, %s)
"""
# Copies of one that waits: enqueuing so many takes a minute.
_COPY = f"""
    WITH copies AS (
        INSERT INTO holdfast.job SELECT (json_populate_record(j, json_build_object('id', n))).*
        FROM holdfast.job j, generate_series(1000001, 1000000 + {CROWD}) AS n WHERE j.kind = 'break.crowd' RETURNING id)
    INSERT INTO holdfast.blocker (job_id, chain_id, ordinal) SELECT id, %s, 1 FROM copies
"""
_DELETE = """
    WITH gone AS (DELETE FROM holdfast.job WHERE kind = 'break.crowd' OR order_key = %s RETURNING id)
    DELETE FROM holdfast.blocker b USING gone g WHERE b.job_id = g.id
"""


async def _others_end(scene: Scene) -> None:
    jobs = await scene.promise(*[Promised(application.plain.new(0.3), "plain") for _ in range(INNOCENT)])
    written = f"SELECT count(*) = {INNOCENT} FROM holdfast.job_history WHERE id = ANY (%s)"
    await scene.until(written, jobs, seconds=AT_ONCE)


async def crowded_chain(scene: Scene) -> None:
    """End a chain for which thousands of jobs wait; others end meanwhile."""
    await scene.conn.execute("SELECT pg_advisory_lock(1)")
    (chain,) = await scene.promise(Promised(kinds.gated.new(1), "plain"))
    await scene.conn.execute(_WAIT, [None, chain, 1])
    await scene.conn.execute(_COPY, [chain])
    await scene.conn.execute("SELECT pg_advisory_unlock(1)")
    await _others_end(scene)
    await scene.ended(chain, seconds=10)
    await scene.conn.execute(_DELETE, [KEY])


async def crowded_key(scene: Scene) -> None:
    """Continue into an order key in which thousands wait for another chain; others end meanwhile."""
    await scene.conn.execute("SELECT pg_advisory_lock(1), pg_advisory_lock(2)")
    going, blocker = await scene.promise(
        Promised(kinds.gated.new(1, KEY), "plain"), Promised(kinds.gated.new(2), "plain")
    )
    await scene.conn.execute(_WAIT, [KEY, blocker, IN_KEY])
    await scene.conn.execute("SELECT pg_advisory_unlock(1)")
    await _others_end(scene)
    await scene.ended(going, seconds=10)
    await scene.conn.execute(_DELETE, [KEY])
    await scene.conn.execute("SELECT pg_advisory_unlock(2)")


SLOW = Pace(lease=4.0, heartbeat=0.8, reap=0.4)
CROWDED_CHAIN = Play(
    "thousands of jobs wait for one chain", crowded_chain, replicas=1, pace=SLOW, well=True, patience=20
)
CROWDED_KEY = Play(
    "thousands of jobs wait in one order key", crowded_key, replicas=1, pace=SLOW, well=True, patience=20
)
