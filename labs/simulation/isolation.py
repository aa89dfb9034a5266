"""Running jobs whose worker was lost: one busy worker at a time stops for them, as the real one does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._engine.jobs.isolation import PATIENCE, POLL, SESSION, SPACING
from labs.simulation.database import Down

if TYPE_CHECKING:
    from collections.abc import Generator

    import simpy

    from labs.simulation.pipeline import Pipeline

    Loop = Generator[simpy.Event, None, None]


class Isolating:
    """The loop of one worker and one database."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline, self._env = pipeline, pipeline.env
        self._woken = pipeline.env.event()
        self._together = 1
        self._rested_at = 0.0
        self._rest = POLL

    def wake(self) -> None:
        self._rest = POLL
        if not self._woken.triggered:
            self._woken.succeed()

    def run(self) -> Loop:
        failures = 0
        while self._pipeline.worker.alive:
            self._woken = self._env.event()
            try:
                yield from self._pipeline.connected("claim")
                rest = yield from self._look()
                failures = 0
            except Down:
                failures += 1
                rest = self._pipeline.pause(failures - 1)
            yield self._woken | self._env.timeout(rest)
            yield self._env.timeout(SPACING if self._woken.triggered else 0)

    def _look(self) -> Generator[simpy.Event, None, float]:
        database, worker = self._pipeline.database, self._pipeline.worker
        yield from database.call("suspects")
        due_in = database.suspect_due()
        if due_in is None or due_in > 0:
            return self._longer() if due_in is None else min(due_in, POLL)
        self._rest = POLL
        if worker.slots.running == 0 and self._pipeline.asleep:
            return (yield from self._session())
        left = max(PATIENCE + due_in, self._rested_at - self._env.now)
        if left > 0:
            return min(left, 0.1)
        if database.isolating:
            return 0.5
        database.isolating = True
        try:
            return (yield from self._session())
        finally:
            database.isolating = False

    def _longer(self) -> float:
        """Return a pause; while there are no suspects, each is twice as long as the last, as the real one's."""
        longest = max(POLL, 2 * self._pipeline.worker.settings.idle_max.total_seconds())
        rest, self._rest = self._rest, min(2 * self._rest, longest)
        return rest

    def _session(self) -> Generator[simpy.Event, None, float]:
        worker, started_at = self._pipeline.worker, self._env.now
        with worker.apart.request() as turn:
            yield turn
            worker.slots.closed = True
            try:
                while worker.slots.running and worker.alive:
                    yield self._env.timeout(0.05)
                until = self._env.now + SESSION
                while worker.alive and self._env.now < until and (yield from self._run_some()):
                    pass
                return 0.05
            finally:
                worker.slots.closed = False
                self._rested_at = 2 * self._env.now - started_at
                worker.dispatch()
                for pipeline in worker.pipelines:
                    pipeline.capacity_freed()

    def _run_some(self) -> Generator[simpy.Event, None, int]:
        """Claim suspects, run them and write their outcomes. Return how many."""
        database, worker = self._pipeline.database, self._pipeline.worker
        count = database.take_suspects(self._together)
        step = worker.costs.steps["claim"]
        yield from database.call("claims", step.call.server, commits=bool(count))
        if not count:
            self._together = 1
            return 0
        self._together = min(2 * self._together, worker.slots.concurrency)
        yield from worker.compute(step.call.client + count * self._pipeline.per_job)
        yield self._env.timeout(worker.handler)
        yield from database.finish(count, 1)
        database.complete(count)
        database.recovered_at.append((self._env.now, count))
        return count
