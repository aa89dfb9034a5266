"""The cost of telemetry: one worker, whose telemetry is switched on and off repeatedly while it works."""

from __future__ import annotations

import asyncio
import random
import time
from datetime import UTC, datetime
from statistics import median
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry

from holdfast import Holdfast, Job
from holdfast._engine.report.transition import EndedBatch, Transitions
from holdfast._model.outcome import Completed
from holdfast._store.claim import ClaimedJob
from holdfast.telemetry import Telemetry, instrument
from labs.bench.load import KIND, PAYLOAD, load_jobs
from labs.bench.noise import median_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast._engine.report.transition import Name
    from holdfast._engine.worker import Worker

JOBS = 1_500_000
# Short, so that whatever else the machine does meets both alike; and by chance, for a worker has a beat of its own.
SLICE_SECONDS = (0.2, 0.4)
LEAST = 0.97
LONGEST_SECONDS = 300.0


class Slice(NamedTuple):
    """The work done in a period."""

    jobs: int
    seconds: float
    cpu: float

    @property
    def rate(self) -> float:
        return self.jobs / self.seconds

    @property
    def cpu_per_job(self) -> float:
        return self.cpu / self.jobs


def prometheus(app: Holdfast) -> Telemetry:
    return instrument(app, registry=CollectorRegistry())


def opentelemetry(app: Holdfast) -> Telemetry:
    return instrument(app, meter_provider=MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False))


@pytest.mark.parametrize("way", [prometheus, opentelemetry])
def test_an_observer_of_batches_costs_less_than_a_listener(way: Callable[[Holdfast], Telemetry]) -> None:
    """Measured against a listener that does nothing, so that the speed of the machine does not matter."""
    now = datetime.now(UTC)
    jobs = [ClaimedJob(n, 1, "q", "k", "{}", None, 1, 1, 3, 5, now, n, None, False, False, True) for n in range(250)]
    completer = SimpleNamespace(label="")
    attempts: list[Any] = [
        SimpleNamespace(claimed=job, seconds=0.0001, completer=completer, story=None) for job in jobs
    ]
    names: list[Name] = ["job_completed"] * len(jobs)
    outcomes = [Completed()] * len(jobs)

    def by_the_batch() -> None:
        measured.looked(jobs, 0.001)
        measured.claimed(attempts)
        measured.ended(EndedBatch(names, attempts, outcomes))

    def one_by_one() -> None:
        for job in jobs:
            listened.tell("job_claimed", job.id, job.kind, attempt=job.attempt)
        for attempt in attempts:
            listened.tell("job_completed", attempt.claimed.id, attempt.claimed.kind, outcome=None)

    measured = Transitions("w", [way(Holdfast("postgresql://"))])
    listened = Transitions("w", [lambda _: None])
    best = [min(_timed(call) for _ in range(50)) for call in (by_the_batch, one_by_one)]
    assert best[0] < best[1] / 2


@pytest.mark.prove
@pytest.mark.parametrize("way", [prometheus, opentelemetry])
def test_a_measured_worker_is_as_quick(
    database: str, way: Callable[[Holdfast], object], capsys: pytest.CaptureFixture[str]
) -> None:
    """Jobs that do nothing, in one process with a hundred slots: where every microsecond shows."""
    with psycopg.connect(database, autocommit=True) as conn:
        load_jobs(conn, JOBS)
        conn.execute("VACUUM ANALYZE holdfast.job")
        conn.execute("CHECKPOINT")
    pairs = asyncio.run(_drain(database, way))
    ratios = [on.rate / off.rate for off, on in pairs]
    ratio, error = median(ratios), median_error(ratios)
    cost = median(on.cpu_per_job - off.cpu_per_job for off, on in pairs) * 1e6
    with capsys.disabled():
        rates = [median(pair[measured].rate for pair in pairs) for measured in (False, True)]
        answer = f"{rates[0]:,.0f} jobs a second without, {rates[1]:,.0f} with; ratio {ratio:.3f} ± {error:.3f}"
        print(f"\n{way.__name__}: {answer}; {cost:.2f} µs of CPU a job")  # noqa: T201 - a measurement
    assert ratio >= LEAST
    assert error < 0.03, "too few slices to say anything"


def _timed(call: Callable[[], None]) -> float:
    begun = time.process_time()
    call()
    return time.process_time() - begun


async def _drain(url: str, way: Callable[[Holdfast], object]) -> list[tuple[Slice, Slice]]:
    """Return what was done without telemetry and with it, one after the other in either order."""
    app = Holdfast(url)
    way(app)

    @app.job(KIND)
    async def noop(job: Job[Any], data: str) -> None:
        pass

    noop.arguments(PAYLOAD)
    pairs: list[tuple[Slice, Slice]] = []
    async with app.worker(queues={"default": 100}, batch_size=500) as worker:
        observers = worker._transitions._observers
        begun = time.perf_counter()
        while _completed(worker) < JOBS * 0.97:  # the last slices are not full
            assert time.perf_counter() - begun < LONGEST_SECONDS
            found: dict[bool, Slice] = {}
            for measured in random.sample([False, True], 2):
                worker._transitions._observers = observers if measured else ()
                found[measured] = await _slice(worker)
            if found[False].jobs and found[True].jobs:
                pairs.append((found[False], found[True]))
    return pairs[2:]


async def _slice(worker: Worker) -> Slice:
    jobs, begun, used = _completed(worker), time.perf_counter(), time.process_time()
    await asyncio.sleep(random.uniform(*SLICE_SECONDS))
    return Slice(_completed(worker) - jobs, time.perf_counter() - begun, time.process_time() - used)


def _completed(worker: Worker) -> int:
    return worker.counts.get("job_completed", 0)
