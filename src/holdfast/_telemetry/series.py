"""Numbers by instrument and labels: written in batches, and read by scrapes and exports from any thread."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast._telemetry.instruments import Instrument

Labels: TypeAlias = tuple[str, ...]
"""Label values, in the order of the instrument's labels."""

# The most series per instrument. Further ones are counted together as `other`.
MOST_SERIES = 2_000
OTHER = "other"


class Spread(NamedTuple):
    """A histogram: the count per bucket, the last one above all bounds, and the sum of the values."""

    buckets: tuple[int, ...]
    total: float


class Series:
    def __init__(self, instruments: Iterable[Instrument]) -> None:
        self._lock = threading.Lock()
        self.instruments = tuple(instruments)
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
