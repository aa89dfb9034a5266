"""The record of a worker's sleep. While it is valid, every enqueue finds the worker to notify."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from holdfast._store.sleeper import RECORD_SECONDS, lie_down, rise

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from holdfast._engine.link import Link
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast._engine.link import Link

# The record is renewed a second before it expires.
RENEWED_AFTER = RECORD_SECONDS - 1.0


class SleepRecord:
    """One worker's record, and whether all transactions are certain to see it."""

    def __init__(self, link: Link, kinds: Iterable[str]) -> None:
        self._link = link
        self._kinds = kinds
        self._until = -math.inf
        """When the record expires, by the monotonic clock."""
        self._seen: tuple[int, frozenset[str]] | None = None
        """The worker and the queues of a record that every transaction sees by now."""

    @property
    def certain(self) -> bool:
        """Whether there is a record that every transaction sees."""
        return self._seen is not None

    def is_of(self, worker: int) -> bool:
        """Return whether every transaction sees the record, and it is this worker's."""
        return self._seen is not None and self._seen[0] == worker

    def is_within(self, queues: Collection[str]) -> bool:
        """Return whether every transaction sees the record, and it names only these queues."""
        return self._seen is not None and self._seen[1] <= set(queues)

    def stands(self, worker: int, queues: Iterable[str], until: float) -> bool:
        """Return whether every transaction will see the record until `until`, by the monotonic clock."""
        return until <= self._until and self._seen == (worker, frozenset(queues))

    def was_seen(self, worker: int, queues: Iterable[str]) -> None:
        """Note that every transaction sees the record by now."""
        self._seen = (worker, frozenset(queues))

    def doubt(self) -> None:
        """Forget that the record is seen: after an outage it may be gone."""
        self._seen = None

    async def write(self, worker: int, queues: Collection[str]) -> bool:
        """Write the record again. Return True if every transaction sees it, because the last one had not expired."""
        seen, ends = self._seen == (worker, frozenset(queues)), self._until
        self._seen, self._until = None, time.monotonic() + RECORD_SECONDS
        await self._link.run(lie_down(worker, queues, self._kinds))
        if seen and time.monotonic() < ends:
            self.was_seen(worker, queues)
        return self.certain

    async def remove(self, worker: int) -> None:
        """Delete the record: a busy worker needs no notifications."""
        if time.monotonic() < self._until:
            self._seen, self._until = None, -math.inf
            await self._link.run(rise(worker))


# A light sleeper polls at intervals from LIGHT_FIRST to LIGHT_LAST seconds, and after LIGHT_FOR at LIGHT_LATER.
LIGHT_FIRST = 0.005


LIGHT_LAST = 0.25


LIGHT_FOR = 10.0


LIGHT_LATER = 1.5
