"""Conversion of a worker's transitions to series for Prometheus and OpenTelemetry, and to spans."""

from __future__ import annotations

from collections import Counter, defaultdict
from operator import itemgetter
from typing import TYPE_CHECKING

from holdfast._distribution import needed
from holdfast._engine.report.transition import Observer
from holdfast._store.claim import ClaimedJob
from holdfast._store.lease import ClaimAnswer
from holdfast._telemetry import metrics as it
from holdfast._telemetry.metrics import OTHER, Series

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider
    from prometheus_client.registry import CollectorRegistry

    from holdfast._app.app import Holdfast
    from holdfast._engine.attempt import Attempt
    from holdfast._engine.report.transition import Cause, EndedBatch, Name, Spans, Ticked, Transition
    from holdfast._store.enqueue import EnqueuedJob
    from holdfast._store.lease import ReapedJob
    from holdfast._telemetry.metrics import Instrument, Labels
    from holdfast._telemetry.opentelemetry import Traces

# Label values for the outcome of an attempt.
_OUTCOMES = {
    "job_completed": "completed",
    "job_retried": "retry",
    "job_rescheduled": "reschedule",
    "job_released": "released",
    "job_failed": "failed",
    "job_cancelled": "cancelled",
    "job_lost": "lost",
    "job_completed_elsewhere": "lost",
}
# Getters of a claimed job's queue, kind, and both.
_PLACES = ClaimedJob._fields.index("queue"), ClaimedJob._fields.index("kind")
_QUEUE, _KIND, _LANE = itemgetter(_PLACES[0]), itemgetter(_PLACES[1]), itemgetter(*_PLACES)
# The change in the number of workers.
_CHANGES = {"worker_started": 1, "worker_stopped": -1}
# Whether a database is served.
_SERVED = {"database_added": 1.0, "database_removed": 0.0}
# In background mode these runners only record their progress occasionally, without ticks.
_FOLDED = frozenset({"outbox", "relay"})
# The most names of counts with their own series per runner: names come from code and may be anything.
MOST_FIELDS = 20
LONGEST_FIELD = 100


