"""The one protocol of falling asleep. Workers, readers of the event log and callers that wait for chains follow it."""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from holdfast._drivers import run_sync
from holdfast._store.sleeper import RECORD_SECONDS, Horizon, others_ended
from holdfast._store.statement import Statement

if TYPE_CHECKING:
    from collections.abc import Iterable

    import psycopg

    from holdfast._engine.link import Link

N = TypeVar("N")
T = TypeVar("T")
# Statements one by one, each answered before the next. Without a connection, for async and for blocking callers.
Steps: TypeAlias = Generator[Statement[Any], Any, T]

# The record is renewed a second before it expires.
RENEWED_AFTER = RECORD_SECONDS - 1.0
# A light sleeper looks at intervals from LIGHT_FIRST to LIGHT_LAST seconds, and after LIGHT_FOR at LIGHT_LATER.
LIGHT_FIRST = 0.005
LIGHT_LAST = 0.25
LIGHT_FOR = 10.0
LIGHT_LATER = 1.5


class RecordedSleep(Generic[N]):
    """Falls asleep such that no work is missed, in steps whose order matters.

    1. The record of the sleep commits. Every transaction that looks for sleepers from then on finds one to notify.
    2. The horizon is read: a transaction below it may have looked too early and sends no notification.
    3. The sleep is light: the sleeper looks for work at short intervals until all those transactions have ended.
    4. After that it looks once more. From then on it sleeps soundly, until a notification or the end of the record.

    A record that is renewed before it expires is seen by every transaction, and needs no new horizon.
    """

    def __init__(self) -> None:
        self._names: N | None = None
        """The subject of the record; None: there is none, or it may be gone."""
        self._expires = -math.inf
        """When the record expires, by the monotonic clock."""
        self._horizon: str | None = None
        """The horizon of a light sleep."""
        self._certain = False
        """Whether every transaction sees the record."""
        self._light_since = 0.0
        self._pace = LIGHT_FIRST
        self.look_at = 0.0
        """When a light sleeper looks again, by the monotonic clock."""

    @property
    def seen(self) -> N | None:
        """The subject of the record, if every transaction sees it: then the sleep is sound."""
        return self._names if self._certain else None

    def stands(self, names: N, until: float) -> bool:
        """Return whether every transaction will see a record of these names until `until`, by the monotonic clock."""
        return self.seen == names and until <= self._expires

    def doubt(self) -> None:
        """Forget that the record is seen: after an outage it may be gone."""
        self._names, self._horizon, self._certain = None, None, False

    def end(self) -> bool:
        """Forget the record. Return whether there may be one to delete."""
        stood, self._expires = time.monotonic() < self._expires, -math.inf
        self.doubt()
        return stood

    def fall_asleep(self, names: N, record: Statement[None], horizon: Statement[Horizon]) -> Steps[Horizon | None]:
        """Write the record and read the horizon. Return None if the record was renewed in time: the sleep goes on."""
        return None if (yield from self.record(names, [record])) else (yield from self.sleep_lightly(horizon))

    def record(self, names: N, records: Iterable[Statement[None]]) -> Steps[bool]:
        """Write the record. Return whether the last one had the same names and had not expired."""
        last, horizon, certain = self._names, self._horizon, self._certain
        expires, self._expires = self._expires, time.monotonic() + RECORD_SECONDS
        self.doubt()
        yield from records
        self._names = names
        unbroken = last == names and (certain or horizon is not None) and time.monotonic() < expires
        if unbroken:
            self._horizon, self._certain = horizon, certain
        return unbroken

    def sleep_lightly(self, horizon: Statement[Horizon]) -> Steps[Horizon]:
        """Read the horizon, once the record has committed."""
        limits: Horizon = yield horizon
        self._horizon, self._certain = limits.xmax, False
        self._light_since = self.look_at = time.monotonic()
        self._pace = LIGHT_FIRST
        return limits

    def settle(self) -> Steps[bool]:
        """Return whether all transactions below the horizon have ended: then look once more, and sleep soundly.

        Otherwise look again at `look_at`.
        """
        if (horizon := self._horizon) is not None and (yield others_ended(horizon)) and self._horizon == horizon:
            self._horizon, self._certain = None, True
        if not self._certain:
            self.look_at = time.monotonic() + self._pace
            tired = time.monotonic() - self._light_since > LIGHT_FOR
            self._pace = LIGHT_LATER if tired else min(self._pace * 1.5, LIGHT_LAST)
        return self._certain


async def follow(link: Link, steps: Steps[T]) -> T:
    """Run the statements of these steps, and return their result."""
    try:
        statement = next(steps)
        while True:
            statement = steps.send(await link.run(statement))
    except StopIteration as done:
        result: T = done.value
        return result


def follow_sync(conn: psycopg.Connection[Any], steps: Steps[T]) -> T:
    """Run the statements of these steps on a blocking connection, and return their result."""
    try:
        statement = next(steps)
        while True:
            statement = steps.send(run_sync(conn, statement))
    except StopIteration as done:
        result: T = done.value
        return result
