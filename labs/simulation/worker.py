"""A worker process: its slots, its handlers, and its one core."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

import simpy

from holdfast._engine.jobs.slots import Slots
from labs.simulation.pipeline import Pipeline

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence
    from random import Random

    from holdfast._capacity.costs import Costs
    from holdfast._model.settings import Settings
    from labs.simulation.database import Database, JobGroup
    from labs.simulation.machine import Cores


STEPS = 2
"""Handlers end at the nearest multiple of their mean time divided by this."""


class ManySlots(Slots):
    """The slots of the real worker, which also count several jobs at once."""

    def free(self, queue: str) -> int:
        return max(0, min(self.concurrency - self._running_total, self._limits[queue] - self._running[queue]))

    def start_many(self, queue: str, jobs: int, *, of: object) -> None:
        self._stocks[of].waiting[queue] -= jobs
        self._running[queue] += jobs
        self._running_total += jobs

    def end_many(self, queue: str, jobs: int, *, of: object) -> None:
        self._running[queue] -= jobs
        self._running_total -= jobs
        self._stocks[of].ends[queue] += jobs

    @property
    def running(self) -> int:
        return self._running_total


class SimulatedWorker:
    """One process. It serves its databases until it is killed."""

    def __init__(  # noqa: PLR0913 - what a process consists of
        self,
        env: simpy.Environment,
        name: str,
        databases: Sequence[Database],
        settings: Settings,
        *,
        costs: Costs,
        random: Random,
        queues: Mapping[str, int] | None = None,
        handler: float = 0.0,
        spread: float = 0.0,
        machine: Cores | None = None,
        beats_apart: bool = True,
        rack: int = 0,
        region: int = 0,
    ) -> None:
        """Serve these databases. `handler`: the mean time that it waits. `spread`: the share of it that is random.

        `machine`: the cores, if others run on it too. Default: a core of its own. `beats_apart`: whether workers that
        start or reconnect together beat at different times later, as real ones do.
        """
        self.env, self.name, self.settings, self.costs, self.random = env, name, settings, costs, random
        self.rack, self.region, self.beats_apart = rack, region, beats_apart
        self.handler, self._spread = handler, spread
        self._machine = machine
        self._gil = None if machine is None else simpy.Resource(env)
        self._free_at = 0.0
        self.alive = True
        self.busy = 0.0
        queues = queues or {"default": settings.concurrency}
        concurrency = max(settings.concurrency, *queues.values())
        self.slots = ManySlots(concurrency, queues, batch=settings.batch_size, clock=lambda: env.now)
        self.pipelines = [Pipeline(self, database) for database in databases]
        self._turn: deque[Pipeline] = deque(self.pipelines)
        self.apart = simpy.Resource(env)
        self._grid = handler / STEPS
        self._ending: dict[int, list[tuple[Pipeline, JobGroup]]] = {}

    def start(self) -> None:
        for pipeline in self.pipelines:
            pipeline.start()

    def compute(self, seconds: float) -> Generator[simpy.Event, None, None]:
        """Use the process's core for so long."""
        self.busy += seconds
        if self._machine is None or self._gil is None:
            self._free_at = max(self.env.now, self._free_at) + seconds
            yield self.env.timeout(self._free_at - self.env.now)
        else:
            with self._gil.request() as turn:
                yield turn
                yield self.env.timeout(self._machine.work(seconds) - self.env.now)

    def dispatch(self) -> None:
        """Start ready jobs while slots are free, in turn from each database."""
        moved = True
        while moved:
            moved = False
            for _ in range(len(self._turn)):
                pipeline = self._turn[0]
                self._turn.rotate(-1)
                if (group := self._next(pipeline)) is not None:
                    self._start(pipeline, group)
                    moved = True

    def _next(self, pipeline: Pipeline) -> JobGroup | None:
        for _ in range(len(pipeline.ready)):
            group = pipeline.ready.popleft()
            free = self.slots.free(group.queue)
            # Handlers that do not wait end one after another, each in the slot of the last.
            most = group.count if not self.handler and free else free
            if most >= group.count:
                return group
            if most > 0:
                pipeline.ready.appendleft(replace(group, count=group.count - most))
                return replace(group, count=most)
            pipeline.ready.append(group)
        return None

    def _start(self, pipeline: Pipeline, group: JobGroup) -> None:
        self.slots.start_many(group.queue, group.count, of=pipeline)
        pipeline.running.append(group)
        pipeline.database.pickup.add(self.env.now - group.since, group.count)
        seconds = group.count * pipeline.per_job
        if not self.handler:
            self.env.process(self._run(pipeline, group, seconds))
            return
        self.busy += seconds
        self._free_at = max(self.env.now, self._free_at) + seconds
        end = self._free_at + self.handler * (1 + self._spread * self.random.uniform(-1, 1))
        tick = max(round(end / self._grid), int(self.env.now / self._grid) + 1)
        if tick not in self._ending:
            self._ending[tick] = []
            self.env.process(self._end(tick))
        self._ending[tick].append((pipeline, group))

    def _run(self, pipeline: Pipeline, group: JobGroup, seconds: float) -> Generator[simpy.Event, None, None]:
        """Run jobs whose handlers do not wait."""
        yield from self.compute(seconds)
        if self.alive:
            self._ended([(pipeline, group)])

    def _end(self, tick: int) -> Generator[simpy.Event, None, None]:
        """End all handlers whose time falls into one step of the grid."""
        yield self.env.timeout(tick * self._grid - self.env.now)
        if self.alive:
            self._ended(self._ending.pop(tick))

    def _ended(self, ended: list[tuple[Pipeline, JobGroup]]) -> None:
        for pipeline, group in ended:
            pipeline.running.remove(group)
            self.slots.end_many(group.queue, group.count, of=pipeline)
            pipeline.ended(group)
        self.dispatch()
        for each in self.pipelines:
            if self.slots.wanted(of=each):
                each.capacity_freed()

    def kill(self) -> None:
        """End at once. The jobs that it holds are lost until their leases expire."""
        self.alive = False
        lease = self.settings.lease.total_seconds()
        for pipeline in self.pipelines:
            pipeline.database.lose(pipeline.held(), self.env.now + lease)
            pipeline.leave()
