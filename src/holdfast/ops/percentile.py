"""Percentiles of a latency, read from the buckets of tallies."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from holdfast.ops.answer import Latency
from holdfast.store.census import BOUNDS

if TYPE_CHECKING:
    from collections.abc import Mapping

NOTHING = Latency(p50=None, p95=None, p99=None)


def latency(buckets: Mapping[int, int]) -> Latency:
    """Return percentiles of so many jobs by bucket, each as if a bucket's jobs lay evenly in it.

    >>> latency({5: 98, 11: 2})
    Latency(p50=0.03530612244897959, p95=0.04908163265306123, p99=3.5)
    """
    whole = sum(buckets.values())
    if not whole:
        return NOTHING
    return Latency(p50=_at(buckets, 0.50 * whole), p95=_at(buckets, 0.95 * whole), p99=_at(buckets, 0.99 * whole))


def _at(buckets: Mapping[int, int], wanted: float) -> float:
    order = sorted(buckets)
    for bucket, reached in zip(order, accumulate(buckets[bucket] for bucket in order), strict=True):
        if reached >= wanted:
            low = 0.0 if bucket == 0 else BOUNDS[bucket - 1]
            high = BOUNDS[bucket] if bucket < len(BOUNDS) else 2 * low
            return low + (high - low) * (1 - (reached - wanted) / buckets[bucket])
    raise AssertionError("the whole is reached with the last bucket")
