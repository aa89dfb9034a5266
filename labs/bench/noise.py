"""How well a median is known."""

from __future__ import annotations

from math import sqrt
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def median_error(values: Sequence[float]) -> float:
    """Return the standard error of their median, by the median deviation: one that is far off counts for no more."""
    middle = median(values)
    return 1.25 * 1.48 * median(abs(value - middle) for value in values) / sqrt(len(values))
