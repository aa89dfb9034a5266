"""One run: a cluster and a fleet under load, the loss of the leader, and what is found when all is over."""

from __future__ import annotations

import asyncio
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg

from labs.chaos.evidence import Evidence, gather, note_arrivals
from labs.chaos.fleet import Fleet
from labs.chaos.ground import USER, value
from labs.chaos.ha.caller import Callers
from labs.chaos.ha.cluster import Cluster
from labs.chaos.lab import delivered, drained
from labs.chaos.oracle import judge
from labs.chaos.pace import Pace
from labs.chaos.producer import Producer
from labs.chaos.publisher import Publisher

if TYPE_CHECKING:
    from labs.chaos.broker import Arrival
    from labs.chaos.ha.cluster import Way
    from labs.chaos.ha.loss import Loss
    from labs.chaos.oracle import Violation

# The defaults of a worker, where the lab elsewhere makes them short.
PACE = Pace(lease=60, heartbeat=15, reap=10, idle=30)
ENVIRONMENT = {
    "HOLDFAST_IDLE_MIN_MS": "1000",
    "HOLDFAST_ERROR_BACKOFF_MS": "30000",
    "HOLDFAST_ERROR_JITTER_MS": "2000",
    "HOLDFAST_SHUTDOWN_TIMEOUT_MS": "10000",
}
REPLICAS = 4
RATE = 200.0
MANY = 10**9
RESUME_SECONDS = 180.0
SHOWN_BEFORE = 10.0
"""So many seconds before the loss does the picture begin."""

_CONNECTIONS = """
    SELECT application_name, count(*) FROM pg_stat_activity
    WHERE usename = %s AND backend_type = 'client backend' GROUP BY 1 ORDER BY 1
"""
# The longest time without the end of a job, from a moment before the loss on, while there was load.
_GAP = """
    SELECT extract(epoch FROM before)::float8, extract(epoch FROM finished_at)::float8
    FROM (SELECT finished_at, lag(finished_at) OVER (ORDER BY finished_at) AS before FROM chaos.ended) AS e
    WHERE finished_at BETWEEN to_timestamp(%s) AND to_timestamp(%s)
    ORDER BY finished_at - before DESC NULLS LAST LIMIT 1
"""
# Jobs that began again though they had not failed. An event's job and a probe count as well.
_TWICE = """
    SELECT count(*) FROM chaos.ended e JOIN chaos.started s ON s.job = e.id
    WHERE s.starts > 1 + (SELECT count(*) FROM holdfast.attempt a WHERE a.job_id = e.id AND a.outcome = 'retry')
"""
_RESUMED = "SELECT EXISTS (SELECT FROM holdfast.job_history WHERE finished_at > to_timestamp(%s))"
_THROUGHPUT = """
    SELECT floor(extract(epoch FROM finished_at) - %s)::integer, count(*) FROM chaos.ended GROUP BY 1
"""


class Silence(NamedTuple):
    """The longest time without the end of a job, in seconds after the loss."""

    begun: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.begun


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one run. Times are in seconds."""

    way: Way
    loss: str
    synchronous: bool
    jobs: int
    events: int
    lost: int
    """Acknowledged transactions that are gone, and jobs that have not ended."""
    undone: int
    """Jobs that ran and do not exist any more."""
    twice: int
    elected: float
    """From the loss until another server takes writes."""
    silence: Silence
    longest_enqueue: float
    """From the first try of a producer to the acknowledged commit."""
    errors: dict[str, int]
    """Errors of producers, by type."""
    unknown: int
    """Commits whose answer never came."""
    before: dict[str, int]
    """Connections by the name of the application, before the loss."""
    after: dict[str, int]
    """The same at the end, at the new leader."""
    elsewhere: int
    """Connections of workers and producers at servers that are not the leader, at the end."""
    violations: list[Violation]
    throughput: list[tuple[float, float]] = field(repr=False)
    """Jobs that ended, by second; the loss is at `SHOWN_BEFORE`."""

    @property
    def resumed(self) -> float:
        """From the moment when a server takes writes until the next job has ended."""
        return self.silence.ended - self.elected

    def summary(self) -> str:
        errors = ", ".join(f"{count} {name}" for name, count in self.errors.items()) or "none"
        return f"""\
{self.loss}, {self.way}{"" if self.synchronous else ", asynchronous"}: {self.jobs:,} jobs, {self.events:,} events
  lost {self.lost}, run twice {self.twice}
  new leader after {self.elected:.1f} s; no job ended for {self.silence.seconds:.1f} s, till {self.resumed:.1f} s after
  longest enqueue {self.longest_enqueue:.1f} s; errors of producers: {errors}; commits without answer: {self.unknown}
  connections before {self.before}, after {self.after}, elsewhere {self.elsewhere}
  {"; ".join(map(str, self.violations)) or "nothing was lost, doubled, stale or out of order"}"""


@dataclass(slots=True)
class Course:
    """The lab's own observations."""

    lost_at: float = 0.0
    """By the clock on the wall."""
    over_at: float = 0.0
    """When the load ended."""
    elected: float = 0.0
    longest_enqueue: float = 0.0
    before: dict[str, int] = field(default_factory=dict)
    after: dict[str, int] = field(default_factory=dict)
    elsewhere: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """The options of a run."""

    way: Way
    loss: Loss
    synchronous: bool = True
    before: float = 10.0
    """Seconds of load before the loss."""
    after: float = 15.0
    """Seconds of load after the first job that ended at the new leader."""


