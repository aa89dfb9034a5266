"""One run: the ground, the fleet and the load; the faults one after the other; and what is found when all is over."""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from labs.chaos import faults as all_faults
from labs.chaos.evidence import Evidence, gather, note_arrivals
from labs.chaos.fault import Site
from labs.chaos.fleet import Fleet
from labs.chaos.ground import Ground, value
from labs.chaos.oracle import judge
from labs.chaos.pace import Pace
from labs.chaos.prober import Prober
from labs.chaos.producer import Producer
from labs.chaos.publisher import Publisher
from labs.chaos.recovery import Recovery, recover
from labs.chaos.sequence import sequence
from labs.chaos.story import Story, report
from labs.chaos.ticks import Ticks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from labs.chaos.broker import Arrival
    from labs.chaos.fault import Fault
    from labs.chaos.ground import Reachable
    from labs.chaos.oracle import Violation
    from labs.chaos.prober import Probe
    from labs.chaos.sequence import Strike

# The first guess of how long a group of faults takes, recovery included; from then on it is measured.
GROUP_SECONDS = 5.0
PROGRESS_EVERY = 5.0
# How long nothing may end, with jobs still there, before the run is given up.
STUCK_AFTER = 60.0
# So many seconds' worth of jobs may wait; then the load holds its breath.
MOST_WAITING = 5.0


@dataclass(frozen=True, slots=True)
class Plan:
    """The options of a run; with the same seed it makes the same choices."""

    seed: int
    jobs: int
    faults: int
    replicas: int = 4
    only: tuple[str, ...] = ()
    """Names of faults; none: all of them."""
    alone: float = 0.4
    """Of the faults, about so many strike alone; the others in company."""
    pace: Pace = field(default_factory=Pace)
    quiet: float = 5.0
    """Seconds at the end in which nothing but probes is there to do."""
    rate: float | None = None
    """Jobs per second while faults strike; None: so that they last as long as the faults."""
    events: float = 0.06
    """So many for each job."""
    standby: bool = True
    environment: dict[str, str] = field(default_factory=dict)
    """Of the workers."""
    prepare: Callable[[psycopg.Connection[Any]], None] | None = None
    """Done to the migrated database, by its owner, before anybody works."""
    silent: bool = False

    def chosen(self) -> tuple[Fault, ...]:
        return tuple(fault for fault in all_faults.FAULTS if not self.only or fault.name in self.only)


@dataclass(frozen=True, slots=True)
class Findings:
    """The results of a run."""

    plan: Plan
    violations: list[Violation]
    recoveries: list[Recovery]
    story: Story
    seconds: float

    def summary(self) -> str:
        """Say in a few lines what was done and what was found."""
        story, times = self.story, sorted(one.seconds for one in self.recoveries) or [0.0]
        faults = sum(len(one.faults) for one in self.recoveries)
        outcomes = ", ".join(f"{count:,} {name}" for name, count in story.outcomes.items())
        probes = story.probes or [0.0]
        found = ", ".join(f"{one.check} ({one.times})" for one in self.violations)
        return f"""\
seed {self.plan.seed}: {story.jobs:,} jobs under {faults} faults in {self.seconds:.0f} s
  workloads: {", ".join(f"{count:,} {name}" for name, count in story.workloads.items())}
  recovery: median {times[len(times) // 2]:.1f} s, longest {times[-1]:.1f} s, bound {self.plan.pace.bound} s
  events: {story.events:,}, {story.handed_again:,} handed over again, {story.arrived_again:,} of them not deduplicated
  plain jobs that ran again though they had not failed: {story.plain_twice:,} of {story.plain:,}
  attempts that did not simply complete: {outcomes or "none"}
  the pooler fell by itself: {", ".join(story.pooler_falls) or "never"}
  probes waited: median {1000 * probes[len(probes) // 2]:.0f} ms, longest {probes[-1]:.1f} s
  {f"VIOLATED: {found}" if found else "nothing was lost, doubled, stale or out of order"}"""


@dataclass(slots=True)
class Course:
    """The lab's own observations."""

    probes: list[Probe]
    recoveries: list[Recovery] = field(default_factory=list)
    calm: list[tuple[float, float]] = field(default_factory=list)
    """Spans of the monotonic clock between two groups of faults."""


