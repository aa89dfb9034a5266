"""Windows: into how much of a queue a claim looks while others claim from it too.

A queue's shards are eight windows. A claim holds those that it looks into, so that no two look into the same at once.
A worker that is alone takes them all, and sees the queue in its order; where it meets others it asks for fewer.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.store.claim import Claim

WINDOWS = 8
# After so many claims in a row that brought nothing but windows of others, somebody keeps them who does not claim:
# so many claims go without.
FRUITLESS = 3
WITHOUT = 16
# Between two such claims, in seconds.
PAUSE = (0.001, 0.005)


class Windows:
    """How many windows one worker asks for, and with which it begins."""

    def __init__(self, width: int = WINDOWS, first: int | None = None) -> None:
        """Ask for `width` windows at first: 1, 2, 4 or 8 of them."""
        self._width = width
        self._first = random.randrange(WINDOWS) if first is None else first  # noqa: S311 - spreads load, guards nothing
        self._fruitless = 0
        self._without = 0

    def asked(self) -> tuple[int, int]:
        """Return how many windows the next claim asks for, and the first of them; none: it locks none."""
        return (0, 0) if self._without else (self._width, self._first // self._width * self._width)

    def learn(self, claim: Claim) -> float:
        """Learn from a claim that asked; return how many seconds to wait before the next one."""
        self._without = max(0, self._without - 1)
        if claim.crowded is not None:
            # The next begins where this one ended, so that all are seen in at most eight claims.
            self._first = (self._first // self._width + 1) * self._width % WINDOWS
            self._width = max(1, self._width // 2) if claim.crowded else min(WINDOWS, self._width * 2)
        if claim.jobs or not claim.again:
            self._fruitless = 0
            return 0.0
        self._fruitless += 1
        if self._fruitless >= FRUITLESS:
            self._fruitless, self._without = 0, WITHOUT
        return random.uniform(*PAUSE)  # noqa: S311 - spreads load, guards nothing
