"""The ends of `max_runtime`: attempts that run longer are aborted at once, not at the next heartbeat."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from holdfast.abort import AbortReason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.engine.attempt import Attempt
    from holdfast.store.lease import Held

# A timer may ring this much before its time.
EARLY = 0.005
# Deadlines that lie so close together have one look.
SPACING = 0.02


class Deadlines:
    """One timer for all attempts, set to the first deadline: a timer for each would cost every job.

    The heartbeat looks at deadlines too: it renews nothing that has passed one, and its thread fires signals while a
    handler blocks the event loop.
    """

    def __init__(self, held: Sequence[Mapping[Held, Attempt]], clock: Callable[[], float]) -> None:
        self._held = held
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self.next = math.inf
        """When it looks next, by the monotonic clock."""

    def ring_at(self, deadline: float) -> None:
        """Look at this time, which is before the next look."""
        if self._timer is not None:
            self._timer.cancel()
        self.next = deadline
        self._timer = asyncio.get_running_loop().call_later(max(0.0, deadline - self._clock()), self._ring)

    def _ring(self) -> None:
        self._timer, self.next = None, math.inf
        now = self._clock()
        first = math.inf
        for attempt in [attempt for held in self._held for attempt in held.values()]:
            if (deadline := attempt.deadline) is None or attempt.signal.aborted:
                continue
            if deadline <= now + EARLY:
                attempt.abort(AbortReason.timeout)
            elif deadline < first:
                first = deadline
        if first < self.next:
            self.ring_at(max(first, now + SPACING))
