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
    """Return percentiles of so many jobs by bucket: the bound that so many jobs did not exceed.

    Where in its bucket a job lies is not known, so nothing is invented. Jobs above the last bound count as at it.

    >>> latency({5: 98, 11: 2})
    Latency(p50=0.05, p95=0.05, p99=5.0)
    """
    whole = sum(buckets.values())
    if not whole:
        return NOTHING
    return Latency(p50=_at(buckets, 0.50 * whole), p95=_at(buckets, 0.95 * whole), p99=_at(buckets, 0.99 * whole))


def _at(buckets: Mapping[int, int], wanted: float) -> float:
    order = sorted(buckets)
    for bucket, reached in zip(order, accumulate(buckets[bucket] for bucket in order), strict=True):
        if reached >= wanted:
            return BOUNDS[min(bucket, len(BOUNDS) - 1)]
    raise AssertionError("the whole is reached with the last bucket")
