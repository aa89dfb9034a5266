"""The report of a worker to operators, sent with each heartbeat: repeated errors, silent sinks, long runs."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from holdfast._engine.attempt import Attempt
    from holdfast._logs.failure import Failure

# For this long after its start, in seconds, a worker assumes that a payload it cannot read is for another version.
DEPLOY_GRACE = 600.0
# Counts are of the last seconds, in so many steps.
WINDOW_SECONDS = 15.0
STEP_SECONDS = 3.0
# A kind, sink or payload version without a failure for so long is forgotten: its next failure begins a new series.
FORGOTTEN_SECONDS = 120.0
# The jobs of a kind are reported when the first of them has run for so long.
LONG_SECONDS = 5.0
_MOST = 20
_TEXT = 200

Clock: TypeAlias = "Callable[[], float]"


@dataclass(slots=True)
class Series:
    """Failures of one thing, one after another."""

    code: str
    text: str
    since: float
    last: float
    counts: dict[int, Counter[str]] = field(default_factory=dict)
    """By the number of the step, and by what happened."""
    next_at: float = 0.0
    tries: int = 0

    def count(self, what: str, now: float) -> None:
        step = int(now // STEP_SECONDS)
        if step not in self.counts:
            for old in [one for one in self.counts if one <= step - WINDOW_SECONDS // STEP_SECONDS]:
                del self.counts[old]
            self.counts[step] = Counter()
        self.counts[step][what] += 1

    def recent(self, what: str, now: float) -> int:
        first = now // STEP_SECONDS - WINDOW_SECONDS // STEP_SECONDS
        return sum(counter[what] for step, counter in self.counts.copy().items() if step > first)


class WorkerReport:
    """Changed in the event loop, and read by the thread of the heartbeat. The times in it are ages in milliseconds."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self.errors: dict[tuple[str, str], Series] = {}
        """By queue and kind."""
        self._sinks: dict[str, Series] = {}
        """By subscription."""
        self._unread: dict[tuple[str, int, int], Series] = {}
        """By kind, version of the payload and newest version that is read."""
        self.is_new: bool = False
        """Whether something began that the last heartbeat has not reported."""

    def failed(self, queue: str, kind: str, failure: Failure, *, retried: bool) -> None:
        """Count a failed attempt. `queue`: empty where it is not known, as of a job that a reaper failed."""
        series = self._noted(self.errors, (queue, kind), failure)
        series.count("retried" if retried else "failed", series.last)

    def completed(self, queue: str, kind: str) -> None:
        """Count a completed job, so that the share of failures is known: only of kinds that fail."""
        if (series := self.errors.get((queue, kind))) is not None:
            series.count("completed", self._clock())

    def could_not_read(self, kind: str, version: int, own: int, failure: Failure) -> None:
        series = self._noted(self._unread, (kind, version, own), failure)
        series.count("jobs", series.last)

    def sink_failed(self, subscription: str, failure: Failure, rest: float, *, tries: int) -> None:
        """Note that a sink did not take an event, after so many `tries`. `rest`: seconds until the next one."""
        series = self._noted(self._sinks, subscription, failure)
        series.next_at = series.last + rest
        series.tries = max(series.tries, tries)

    def sink_answered(self, subscription: str) -> None:
        if self._sinks:
            self._sinks.pop(subscription, None)

    def _noted(self, kept: dict[Any, Series], key: object, failure: Failure) -> Series:
        now = self._clock()
        series = kept.get(key)
        if series is None or now - series.last > FORGOTTEN_SECONDS:
            if series is None and len(kept) >= _MOST:
                del kept[min(kept, key=lambda one: kept[one].last)]
            series = kept[key] = Series(failure.code, failure.text[:_TEXT], now, now)
            self.is_new = True
        series.code, series.text, series.last = failure.code, failure.text[:_TEXT], now
        return series

    def long_runs(self, attempts: Iterable[Attempt], full: Callable[[str], bool]) -> list[list[Any]]:
        """Return the kinds whose first running job has run for long: queue, kind, jobs, age, no slot free."""
        now = self._clock()
        runs: dict[tuple[str, str], list[float]] = {}
        for attempt in attempts:
            if attempt.started_at:
                runs.setdefault((attempt.claimed.queue, attempt.claimed.kind), []).append(attempt.started_at)
        long = [(min(starts), len(starts), *key) for key, starts in runs.items() if now - min(starts) >= LONG_SECONDS]
        return [[queue, kind, jobs, _ms(now - start), full(queue)] for start, jobs, queue, kind in sorted(long)[:_MOST]]

    def read(self, attempts: Iterable[Attempt], full: Callable[[str], bool]) -> str | None:
        """Return the report as JSON; None: there is nothing to report. `full`: whether a queue has no free slot."""
        now = self._clock()
        self.is_new = False
        report: Mapping[str, list[list[Any]]] = {
            "errors": [
                [*key, one.code, one.text, _ms(now - one.since), _ms(now - one.last)]
                + [one.recent(what, now) for what in ("failed", "retried", "completed")]
                for key, one in self._kept(self.errors)
            ],
            "sinks": [
                [key, one.code, one.text, _ms(now - one.since), _ms(max(0.0, one.next_at - now)), one.tries]
                for key, one in self._kept(self._sinks)
            ],
            "unread": [
                [*key, _ms(now - one.since), _ms(now - one.last), one.recent("jobs", now)]
                for key, one in self._kept(self._unread)
            ],
            "running": self.long_runs(attempts, full),
        }
        given = {name: lines for name, lines in report.items() if lines}
        return json.dumps(given) if given else None

    def _kept(self, series: dict[Any, Series]) -> list[tuple[Any, Series]]:
        return [(key, one) for key, one in series.copy().items() if self._clock() - one.last <= FORGOTTEN_SECONDS]


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
