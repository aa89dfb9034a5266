"""Windows: how much of a queue a claim scans while other workers claim from it too.

A queue's 64 shards form eight windows. A claim locks the windows that it scans, so that no two claims scan the same one
at once. A worker that is alone takes all windows and sees the queue in order; with others it asks for fewer.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast._store.claimed_job import Claim

WINDOWS = 8
# After FRUITLESS claims in a row that found only windows of others, another process may hold them without claiming: the
# next WITHOUT claims lock no windows.
FRUITLESS = 3
WITHOUT = 16
# The pause between two such claims, in seconds: least and most.
PAUSE = (0.001, 0.005)


class Windows:
    """The number of windows that one worker asks for, and the first of them."""

    def __init__(self, width: int = WINDOWS, first: int | None = None) -> None:
        """Ask for `width` windows at first: 1, 2, 4 or 8. Default: 8. `first`: default random."""
        self._width = width
        self._first = random.randrange(WINDOWS) if first is None else first  # noqa: S311 - only spreads load
        self._fruitless = 0
        self._without = 0

    def asked(self) -> tuple[int, int]:
        """Return how many windows the next claim asks for, and the first of them; 0: it locks none."""
        return (0, 0) if self._without else (self._width, self._first // self._width * self._width)

    def learn(self, claim: Claim) -> float:
        """Adapt to the result of a claim; return how many seconds to wait before the next one."""
        self._without = max(0, self._without - 1)
        if claim.crowded is not None:
            # The next claim starts where this one ended, so that at most eight claims see all windows.
            self._first = (self._first // self._width + 1) * self._width % WINDOWS
            self._width = max(1, self._width // 2) if claim.crowded else min(WINDOWS, self._width * 2)
        if claim.jobs or not claim.again:
            self._fruitless = 0
            return 0.0
        self._fruitless += 1
        if self._fruitless >= FRUITLESS:
            self._fruitless, self._without = 0, WITHOUT
        return random.uniform(*PAUSE)  # noqa: S311 - only spreads load