async def prove(plan: Plan) -> Findings:
    """Make one run, and judge it."""
    dice = random.Random(plan.seed)
    folder = Path(tempfile.mkdtemp(prefix="holdfast-chaos-"))
    begun = time.monotonic()
    try:
        async with AsyncExitStack() as stack:
            ground = await stack.enter_async_context(Ground(standby=plan.standby))
            if plan.prepare is not None:
                await asyncio.to_thread(_prepare, ground, plan.prepare)
            fleet = Fleet(ground, plan.pace, folder, replicas=plan.replicas, environment=plan.environment)
            load = Producer(ground, plan.jobs, random.Random(dice.random()))
            publisher = Publisher(load, random.Random(dice.random()), share=plan.events)
            site = Site(ground, fleet, load, publisher, plan.pace, folder, quiet=plan.silent)
            async with fleet, Ticks(fleet, random.Random(dice.random())) as ticks:
                site.say(f"{plan.replicas} replicas work")
                course = await _run(site, plan, dice)
            site.say("everybody has stopped; judging")
            arrivals = await ground.broker.arrivals()
            violations, story = await asyncio.to_thread(_judge, site, course, arrivals, ticks.count)
        return Findings(plan, violations, course.recoveries, story, time.monotonic() - begun)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _run(site: Site, plan: Plan, dice: random.Random) -> Course:
    """Let the faults strike while the load runs; return when everything that was promised has ended."""
    groups = sequence(plan.chosen(), plan.faults, dice, alone=plan.alone)
    prober = Prober(site.load, random.Random(dice.random()))
    course = Course(probes=prober.sent)
    async with asyncio.TaskGroup() as tasks, site.load as load, site.publisher as publisher, prober:
        progress = tasks.create_task(_progress(site, course, plan))
        load.rate = plan.rate or plan.jobs / max(1.0, GROUP_SECONDS * len(groups))
        begun = healed = time.monotonic()
        for number, group in enumerate(groups):
            course.calm.append((healed, time.monotonic()))
            course.recoveries.append(await _strike(site, group))
            healed = time.monotonic()
            if plan.rate is None and number + 1 < len(groups):
                left = (healed - begun) / (number + 1) * (len(groups) - number - 1)
                load.rate = max(20.0, (plan.jobs - load.tally.jobs) / left)
            await asyncio.sleep(dice.uniform(0.1, 0.5))
        load.rate = 5000
        site.say("no more faults; the rest is enqueued and done")
        await load.finished()
        await publisher.finished()
        await delivered(site.ground, site.say)
        await drained(site.ground, "kind <> 'probe'", site.say)
        await asyncio.sleep(plan.quiet)
        course.calm.append((healed, time.monotonic()))
        progress.cancel()
    await drained(site.ground, "true", site.say)
    return course


async def _strike(site: Site, group: Sequence[Strike]) -> Recovery:
    """Let a group of faults strike and be healed, and wait until the fleet has recovered."""

    async def strike(one: Strike) -> None:
        await asyncio.sleep(one.after)
        async with one.fault.strike(site, random.Random(one.seed)):
            pass

    await site.fleet.whole()
    begun = time.monotonic()
    names = tuple(one.fault.name for one in group)
    async with asyncio.TaskGroup() as tasks:
        for one in group:
            tasks.create_task(strike(one))
    recovery = await recover(site, names, begun)
    slow = f"; last of all, {recovery.last}" if recovery.seconds > recovery.bound / 3 else ""
    site.say(
        f"{recovery.name}: on for {recovery.healed - recovery.begun:.1f} s, recovered in {recovery.seconds:.1f} s{slow}"
    )
    return recovery


async def _progress(site: Site, course: Course, plan: Plan) -> None:
    """Say every few seconds how far the run is, and let the load wait while too much is waiting already."""
    printed_at = time.monotonic()
    while True:
        await asyncio.sleep(1)
        try:
            async with asyncio.timeout(3), await site.ground.admin() as conn:
                live = await value(conn, "SELECT count(*) FROM holdfast.job")
        except (psycopg.Error, TimeoutError):
            continue
        site.load.paused = live > MOST_WAITING * max(site.load.rate, 200)
        if time.monotonic() - printed_at >= PROGRESS_EVERY:
            printed_at = time.monotonic()
            done = sum(len(one.faults) for one in course.recoveries)
            promised = f"{site.load.tally.jobs:,} of {plan.jobs:,} jobs promised"
            site.say(f"{promised}, {live:,} to do, {done} of {plan.faults} faults")


async def drained(ground: Reachable, which: str, say: Callable[[str], None]) -> None:
    """Return when every such job has ended, or when none has for long."""
    least, since = None, time.monotonic()
    async with await ground.admin() as conn:
        while live := await value(conn, f"SELECT count(*) FROM holdfast.job WHERE {which}"):
            if least is None or live < least:
                least, since = live, time.monotonic()
            elif time.monotonic() - since > STUCK_AFTER:
                say(f"given up: {live} jobs do not end")
                return
            await asyncio.sleep(0.1)


async def delivered(ground: Reachable, say: Callable[[str], None]) -> None:
    """Return when every event has arrived and has its job, or when none has come any more for long."""
    limit, since = (-1, -1), time.monotonic()
    async with await ground.admin() as conn:
        published = await value(conn, "SELECT count(*) FROM chaos.published")
        while True:
            received = await value(
                conn,
                "SELECT (SELECT count(*) FROM holdfast.job_history WHERE kind = 'received')"
                " + (SELECT count(*) FROM holdfast.job WHERE kind = 'received')",
            )
            got = (await ground.broker.count(), received)
            if min(got) >= published:
                return
            if got > limit:
                limit, since = got, time.monotonic()
            elif time.monotonic() - since > STUCK_AFTER:
                say(f"given up: of {published} events {got[0]} arrived, {got[1]} made jobs")
                return
            await asyncio.sleep(0.3)


def _prepare(ground: Ground, prepare: Callable[[psycopg.Connection[Any]], None]) -> None:
    with psycopg.connect(ground.admin_url(), autocommit=True) as conn:
        prepare(conn)


def _judge(site: Site, course: Course, arrivals: list[Arrival], ticks: int) -> tuple[list[Violation], Story]:
    with psycopg.connect(site.ground.admin_url(), autocommit=True) as conn:
        note_arrivals(conn, arrivals)
        gather(conn, site.folder)
        evidence = Evidence(
            conn,
            site.load.tally.acknowledged,
            course.recoveries,
            site.fleet.deaths,
            course.probes,
            course.calm,
            slack=site.pace.slack,
        )
        return judge(evidence), report(evidence, site, ticks)
