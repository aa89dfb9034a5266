"""A worker's loops for one database, as the real ones: claim, finish, beat, reap, listen, reconnect."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

from holdfast._engine.jobs.claim import LINGER_FIRST, LINGER_FOR
from holdfast._engine.jobs.finish import MOST_AT_ONCE
from holdfast._engine.jobs.heartbeat import EARLIEST
from holdfast._engine.jobs.named import MANY_JOBS, MANY_SECONDS
from holdfast._engine.jobs.reap import MOST_AT_ONCE as REAPED_AT_ONCE
from holdfast._engine.link import longest_pause
from holdfast._engine.wake.sleep import RENEWED_AFTER
from labs.simulation.database import Down
from labs.simulation.isolation import Isolating

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    import simpy

    from labs.simulation.database import Database, JobGroup
    from labs.simulation.worker import SimulatedWorker

    Loop = Generator[simpy.Event, None, None]


MAINTENANCE = 30
"""Statements of the runner `maintenance`, of one worker for each database, as counted by a server."""
LOOKS = 3
"""Statements of every worker in the same time: whether it is its turn, and which schedules there are."""
MAINTAINED_EVERY = 60.0


class Pipeline:
    """One worker and one database."""

    def __init__(self, worker: SimulatedWorker, database: Database) -> None:
        self.worker, self.database, self.env = worker, database, worker.env
        self.per_job = worker.costs.item("claim", database.payload, float("inf")).client
        """CPU seconds of the worker for each job."""
        self.ready: deque[JobGroup] = deque()
        self.running: list[JobGroup] = []
        self.finished: deque[JobGroup] = deque()
        self._writing: list[JobGroup] = []
        self._claimed: list[JobGroup] = []
        self._room = self.env.event()
        self._woken = self.env.event()
        self._arrived = self.env.event()
        self._finish = self.env.event()
        self._found_at = -1.0
        self._counted: deque[tuple[float, int]] = deque()
        """When jobs were claimed, and how many, as far as that matters."""
        self._start = ""
        self._filled = False
        """Whether the last claim took as many jobs as it could."""
        self._links: dict[str, int] = {}
        """The epoch of each open connection."""
        self._connecting: dict[str, simpy.Event] = {}
        self.asleep = False
        self._pace = 0.0
        self._paced_at = 0.0
        self._paced = 0
        self.suspects = Isolating(self)

    def start(self) -> None:
        self.database.pipelines += 1
        settings = self.worker.settings
        self._keep("claim", self._claim_once)
        self._keep("finish", self._finish_once)
        self._keep("heartbeat", self._beat, every=settings.heartbeat.total_seconds, first=True)
        self._keep("reap", self._reap, every=self._reap_round, link="claim")
        self._keep("maintenance", self._maintain, every=lambda: MAINTAINED_EVERY, first=True, link="finish")
        if settings.listen:
            self._keep("listen", self._listen)
        self.env.process(self.suspects.run())

    # Kept loops and connections

    def _keep(
        self,
        name: str,
        turn: Callable[[], Loop],
        *,
        every: Callable[[], float] = lambda: 0.0,
        first: bool = False,
        link: str = "",
    ) -> None:
        """Run a loop. `every()`: seconds between two turns.

        `first`: wait before the first turn, too. That wait, and the first one after an outage, are shorter at random.
        """
        self.env.process(self._kept(link or name, turn, every, first=first))

    def _kept(self, link: str, turn: Callable[[], Loop], every: Callable[[], float], *, first: bool) -> Loop:
        failures, apart = 0, first and self.worker.beats_apart
        if first:
            yield self.env.timeout(every() * self._part(apart=apart))
        while self.worker.alive:
            try:
                yield from self.connected(link)
                yield from turn()
            except Down:
                failures += 1
                self._claimed = []
                yield self.env.timeout(self.pause(failures - 1))
                continue
            if seconds := every():
                yield self.env.timeout(seconds * self._part(apart=apart and failures > 0))
            failures = 0

    def _part(self, *, apart: bool) -> float:
        return self.worker.random.uniform(EARLIEST, 1.0) if apart else 1.0

    def connected(self, link: str) -> Loop:
        """Connect unless this link is. Loops that share a link wait for each other."""
        while (other := self._connecting.get(link)) is not None:
            yield other
        if self._links.get(link) == self.database.epoch and self.database.up:
            return
        self._links.pop(link, None)
        done = self._connecting[link] = self.env.event()
        try:
            self._links[link] = yield from self.database.connect()
        finally:
            del self._connecting[link]
            done.succeed()

    def pause(self, failures: int) -> float:
        """Return how long to wait before the next attempt, as the real one does."""
        longest = longest_pause(failures)
        return self.worker.random.uniform(longest / 2, longest)

    def leave(self) -> None:
        """Close all connections, as a process that ends does."""
        self._claimed = []
        self._writing.clear()
        if self.database.up:
            self.database.connections -= sum(epoch == self.database.epoch for epoch in self._links.values())
        self.database.pipelines -= 1
        self.database.sleepers.pop(self, None)
        self.database.lingering.pop(self, None)
        self.asleep = False

    def held(self) -> list[JobGroup]:
        """Return every job that is claimed and not finished."""
        return [*self.ready, *self.running, *self.finished, *self._writing, *self._claimed]

    # Claiming

    def capacity_freed(self) -> None:
        if not self._room.triggered:
            self._room.succeed()

    def wake(self) -> None:
        if not self._woken.triggered:
            self._woken.succeed()

    def _claim_once(self) -> Loop:
        """Claim, or wait for a slot, or sleep."""
        if not (wanted := self.worker.slots.wanted(of=self)) or self._full:
            self._room = self.env.event()
            yield self._room
            return
        if (yield from self._claim(wanted)):
            return
        passed = self.env.now - self._found_at
        if self._many and passed <= LINGER_FOR:
            if self.database.coarse:
                yield from self._linger(LINGER_FOR - passed)
            else:
                yield self.env.timeout(LINGER_FIRST)
            return
        yield from self._sleep()

    @property
    def _many(self) -> bool:
        """Whether so many jobs were claimed just now that polling is cheaper than notifications."""
        while self._counted and self.env.now - self._counted[0][0] > MANY_SECONDS + LINGER_FOR:
            self._counted.popleft()
        return sum(count for _, count in self._counted) >= MANY_JOBS

    def _linger(self, seconds: float) -> Loop:
        """Poll until jobs arrive. The polls themselves cost statements, and are not events of the simulation."""
        self._arrived, began = self.env.event(), self.env.now
        self.database.lingering[self] = None
        yield self._arrived | self.env.timeout(seconds + LINGER_FIRST)
        self.database.lingering.pop(self, None)
        polls = (self.env.now - began) / LINGER_FIRST
        self.database.tally.add("claims", polls)
        self.database.tally.add("statements", polls)
        self.database.cores.work(polls * self.worker.costs.steps["claim"].call.server)

    def stop_lingering(self) -> None:
        self.database.lingering.pop(self, None)
        if not self._arrived.triggered:
            self._arrived.succeed()

    @property
    def _full(self) -> bool:
        return sum(group.count for group in self.finished) > MOST_AT_ONCE

    def _claim(self, wanted: dict[str, int]) -> Generator[simpy.Event, None, bool]:
        limit = self.worker.slots.limit(of=self)
        groups, pause = yield from self.database.claim(wanted, limit, self._start)
        if not self.worker.alive:
            self.database.lose(groups, self.env.now + self.worker.settings.lease.total_seconds())
            return False
        # A worker that is killed meanwhile holds them too.
        self._claimed = groups
        yield from self.worker.compute(self.worker.costs.steps["claim"].call.client)
        if pause:
            yield self.env.timeout(pause)
        taken = Counter[str]()
        for group in groups:
            taken[group.queue] += group.count
        if taken.total() >= limit:
            self._start = f"{groups[-1].queue}\0"
        self._filled = taken.total() >= limit or any(taken[queue] >= count for queue, count in wanted.items())
        if self._claimed is not groups:
            return False
        self._claimed = []
        for group in groups:
            self.ready.append(group)
            self.worker.slots.holds(group.queue, group.count, of=self)
        if groups:
            self._found_at = self.env.now
            self._counted.append((self.env.now, taken.total()))
            self.worker.dispatch()
        return bool(groups) or pause > 0

    def _sleep(self) -> Loop:
        """Record the sleep, look once more, and sleep until a notification or the end of the record."""
        if not self.worker.settings.listen:
            settings, random = self.worker.settings, self.worker.random
            yield self.env.timeout(
                settings.idle_max.total_seconds() + random.uniform(0, settings.jitter.total_seconds())
            )
            return
        self._woken = self.env.event()
        for name in ("sleeps", "looks", "looks"):
            yield from self.database.call(name, commits=name == "sleeps")
        self.database.sleepers[self] = None
        self.asleep = True
        try:
            if not (wanted := self.worker.slots.wanted(of=self)) or (yield from self._claim(wanted)):
                return
            while self.worker.alive:
                yield self._woken | self.env.timeout(RENEWED_AFTER)
                if not self._woken.triggered:
                    # The record is renewed; nothing was due.
                    yield from self.connected("claim")
                    yield from self.database.call("sleeps", commits=True)
                    self.database.sleepers[self] = None
                    if (wanted := self.worker.slots.wanted(of=self)) and (yield from self._claim(wanted)):
                        return
                    continue
                self._woken = self.env.event()
                if not (wanted := self.worker.slots.wanted(of=self)):
                    return
                found = yield from self._claim(wanted)
                if self._filled and self.database.sleepers:
                    # This worker cannot run all jobs that it was woken for: wake the next sleeper.
                    yield from self.database.call("wakes")
                    self.database.wake()
                if found and (self._filled or self._many):
                    return
        finally:
            self.asleep = False
            if self.database.sleepers.pop(self, 0) is None and self.database.up:
                self.database.tally.add("statements")

    # Finishing

    def ended(self, group: JobGroup) -> None:
        self.finished.append(group)
        if not self._finish.triggered:
            self._finish.succeed()

    def _finish_once(self) -> Loop:
        if not self.finished:
            self._finish = self.env.event()
            yield self._finish
            return
        count, batch = 0, self._writing
        while self.finished and count < MOST_AT_ONCE:
            batch.append(self.finished.popleft())
            count += batch[-1].count
        calls = self._calls(count)
        try:
            yield from self.worker.compute(calls * self.worker.costs.steps["finish"].call.client)
            if self.worker.alive:
                for group in batch:
                    self.database.outcome.add(self.env.now - group.since, group.count)
                yield from self.database.finish(count, calls)
            # The jobs of a worker that was killed meanwhile are among the lost ones.
            if batch:
                self.database.complete(count)
        except Down:
            self.finished.extendleft(reversed(batch))
            raise
        finally:
            batch.clear()

    def _calls(self, count: int) -> float:
        """Return in how many calls the outcomes of a parcel are written.

        Handlers that wait end at different moments, and a call writes those that ended during the last call.
        """
        if not self.worker.handler:
            return 1.0
        self._paced += count
        if (passed := self.env.now - self._paced_at) > 1.0:
            self._pace, self._paced, self._paced_at = self._paced / passed, 0, self.env.now
        hardware, step = self.database.hardware, self.worker.costs.steps["finish"]
        once = step.call.server / hardware.speed + hardware.commit + hardware.round_trip
        return max(1.0, count / max(1.0, self._pace * once))

    # Beating, reaping, listening

    def _beat(self) -> Loop:
        yield from self.database.call("beats", commits=True)
        if self.held():
            yield from self.database.call("beats", commits=True)

    def _reap_round(self) -> float:
        """Return the seconds between two passes of this worker: all that serve the database take turns."""
        interval = self.worker.settings.reap_interval.total_seconds()
        most = max(1, int(self.worker.settings.lease.total_seconds() / interval))
        return interval * max(1, min(self.database.pipelines, most))

    def _reap(self) -> Loop:
        while True:
            retry = self.worker.settings.retry
            delay = retry.delay(1).total_seconds() + self.worker.random.uniform(0, retry.jitter.total_seconds())
            reaped = self.database.reap(REAPED_AT_ONCE, delay)
            yield from self.database.call("reaps")
            if reaped:
                self.suspects.wake()
            if reaped < REAPED_AT_ONCE:
                return

    def _maintain(self) -> Loop:
        own = self.database.maintained_at + MAINTAINED_EVERY <= self.env.now
        if own:
            self.database.maintained_at = self.env.now
        for _ in range(LOOKS + MAINTENANCE if own else LOOKS):
            yield from self.database.call("runners")

    def _listen(self) -> Loop:
        """Hold the connection until it is lost."""
        epoch = self.database.epoch
        while self.worker.alive and epoch == self.database.epoch:
            yield self.env.timeout(0.25)
        if self.worker.alive:
            raise Down
