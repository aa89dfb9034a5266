"""Plays for the ways that most jobs take: named and plain claims, the record of a sleep, and claims ahead.

Their workers serve one queue, since plain claims are made from one.
"""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast import OrderKey
from labs.chaos import application, trouble
from labs.chaos.breaks import kinds
from labs.chaos.breaks.scene import Play
from labs.chaos.pace import Pace
from labs.chaos.prober import Probe
from labs.chaos.producer import Promised

if TYPE_CHECKING:
    from labs.chaos.breaks.scene import Scene

SLOTS = application.QUEUES["plain"]
# Seconds of a handler, so that a backlog lasts however fast the machine is.
EACH = 0.02
BACKLOG = 2_500
EXPIRES = 1.0
# After a pause, claims that were under way have ended by then, in seconds; on a busy machine a few are later.
UNDER_WAY, LATE_CLAIMS = 0.3, 2
# Of a sleep that began just before, several seconds are left: its worker polls no earlier.
JUST_ASLEEP = """
    SELECT EXISTS (SELECT FROM holdfast.sleeper s JOIN holdfast.worker w ON w.id = s.worker_id
        WHERE w.name = %s AND s.until BETWEEN now() + interval '8 s' AND now() + interval '9.7 s')
"""
LONG = 5.0


def _backlog(jobs: int = BACKLOG) -> list[Promised]:
    return [Promised(application.plain.new(EACH), "plain")] * jobs


async def keys_in_a_backlog(scene: Scene) -> None:
    """Let the heads of many keys fail once, with other jobs between those of a key.

    Each head is due again behind the backlog. A whole claim that meets the next of its key parks it: not in all keys.
    """
    jobs: list[Promised] = []
    for group in range(12):
        jobs += [*_in_keys(group, 1), *_backlog(30), *_in_keys(group, 2), *_backlog(70)]
    await scene.promise(*jobs)


def _in_keys(group: int, place: int) -> list[Promised]:
    job, keys = application.keyed.new(0.1, stumbles=place == 1), [f"key.{group}.{n}" for n in range(4)]
    return [Promised(job.options(queue="plain", order_key=OrderKey(key)), "keyed", place, key) for key in keys]


async def pause_in_a_backlog(scene: Scene) -> None:
    """Pause the queue of a backlog; the workers read that only with their next heartbeat."""
    await scene.promise(*_backlog())
    await scene.until("SELECT count(*) >= 100 FROM holdfast.job_history")
    await scene.conn.execute("INSERT INTO holdfast.queue (name, paused) VALUES ('plain', true)")
    await asyncio.sleep(UNDER_WAY)
    paused = await scene.value("SELECT last_value FROM holdfast.token")
    await asyncio.sleep(1.0)
    claims = await scene.value("SELECT last_value FROM holdfast.token") - paused
    if claims > LATE_CLAIMS:
        scene.note("claimed while paused", f"{claims} claims within a second")
    await scene.conn.execute("UPDATE holdfast.queue SET paused = false")


async def poison_in_a_backlog(scene: Scene) -> None:
    """Let an urgent job kill its process every time, beside other urgent ones; all workers have claimed such ones."""
    killer, other = trouble.poisons, application.plain
    known = [killer.new(harmless=True), other.new()] * SLOTS * len(scene.replicas)
    await scene.promise(
        *[Promised(job.options(queue="plain", priority=0), "plain") for job in known],
        *[Promised(other.new(5 * EACH), "plain")] * (2 * BACKLOG),
    )
    await scene.until("SELECT count(*) >= 500 FROM holdfast.job_history")
    with scene.site.fleet.expecting(trouble.EXIT_CODE):
        poison = killer.new().options(queue="plain", priority=0, max_attempts=4)
        jobs = await scene.promise(
            Promised(poison, "trouble", key="crashed_alone", expected="failed"),
            *[Promised(other.new(1.0).options(priority=0), "plain")] * (2 * SLOTS),
        )
        await scene.ended(*jobs, seconds=120)
    # Attempts lost in a trial do not count, however many there are. Of a sound build there is one at most: then a job
    # runs alone.
    again = await scene.value(
        "SELECT count(*) FROM (SELECT job_id FROM holdfast.attempt WHERE error_code = 'lost_in_trial'"
        " AND job_id = ANY (%s) GROUP BY job_id HAVING count(*) > 1) AS t",
        jobs[1:],
    )
    if again:
        scene.note("innocent jobs harmed", f"{again} jobs ran beside the one that kills its process, again and again")


