"""The list of instruments, which the documentation must match, and their numbers by labels."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Sort: TypeAlias = Literal["counter", "gauge", "histogram"]

# In seconds; above the last one is the rest.
SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)
ITEMS = (0.0, 1.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0)

_SUFFIXES = {"s": "seconds"}


# Compared by identity: it is looked up for every batch.
@dataclass(frozen=True, slots=True, eq=False)
class Instrument:
    """Something that is measured, by its name in OpenTelemetry.

    >>> Instrument("holdfast.reaper.stale.duration", "histogram", "s", "…").prometheus
    'holdfast_reaper_stale_duration_seconds'
    >>> Instrument("holdfast.reaper.runs.total", "counter", "{run}", "…").prometheus
    'holdfast_reaper_runs_total'
    """

    name: str
    sort: Sort
    unit: str
    """`s`, or in braces what is counted; empty for what is 0 or 1."""
    description: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    """Of a histogram: the upper bounds of its buckets."""

    @property
    def prometheus(self) -> str:
        """Dots become underscores; the unit and, for a counter, `total` follow unless they stand there already."""
        name = self.name.replace(".", "_")
        for suffix in (_SUFFIXES.get(self.unit), "total" if self.sort == "counter" else None):
            if suffix is not None and not name.endswith(f"_{suffix}"):
                name = f"{name}_{suffix}"
        return name


def _counter(name: str, unit: str, description: str, *labels: str) -> Instrument:
    return Instrument(f"holdfast.{name}", "counter", f"{{{unit}}}", description, labels)


def _gauge(name: str, unit: str, description: str, *labels: str) -> Instrument:
    return Instrument(f"holdfast.{name}", "gauge", unit, description, labels)


def _histogram(name: str, bounds: tuple[float, ...], unit: str, description: str, *labels: str) -> Instrument:
    return Instrument(f"holdfast.{name}", "histogram", unit, description, labels, bounds)


# Measured by each process that runs jobs.
TICKS = _counter(
    "ticks", "tick", "Ticks of runners by outcome. Of outbox, a tick is a claim.", "worker", "runner", "outcome"
)
TICK_DURATION = _histogram("tick.duration", SECONDS, "s", "How long a tick took.", "worker", "runner")
TICK_PROCESSED = _histogram(
    "tick.processed", ITEMS, "{item}", "How much a tick did. Of outbox: jobs claimed.", "worker", "runner"
)
RUNNER_COUNTS = _counter(
    "runner.counts", "item", "Counts of runners' ticks, by the name of the count.", "worker", "runner", "field"
)
ENQUEUED = _counter("enqueued", "job", "Jobs that this process made, committed or not.", "queue", "kind")
PROCESSED = _counter("processed", "attempt", "Attempts that ended, by outcome.", "worker", "queue", "kind", "outcome")
RETRIED = _counter("retried", "attempt", "Attempts that failed and will be made again.", "worker", "kind")
DEAD_LETTER = _counter("dead_letter", "job", "Jobs that became dead letters.", "worker", "kind")
RECOVERED_STUCK = _counter("recovered_stuck", "job", "Jobs whose lease had expired and was taken away.", "worker")
ATTEMPT_WAIT = _histogram("attempt.wait", SECONDS, "s", "From due to started.", "worker", "kind")
ATTEMPT_DURATION = _histogram("attempt.duration", SECONDS, "s", "How long handlers took.", "worker", "kind")
STEPS = _counter("steps", "step", "Steps of stories, by what became of them.", "worker", "kind", "outcome")
HELD = _gauge("held", "{job}", "Jobs that are claimed and whose ending is not written.", "worker", "queue")
WORKER_UP = _gauge("worker.up", "", "1 from the start of a worker to its stop, then 0.", "worker")
DATABASE_SERVED = _gauge(
    "database.served", "", "1 while a worker serves this database among several, then 0.", "worker", "database"
)
DATABASE_ENDED = _counter(
    "database.ended",
    "attempt",
    "Attempts that ended, of a worker with several databases.",
    "worker",
    "database",
    "outcome",
)
REAPER_RECOVERED = _counter(
    "reaper.recovered.count",
    "job",
    "Jobs that a reaper took from dead workers, by what they became.",
    "worker",
    "kind",
    "became",
)
REAPER_STALE = _histogram(
    "reaper.stale.duration", SECONDS, "s", "For how long their leases had been expired.", "worker"
)
REAPER_RUNS = _counter("reaper.runs.total", "run", "Passes of a reaper.", "worker")
RELAY_PUBLISHED = _counter(
    "relay.published", "event", "Events that a sink confirmed, or that became jobs.", "worker", "subscription"
)
RELAY_REFUSED = _counter("relay.refused", "try", "Tries to hand an event over that failed.", "worker", "subscription")

PROCESS = (
    TICKS, TICK_DURATION, TICK_PROCESSED, RUNNER_COUNTS, ENQUEUED, PROCESSED, RETRIED, DEAD_LETTER, RECOVERED_STUCK,
    ATTEMPT_WAIT, ATTEMPT_DURATION, STEPS, HELD, WORKER_UP, DATABASE_SERVED, DATABASE_ENDED, REAPER_RECOVERED,
    REAPER_STALE, REAPER_RUNS, RELAY_PUBLISHED, RELAY_REFUSED,
)  # fmt: skip

# Read from the database, for all workers together.
FLEET_UP = _gauge("fleet.up", "", "1 when the database answered, else 0; then nothing else of the fleet is there.")
FLEET_WORKERS = _gauge("fleet.workers", "{worker}", "Workers that are alive.")
FLEET_SILENT = _gauge("fleet.silent", "{worker}", "Workers that went silent within the last hour and did not say why.")
FLEET_REAPER_AGE = _gauge("fleet.reaper.age", "s", "Since a live worker last reaped; not there when none ever did.")
FLEET_CENSUS_AGE = _gauge("fleet.census.age", "s", "Since live jobs were last counted; not there when they never were.")
QUEUE_PENDING = _gauge("queue.pending", "{job}", "Jobs that wait, at the last census.", "queue")
QUEUE_DUE = _gauge("queue.due", "{job}", "Of these, those whose time has come.", "queue")
QUEUE_PROCESSING = _gauge("queue.processing", "{job}", "Jobs that a worker holds.", "queue")
QUEUE_STUCK = _gauge("queue.stuck", "{job}", "Of these, those whose lease has expired.", "queue")
QUEUE_BLOCKED = _gauge("queue.blocked", "{job}", "Jobs that wait for others.", "queue")
QUEUE_OLDEST = _gauge("queue.oldest_pending.age", "s", "How long the oldest due job has waited.", "queue")
QUEUE_PAUSED = _gauge("queue.paused", "", "1 when a person has paused the queue, else 0.", "queue")
QUEUE_ENDED = _gauge("queue.ended", "{job}", "Jobs that ended within the last five minutes.", "queue", "outcome")
QUEUE_WAIT = _gauge("queue.wait", "s", "From due to started, within the last five minutes.", "queue", "percentile")
QUEUE_RUN = _gauge("queue.run", "s", "How long handlers ran, within the last five minutes.", "queue", "percentile")
KIND_UNSERVED = _gauge("kind.unserved", "{job}", "Due jobs of a kind that no live worker takes.", "queue", "kind")
PROBLEM = _gauge(
    "problem", "", "1 for each cause of what is wrong, as `holdfast status` names it.", "code", "severity", "title"
)
LIMIT_RUNNING = _gauge("limit.running", "{job}", "Jobs that run under a limit, over all its keys.", "limit")
LIMIT_WAITING = _gauge("limit.waiting", "{job}", "Jobs that wait for it, at most 10,000 counted.", "limit")
LIMIT_OLDEST = _gauge("limit.oldest_waiting.age", "s", "How long the oldest of them has been due.", "limit")
STORY_SUSPENDED = _gauge("story.suspended", "{job}", "Stories that sleep or wait, at the last census.", "kind")
STORY_OLDEST = _gauge("story.oldest_suspended.age", "s", "Since the oldest of them was enqueued.", "kind")
SUBSCRIPTION_LAG = _gauge("subscription.lag", "{event}", "Events that were not handed over yet.", "subscription")
SUBSCRIPTION_AGE = _gauge("subscription.lag.age", "s", "How long the oldest of them has waited.", "subscription")
SUBSCRIPTION_PARKED = _gauge("subscription.parked", "{event}", "Events that were set aside.", "subscription")

FLEET = (
    FLEET_UP, FLEET_WORKERS, FLEET_SILENT, FLEET_REAPER_AGE, FLEET_CENSUS_AGE, QUEUE_PENDING, QUEUE_DUE,
    QUEUE_PROCESSING, QUEUE_STUCK, QUEUE_BLOCKED, QUEUE_OLDEST, QUEUE_PAUSED, QUEUE_ENDED, QUEUE_WAIT, QUEUE_RUN,
    KIND_UNSERVED, PROBLEM, LIMIT_RUNNING, LIMIT_WAITING, LIMIT_OLDEST, STORY_SUSPENDED, STORY_OLDEST, SUBSCRIPTION_LAG,
    SUBSCRIPTION_AGE, SUBSCRIPTION_PARKED,
)  # fmt: skip

INSTRUMENTS = PROCESS + FLEET
"""All metrics, of each process and of the fleet."""

Labels: TypeAlias = tuple[str, ...]
"""Label values, in the order of the instrument's labels. Where there are several databases, the database follows."""

