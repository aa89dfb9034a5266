"""A database and its server: jobs that wait, the calls that workers make, sleepers and expired leases."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from holdfast._store.claim import PAUSE, WINDOWS
from labs.simulation.machine import Cores, Histogram, Tally

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from random import Random

    import simpy

    from holdfast._capacity.costs import Costs, Step
    from labs.simulation.pipeline import Pipeline

SMALL = 0.0002
"""CPU seconds of a statement that is no claim and no finish, such as a heartbeat."""
WAKES = 2
"""An enqueue notifies this many sleepers."""


MOST_WAKES = 50
"""Calls that notify, of one parcel: by then every sleeper is awake."""
TAKEN = 40
"""In a coarse world, one more pipeline that polls finds jobs for each so many that arrive."""


class Down(Exception):  # noqa: N818 - named for what happened
    """The server did not answer."""


@dataclass(frozen=True, slots=True)
class JobGroup:
    """Jobs that were enqueued together."""

    queue: str
    count: int
    since: float
    """When they were enqueued."""


class Hardware(NamedTuple):
    """The hardware of a server."""

    cores: int = 16
    commit: float = 0.001
    """The time of a commit."""
    round_trip: float = 0.0005
    connect: float = 0.005
    """CPU seconds of a new connection."""
    speed: float = 1.0
    """Of a core, against the machine of the measured costs."""


class Database:
    """A server with one database. Calls raise `Down` while it is down, and if it goes down meanwhile."""

    def __init__(  # noqa: PLR0913 - what a server consists of
        self,
        env: simpy.Environment,
        name: str,
        costs: Costs,
        random: Random,
        hardware: Hardware,
        *,
        payload: float = 1000.0,
        cores: Cores | None = None,
        coarse: bool = False,
    ) -> None:
        """`cores`: those of the machine, if others run on it too.

        `coarse`: jobs arrive in parcels, so the calls of claims are computed and not counted.
        """
        self.env, self.name, self.costs, self.random, self.hardware = env, name, costs, random, hardware
        self.payload, self.coarse = payload, coarse
        self.lingering: dict[Pipeline, None] = {}
        """Pipelines that poll after work."""
        self.pipelines = 0
        self._pace, self._paced, self._paced_at = 0.0, 0, 0.0
        self.cores = cores or Cores(env, hardware.cores, hardware.speed)
        self.tally = Tally(env)
        self.pickup = Histogram()
        """From enqueueing a job to the start of its handler."""
        self.outcome = Histogram()
        """From enqueueing a job to the call that writes its outcome."""
        self.up = True
        self.epoch = 0
        """Increases when connections are lost."""
        self.connections = 0
        self.waiting: dict[str, deque[JobGroup]] = {}
        self.depth: Counter[str] = Counter()
        self.sleepers: dict[Pipeline, None] = {}
        self.claiming: Counter[str] = Counter()
        self.in_flight = 0
        """Jobs of claims that are under way."""
        self._leases: list[tuple[float, int, JobGroup]] = []
        self._suspects: list[tuple[float, int, JobGroup]] = []
        self._number = 0
        self.isolating = False
        """Whether a busy worker has stopped for suspects."""
        self.maintained_at = float("-inf")
        self.completed = 0
        self.recovered_at: list[tuple[float, int]] = []
        self._items = {step: costs.item(step, payload, float("inf")) for step in ("enqueue", "claim", "finish")}

    # Jobs

    def enqueue(self, queue: str, count: int, *, per_call: float = 1.0) -> None:
        """Enqueue, and notify sleepers as each call would. Others see the jobs after the commit."""
        calls = count / per_call
        end = self.cores.spread(self._cost("enqueue", calls, count)) + self.hardware.commit
        self.env.process(self._appear(JobGroup(queue, count, self.env.now), calls, end))

    def _appear(self, group: JobGroup, calls: float, end: float) -> Generator[simpy.Event, None, None]:
        yield self.env.timeout(end - self.env.now)
        self.tally.add("enqueued", group.count)
        self.tally.add("commits", calls)
        self.put(group)
        if self.lingering:
            for pipeline in list(islice(self.lingering, 1 + group.count // TAKEN)):
                pipeline.stop_lingering()
        for _ in range(min(round(calls) or 1, MOST_WAKES)):
            if not self.sleepers:
                break
            self.wake()

    def load(self, queue: str, count: int) -> None:
        """Make jobs appear at once, at no cost, and wake sleepers."""
        self.put(JobGroup(queue, count, self.env.now))
        if self.sleepers:
            self.wake()

    def put(self, group: JobGroup, *, first: bool = False) -> None:
        lane = self.waiting.setdefault(group.queue, deque())
        (lane.appendleft if first else lane.append)(group)
        self.depth[group.queue] += group.count

    def wake(self) -> None:
        """Notify two sleepers, chosen at random."""
        chosen = self.random.sample(list(self.sleepers), min(WAKES, len(self.sleepers)))
        self.tally.add("notifications", len(chosen))
        for pipeline in chosen:
            pipeline.wake()

    def take(self, wanted: Mapping[str, int], limit: int, start: str) -> list[JobGroup]:
        """Take the jobs of a claim: the queues in turn, from `start`."""
        taken: list[JobGroup] = []
        for queue in sorted(wanted, key=lambda queue: (queue < start, queue)):
            left = min(wanted[queue], limit)
            lane = self.waiting.get(queue)
            while lane and left > 0:
                group = lane.popleft()
                if group.count > left:
                    lane.appendleft(replace(group, count=group.count - left))
                    group = replace(group, count=left)
                left -= group.count
                limit -= group.count
                self.depth[queue] -= group.count
                taken.append(group)
        return taken

    # Calls

    def _cost(self, step: Step, calls: float, items: float) -> float:
        own = calls * self.costs.steps[step].call.server + items * self._items[step].server
        return own * self.costs.background

    def call(
        self, name: str, seconds: float = SMALL, *, commits: bool = False, calls: float = 1.0
    ) -> Generator[simpy.Event, None, None]:
        """Run a call of this many CPU seconds."""
        if not self.up:
            raise Down
        epoch = self.epoch
        self.tally.add(name, calls)
        self.tally.add("statements", calls)
        if commits:
            self.tally.add("commits", calls)
        end = self.cores.work(seconds)
        yield self.env.timeout(end - self.env.now + self.hardware.round_trip + (self.hardware.commit if commits else 0))
        if epoch != self.epoch:
            raise Down

    def claim(
        self, wanted: Mapping[str, int], limit: int, start: str
    ) -> Generator[simpy.Event, None, tuple[list[JobGroup], float]]:
        """Claim. Return the jobs and how long to wait before the next claim."""
        if not self.up:
            raise Down
        open_ = {queue: count for queue, count in wanted.items() if self.claiming[queue] < WINDOWS}
        taken = self.take(open_, limit, start)
        for queue in open_:
            self.claiming[queue] += 1
        count = sum(group.count for group in taken)
        self.in_flight += count
        try:
            calls = self._claims(count)
            yield from self.call("claims", self._cost("claim", calls, count), commits=bool(count), calls=calls)
        except Down:
            for group in reversed(taken):
                self.put(group, first=True)
            raise
        finally:
            self.in_flight -= count
            for queue in open_:
                self.claiming[queue] -= 1
        # Others hold every window of a queue that has due jobs.
        busy = not taken and any(self.depth[queue] for queue in wanted if queue not in open_)
        return taken, self.random.uniform(*PAUSE) if busy else 0.0

    def _claims(self, count: int) -> float:
        """Return in how many claims so many jobs are taken.

        Each takes those that arrived during the last one, as `holdfast._capacity.deployment` computes it.
        """
        if not self.coarse or not count:
            return 1.0
        self._paced += count
        if (passed := self.env.now - self._paced_at) > 1.0:
            self._pace, self._paced, self._paced_at = self._paced / passed, 0, self.env.now
        pace = self._pace / max(1, min(self.pipelines, WINDOWS))
        once = self.costs.steps["claim"].call.server / self.hardware.speed
        once += self.hardware.commit + self.hardware.round_trip
        busy = pace * self._items["claim"].server / self.hardware.speed
        return max(1.0, count / max(1.0, pace * once / (1 - busy))) if busy < 1 else 1.0

    def finish(self, count: int, calls: float) -> Generator[simpy.Event, None, None]:
        """Write the outcomes of this many jobs, in about so many calls."""
        yield from self.call("finishes", self._cost("finish", calls, count), commits=True, calls=calls)

    def complete(self, count: int) -> None:
        """Count jobs whose outcomes are written."""
        self.completed += count
        self.tally.add("completed", count)

    def connect(self) -> Generator[simpy.Event, None, int]:
        """Open a connection. Return the epoch that it belongs to."""
        yield from self.call("connects", self.hardware.connect)
        self.connections += 1
        return self.epoch

    # Failures

    def crash(self) -> None:
        """Lose all connections."""
        self.up = False
        self.epoch += 1
        self.connections = 0
        self.sleepers.clear()

    def recover(self) -> None:
        self.up = True

    def lose(self, groups: list[JobGroup], expires: float) -> None:
        """Keep jobs whose worker is gone until their leases expire."""
        for group in groups:
            self._number += 1
            heapq.heappush(self._leases, (expires, self._number, group))

    def reap(self, limit: int, delay: float) -> int:
        """Make suspects of expired jobs. Return how many."""
        reaped = 0
        while self._leases and self._leases[0][0] <= self.env.now and reaped < limit:
            _, number, group = heapq.heappop(self._leases)
            heapq.heappush(self._suspects, (self.env.now + delay, number, group))
            reaped += group.count
        return reaped

    def suspect_due(self) -> float | None:
        """Return in how many seconds the next suspect is due. None: there is none."""
        return self._suspects[0][0] - self.env.now if self._suspects else None

    def take_suspects(self, limit: int) -> int:
        taken = 0
        while self._suspects and self._suspects[0][0] <= self.env.now and taken < limit:
            due, number, group = heapq.heappop(self._suspects)
            if group.count > limit - taken:
                left = replace(group, count=group.count - limit + taken)
                heapq.heappush(self._suspects, (due, number, left))
                group = replace(group, count=limit - taken)
            taken += group.count
        return taken

    @property
    def lost(self) -> int:
        """Jobs of workers that are gone, not yet run again."""
        return sum(entry[2].count for entry in (*self._leases, *self._suspects))