async def expired_in_a_backlog(scene: Scene) -> None:
    """Let jobs expire behind a backlog."""
    late = application.plain.new().options(expires=timedelta(seconds=EXPIRES))
    await scene.promise(*_backlog(), *[Promised(late, "plain", expected="cancelled")] * 40)


async def crowd_in_a_backlog(scene: Scene) -> None:
    """Let several replicas claim from one backlog."""
    await scene.promise(*[Promised(application.plain.new(), "plain") for _ in range(6_000)])


async def full_beside_idle(scene: Scene) -> None:
    """Fill all workers but one, and enqueue for that one. Records of the others, if there are any, are the newest."""
    *full, idle = scene.replicas
    idle.kill()
    await scene.conn.execute("SELECT pg_advisory_lock(1)")
    job = kinds.gated.new(1).options(queue="probe")
    jobs = await scene.promise(*[Promised(job, "plain")] * (application.QUEUES["probe"] * len(full)))
    await scene.until("SELECT count(locked_by) = %s FROM holdfast.job", len(jobs), seconds=20)
    await idle.restart()
    await scene.until(JUST_ASLEEP, idle.name, seconds=20)
    await scene.conn.execute(
        "UPDATE holdfast.sleeper SET until = now() + interval '10 s'"
        " WHERE worker_id IN (SELECT locked_by FROM holdfast.job)"
    )
    await scene.probe_every(0.2, times=8)
    await scene.ended(*[probe.job for probe in scene.probes], seconds=2 * LONG)
    await scene.conn.execute("SELECT pg_advisory_unlock(1)")


async def full_beside_late(scene: Scene) -> None:
    """Fill one worker while another stands still, enqueue more, and let the other go on."""
    first, second = scene.replicas
    second.stop()
    jobs = await scene.promise(*[Promised(application.plain.new(LONG), "plain") for _ in range(SLOTS)])
    await scene.until(
        "SELECT count(*) = %s FROM holdfast.job j JOIN holdfast.worker w ON w.id = j.locked_by WHERE w.name = %s",
        len(jobs),
        first.name,
    )
    more = await scene.promise(*[Promised(application.plain.new(LONG), "plain") for _ in range(SLOTS // 2)])
    # A worker that holds more than it can start has taken them by then.
    await asyncio.sleep(1.0)
    scene.probes += [Probe(job, "at once", time.monotonic()) for job in more]
    second.cont()
    await scene.ended(*more, seconds=2 * LONG)


SERVED = {kinds.ONLY: "plain"}
KEYS = Play("heads of keys fail in a backlog", keys_in_a_backlog, replicas=1, environment=SERVED, patience=20)
PAUSED = Play(
    "the queue of a backlog is paused",
    pause_in_a_backlog,
    replicas=1,
    pace=Pace(lease=24.0, heartbeat=6.0, idle=1.0),
    environment=SERVED,
    patience=30,
)
POISON = Play("a job in a backlog kills its process", poison_in_a_backlog, replicas=3, environment=SERVED, patience=30)
EXPIRED = Play("jobs expire behind a backlog", expired_in_a_backlog, replicas=1, environment=SERVED, patience=20)
CROWD = Play("replicas claim from one backlog", crowd_in_a_backlog, replicas=3, well=True, environment=SERVED)
BESIDE_IDLE = Play(
    "all workers but one are full",
    full_beside_idle,
    replicas=3,
    pace=Pace(idle=16.0),
    well=True,
    environment={kinds.ONLY: "probe"},
)
BESIDE_LATE = Play("a worker is full, and another late", full_beside_late, environment=SERVED, patience=12)