DATABASE = "database"

# The most series per instrument. Further ones are counted together as `other`.
MOST_SERIES = 2_000
OTHER = "other"


class Spread(NamedTuple):
    """A histogram: the count per bucket, the last one above all bounds, and the sum of the values."""

    buckets: tuple[int, ...]
    total: float


class Series:
    """Numbers by instrument and labels: written in batches, and read by scrapes and exports from any thread."""

    def __init__(self, instruments: Iterable[Instrument]) -> None:
        self._lock = threading.Lock()
        self.instruments: tuple[Instrument, ...] = tuple(instruments)
        self._numbers: dict[Instrument, dict[Labels, float]] = {
            it: {} for it in self.instruments if it.sort != "histogram"
        }
        self._buckets: dict[Instrument, dict[Labels, list[int]]] = {
            it: {} for it in self.instruments if it.sort == "histogram"
        }
        self._totals: dict[Instrument, dict[Labels, float]] = {it: {} for it in self._buckets}

    def add(self, instrument: Instrument, amounts: Mapping[Labels, float]) -> None:
        with self._lock:
            numbers = self._numbers[instrument]
            for labels, amount in amounts.items():
                key = _key(numbers, labels)
                numbers[key] = numbers.get(key, 0) + amount

    def set(self, instrument: Instrument, values: Mapping[Labels, float]) -> None:
        """Set a gauge to these values."""
        with self._lock:
            numbers = self._numbers[instrument]
            for labels, value in values.items():
                numbers[_key(numbers, labels)] = value

    def replace(self, values: Mapping[Instrument, Mapping[Labels, float]]) -> None:
        """Set every gauge to these values and remove all others."""
        with self._lock:
            for instrument, numbers in self._numbers.items():
                kept = sorted(values.get(instrument, {}).items(), key=lambda item: -item[1])[:MOST_SERIES]
                numbers.clear()
                numbers.update(kept)

    def spread(self, instrument: Instrument, labels: Labels, values: Sequence[float]) -> Labels:
        """Add values to a histogram and return the labels under which they are counted."""
        bounds = instrument.bounds
        if values and max(values) <= bounds[0]:
            # Fast path: the quicker the handlers, the more this overhead matters.
            places: dict[int, int] = {0: len(values)}
        else:
            places = Counter(map(bisect_left, repeat(bounds), values))
        with self._lock:
            key = _key(self._buckets[instrument], labels)
            buckets = self._buckets[instrument].setdefault(key, [0] * (len(bounds) + 1))
            for place, count in places.items():
                buckets[place] += count
            totals = self._totals[instrument]
            totals[key] = totals.get(key, 0.0) + sum(values)
        return key

    def numbers(self, instrument: Instrument) -> dict[Labels, float]:
        with self._lock:
            return dict(self._numbers[instrument])

    def spreads(self, instrument: Instrument) -> dict[Labels, Spread]:
        with self._lock:
            totals = self._totals[instrument]
            return {key: Spread(tuple(buckets), totals[key]) for key, buckets in self._buckets[instrument].items()}


def _key(kept: Mapping[Labels, object], labels: Labels) -> Labels:
    """Return the labels, or those of `other` if there are too many series."""
    return labels if labels in kept or len(kept) < MOST_SERIES else (OTHER,) * len(labels)