async def run(plan: Plan) -> Outcome:
    """Make one run, and judge it."""
    dice = random.Random(1)
    folder = Path(tempfile.mkdtemp(prefix="holdfast-ha-"))
    try:
        async with Cluster(plan.way, synchronous=plan.synchronous) as cluster:
            say(f"{plan.loss.name}, {plan.way}: the cluster stands")
            fleet = Fleet(cluster, PACE, folder, replicas=REPLICAS, environment=ENVIRONMENT)
            for replica in fleet.replicas:
                replica.environment |= {"CHAOS_URL": cluster.url, "HOLDFAST_LISTEN": "true"}
            load = Producer(cluster, MANY, random.Random(dice.random()), rate=RATE)
            publisher = Publisher(load, random.Random(dice.random()))
            callers = Callers(load)
            course = Course()
            async with fleet, load, publisher:
                async with callers:
                    await asyncio.sleep(plan.before)
                    await _lose(cluster, plan.loss, course)
                    await _recovered(cluster, plan, course)
                load.jobs, course.over_at = 0, time.time()
                await load.finished()
                await publisher.finished()
                say("no more load; the rest is done")
                await delivered(cluster, say)
                await drained(cluster, "true", say)
            arrivals = await cluster.broker.arrivals()
            course.longest_enqueue = max(seconds for _, seconds in callers.waits)
            return await asyncio.to_thread(_judge, plan, cluster, fleet, load, course, arrivals)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def say(text: str) -> None:
    print(f"  … {text}", file=sys.stderr, flush=True)


async def _lose(cluster: Cluster, loss: Loss, course: Course) -> None:
    """Let the leader be lost, and return when another server takes writes."""
    lost = cluster.leader
    course.before = await _connections(cluster)
    course.lost_at, begun = time.time(), time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(loss.strike(cluster))
        elected = tasks.create_task(cluster.elected(lost))
        elected.add_done_callback(lambda _: setattr(course, "elected", time.monotonic() - begun))
    say(f"{lost.name} is lost; {cluster.leader.name} leads after {course.elected:.1f} s")
    cluster.lost = lost


async def _recovered(cluster: Cluster, plan: Plan, course: Course) -> None:
    """Let the load go on for a while after the next job has ended; meanwhile the old leader comes back as a standby."""
    async with await cluster.admin() as conn, asyncio.timeout(RESUME_SECONDS):
        while not await value(conn, _RESUMED, course.lost_at + course.elected):  # noqa: ASYNC110 - a server is asked
            await asyncio.sleep(0.1)
    until = time.monotonic() + plan.after
    await asyncio.sleep(plan.after / 3)
    assert cluster.lost is not None
    plan.loss.heal(cluster.lost)
    await cluster.whole()
    await asyncio.sleep(max(0.0, until - time.monotonic()))
    course.after = await _connections(cluster)
    for member in cluster.members:
        if member is not cluster.leader:
            async with await psycopg.AsyncConnection.connect(member.url()) as conn:
                course.elsewhere += sum(count for _, count in await _rows(conn, _CONNECTIONS, USER))


async def _connections(cluster: Cluster) -> dict[str, int]:
    async with await cluster.admin() as conn:
        return dict(await _rows(conn, _CONNECTIONS, USER))


async def _rows(conn: psycopg.AsyncConnection[Any], query: str, *params: object) -> list[tuple[Any, ...]]:
    return await (await conn.execute(query.encode(), params)).fetchall()


def _judge(  # noqa: PLR0913, PLR0917 - everything that a run leaves behind
    plan: Plan, cluster: Cluster, fleet: Fleet, load: Producer, course: Course, arrivals: list[Arrival]
) -> Outcome:
    with psycopg.connect(cluster.admin_url(), autocommit=True) as conn:
        note_arrivals(conn, arrivals)
        gather(conn, fleet.folder)
        evidence = Evidence(conn, load.tally.acknowledged, deaths=fleet.deaths)
        violations = judge(evidence)
        found = Counter({violation.check: violation.times for violation in violations})
        [(before, ended)] = evidence.rows(_GAP, course.lost_at - 1, course.over_at)
        counted = dict(evidence.rows(_THROUGHPUT, course.lost_at - SHOWN_BEFORE))
        return Outcome(
            plan.way,
            plan.loss.name,
            plan.synchronous,
            jobs=evidence.value("SELECT count(*) FROM chaos.ended"),
            events=evidence.value("SELECT count(*) FROM chaos.published"),
            lost=found["lost"] + found["acknowledged and forgotten"],
            undone=found["never promised"],
            twice=evidence.value(_TWICE),
            elected=course.elected,
            silence=Silence(before - course.lost_at, ended - course.lost_at),
            longest_enqueue=course.longest_enqueue,
            errors=dict(load.tally.errors),
            unknown=load.tally.unknown,
            before=course.before,
            after=course.after,
            elsewhere=course.elsewhere,
            violations=violations,
            throughput=[
                (float(second), float(counted.get(second, 0))) for second in range(max(counted, default=0) + 1)
            ],
        )
