"""The deadlines of running attempts: when a handler will have run too long."""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING

from holdfast._model.errors import AbortReason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast._engine.jobs.ready import ReadyJobs


# A timer may fire this many seconds early.
EARLY = 0.005
# Deadlines within this many seconds of each other are checked together.
SPACING = 0.02


class Deadlines:
    """One timer for all attempts, set to the first deadline: a timer per attempt would cost every job.

    The heartbeat checks deadlines too: it does not renew leases past their deadline, and its thread fires signals
    while a handler blocks the event loop.
    """

    def __init__(self, databases: Iterable[ReadyJobs]) -> None:
        self._databases = databases
        self._timer: asyncio.TimerHandle | None = None
        self.next = math.inf
        """When the next check is, by the monotonic clock."""

    def ring_at(self, deadline: float) -> None:
        """Check at this time, which is before the next planned check."""
        if self._timer is not None:
            self._timer.cancel()
        self.next = deadline
        self._timer = asyncio.get_running_loop().call_later(max(0.0, deadline - time.monotonic()), self._ring)

    def _ring(self) -> None:
        self._timer, self.next = None, math.inf
        now = time.monotonic()
        first = math.inf
        for attempt in [attempt for ready in self._databases for attempt in ready.held.values()]:
            if (deadline := attempt.deadline) is None or attempt.signal.aborted:
                continue
            if deadline <= now + EARLY:
                attempt.abort(AbortReason.timeout)
            elif deadline < first:
                first = deadline
        if first < self.next:
            self.ring_at(max(first, now + SPACING))
