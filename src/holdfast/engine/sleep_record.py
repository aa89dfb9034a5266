"""The record of a worker's sleep. While it stands, whoever enqueues a job knows whom to wake."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from holdfast.store.sleeper import RECORD_SECONDS, lie_down, rise

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from holdfast.engine.link import Link

# It is renewed a second before it ends.
RENEWED_AFTER = RECORD_SECONDS - 1.0


class SleepRecord:
    """One worker's record, and whether everybody can be sure to see it."""

    def __init__(self, link: Link, kinds: Iterable[str]) -> None:
        self._link = link
        self._kinds = kinds
        self._until = -math.inf
        """Until when it stands, by the monotonic clock."""
        self._seen: tuple[int, frozenset[str]] | None = None
        """The worker and the queues of a record that nobody can have missed any more."""

    @property
    def certain(self) -> bool:
        """Whether there is a record that nobody can have missed."""
        return self._seen is not None

    def is_of(self, worker: int) -> bool:
        """Tell whether nobody can have missed it, and it is this worker's."""
        return self._seen is not None and self._seen[0] == worker

    def is_within(self, queues: Collection[str]) -> bool:
        """Tell whether nobody can have missed it, and it names none but these queues."""
        return self._seen is not None and self._seen[1] <= set(queues)

    def stands(self, worker: int, queues: Iterable[str], until: float) -> bool:
        """Tell whether nobody will miss it until then, by the monotonic clock."""
        return until <= self._until and self._seen == (worker, frozenset(queues))

    def was_seen(self, worker: int, queues: Iterable[str]) -> None:
        """Learn that nobody can have missed it any more."""
        self._seen = (worker, frozenset(queues))

    def doubt(self) -> None:
        """Forget that it was seen: after an outage it may not be there."""
        self._seen = None

    async def write(self, worker: int, queues: Collection[str]) -> bool:
        """Write it anew; True when nobody can miss it, since the last one had not ended."""
        seen, ends = self._seen == (worker, frozenset(queues)), self._until
        self._seen, self._until = None, time.monotonic() + RECORD_SECONDS
        await self._link.run(lie_down(worker, queues, self._kinds))
        if seen and time.monotonic() < ends:
            self.was_seen(worker, queues)
        return self.certain

    async def remove(self, worker: int) -> None:
        """Take it away: nobody need notify a worker that works."""
        if time.monotonic() < self._until:
            self._seen, self._until = None, -math.inf
            await self._link.run(rise(worker))