class Telemetry(Observer):
    """A listener of an application. See `instrument`."""

    def __init__(
        self,
        *,
        registry: CollectorRegistry | None = None,
        meter_provider: MeterProvider | None = None,
        tracer_provider: TracerProvider | None = None,
        traces: Traces = "linked",
    ) -> None:
        self.registry = registry
        self.series: Series = Series(it.PROCESS)
        self.spans: Spans | None = None
        self._running: Counter[str] = Counter()
        self._fields: dict[str, set[str]] = {}
        self._meter = None
        if registry is not None:
            with needed("telemetry for Prometheus", "prometheus"):
                from holdfast._telemetry.prometheus import SeriesCollector

            registry.register(SeriesCollector(self.series))
        if meter_provider is not None:
            with needed("telemetry for OpenTelemetry", "opentelemetry"):
                from holdfast._telemetry.opentelemetry import SeriesMeter

            self._meter = SeriesMeter(meter_provider, self.series)
        if tracer_provider is not None:
            with needed("telemetry for OpenTelemetry", "opentelemetry"):
                from holdfast._telemetry.opentelemetry import Tracing

            self.spans = Tracing(tracer_provider, traces)

    def __call__(self, transition: Transition, /) -> None:
        if (change := _CHANGES.get(transition.name)) is not None:
            # A one-shot pass beside a worker counts as a second worker of the same name.
            self._running[transition.worker] += change
            self.series.set(it.WORKER_UP, {(transition.worker,): float(self._running[transition.worker] > 0)})
            self._begin(transition.worker, **transition.details)
        elif (served := _SERVED.get(transition.name)) is not None:
            self.series.set(it.DATABASE_SERVED, {(transition.worker, transition.details["database"]): served})

    def _begin(self, worker: str, *, kinds: Sequence[str] = (), runners: Sequence[str] = ()) -> None:
        """Let the counters of failures begin at 0: Prometheus takes the first value that it sees for no increase."""
        for instrument in (it.RETRIED, it.DEAD_LETTER):
            self.series.add(instrument, {(worker, kind): 0 for kind in kinds})
        outcomes = ((runner, outcome) for runner in runners for outcome in ("failed", "lost"))
        self.series.add(it.TICKS, {(worker, *ended): 0 for ended in outcomes})

    def enqueued(self, worker: str, jobs: Sequence[EnqueuedJob], cause: Cause) -> None:  # noqa: ARG002 - as every observer
        """Count jobs that this process enqueued."""
        counts: Counter[Labels] = Counter((job.queue, job.kind) for job in jobs)
        self.series.add(it.ENQUEUED, counts)

    def looked(self, worker: str, found: int, seconds: float) -> None:
        """Count a claim. `found`: the number of jobs it took. `seconds`: its duration in seconds."""
        self._tick(worker, "outbox", "completed", seconds, found)

    def claimed(self, worker: str, attempts: Sequence[Attempt]) -> None:
        """Count the jobs that a worker holds, and how long they waited for it."""
        queues = Counter(_QUEUE(attempt.claimed) for attempt in attempts)
        self.series.add(it.HELD, {(worker, queue): count for queue, count in queues.items()})
        waits: defaultdict[str, list[float]] = defaultdict(list)
        for attempt in attempts:
            waits[attempt.claimed.kind].append(attempt.claimed.waited / 1_000_000)
        for kind, seconds in waits.items():
            self._spread(it.ATTEMPT_WAIT, (worker, kind), seconds)

    def ended(self, worker: str, batch: EndedBatch) -> None:
        """Count attempts that ended, with their durations."""
        names, attempts, _ = batch
        if not attempts:
            return
        if label := attempts[0].completer.label:
            # All attempts of a batch are of one database.
            outcomes = Counter(names)
            ended: dict[tuple[str, ...], float] = {
                (worker, label, _OUTCOMES[name]): count for name, count in outcomes.items()
            }
            self.series.add(it.DATABASE_ENDED, ended)
        # Do as little as possible per job. Usually all are alike, which is checked first.
        jobs = [attempt.claimed for attempt in attempts]
        kinds = {*map(_KIND, jobs)}
        if len(kinds) == len({*names}) == len({*map(_QUEUE, jobs)}) == 1:
            self._count(worker, {(_LANE(jobs[0]), names[0]): len(jobs)})
        else:
            self._count(worker, Counter(zip(map(_LANE, jobs), names, strict=True)))
        for kind in kinds:
            ours = attempts if len(kinds) == 1 else [attempt for attempt in attempts if attempt.claimed.kind == kind]
            seconds = [attempt.seconds for attempt in ours if attempt.seconds is not None]
            if seconds:
                self._spread(it.ATTEMPT_DURATION, (worker, kind), seconds)
        for kind, story in [(attempt.claimed.kind, attempt.story) for attempt in attempts if attempt.story is not None]:
            self.series.add(it.STEPS, {(worker, kind, outcome): count for outcome, count in story.counts.items()})

    def reaped(self, worker: str, jobs: Sequence[ReapedJob]) -> None:
        """Count a pass of the reaper and the jobs it took."""
        self.series.add(it.REAPER_RUNS, {(worker,): 1})
        taken = [job for job in jobs if job.answer is not ClaimAnswer.busy]
        if not taken:
            return
        became: Counter[Labels] = Counter((worker, job.kind, str(job.answer)) for job in taken)
        failed: Counter[Labels] = Counter((worker, job.kind) for job in taken if job.answer is ClaimAnswer.failed)
        self.series.add(it.REAPER_RECOVERED, became)
        self.series.add(it.RECOVERED_STUCK, {(worker,): len(taken)})
        self.series.add(it.DEAD_LETTER, failed)
        self._spread(it.REAPER_STALE, (worker,), [job.stale.total_seconds() for job in taken])

    def ticked(self, worker: str, ticked: Ticked) -> None:
        """Count a tick of a runner and its counts."""
        if ticked.runner not in _FOLDED:
            self._tick(worker, ticked.runner, ticked.outcome, ticked.seconds, sum(ticked.counts.values()))
            counted: Counter[Labels] = Counter()
            for name, count in ticked.counts.items():
                if count > 0:
                    counted[worker, ticked.runner, self._field(ticked.runner, name)] += count
            self.series.add(it.RUNNER_COUNTS, counted)

    def relayed(self, worker: str, subscription: str, *, confirmed: int = 0, refused: int = 0) -> None:
        """Count events of a subscription. `confirmed` and `refused`: numbers of events. Default: 0."""
        for instrument, count in ((it.RELAY_PUBLISHED, confirmed), (it.RELAY_REFUSED, refused)):
            if count:
                self.series.add(instrument, {(worker, subscription): count})

    def _tick(self, worker: str, runner: str, outcome: str, seconds: float, processed: int) -> None:
        self.series.add(it.TICKS, {(worker, runner, outcome): 1})
        self._spread(it.TICK_DURATION, (worker, runner), [seconds])
        self._spread(it.TICK_PROCESSED, (worker, runner), [processed])

    def _field(self, runner: str, name: str) -> str:
        """Return a count's label: its name, or `other` if there are too many or it is no valid label."""
        fields = self._fields.setdefault(runner, set())
        if name not in fields:
            if len(fields) >= MOST_FIELDS or not name.isprintable() or len(name) > LONGEST_FIELD:
                return OTHER
            fields.add(name)
        return name

    def _count(self, worker: str, counts: Mapping[tuple[tuple[str, str], Name], int]) -> None:
        """Count attempts by queue, kind and the transition that ended them."""
        held: Counter[Labels] = Counter()
        bad: dict[Instrument, Counter[Labels]] = {it.RETRIED: Counter(), it.DEAD_LETTER: Counter()}
        for ((queue, kind), name), count in counts.items():
            held[worker, queue] -= count
            if (instrument := _BAD.get(name)) is not None:
                bad[instrument][worker, kind] += count
        self.series.add(
            it.PROCESSED,
            {(worker, queue, kind, _OUTCOMES[name]): count for ((queue, kind), name), count in counts.items()},
        )
        self.series.add(it.HELD, held)
        for instrument, amounts in bad.items():
            if amounts:
                self.series.add(instrument, amounts)

    def _spread(self, instrument: Instrument, labels: Labels, values: Sequence[float]) -> None:
        kept = self.series.spread(instrument, labels, values)
        if self._meter is not None:
            self._meter.spread(instrument, kept, values)


_BAD: dict[str, Instrument] = {"job_retried": it.RETRIED, "job_failed": it.DEAD_LETTER}


def instrument(
    app: Holdfast,
    *,
    registry: CollectorRegistry | None = None,
    meter_provider: MeterProvider | None = None,
    tracer_provider: TracerProvider | None = None,
    traces: Traces = "linked",
) -> Telemetry:
    """Measure the workers of this application with Prometheus, OpenTelemetry or both, and return the listener.

    `registry` is of prometheus-client, the providers are OpenTelemetry's. Only the given ones are fed and imported.
    `traces`: each attempt is a span, in its own trace and `linked` to the span that enqueued the job (default), or as
    a child of that span (`continued`).
    """
    telemetry = Telemetry(
        registry=registry, meter_provider=meter_provider, tracer_provider=tracer_provider, traces=traces
    )
    app.listeners.append(telemetry)
    return telemetry
