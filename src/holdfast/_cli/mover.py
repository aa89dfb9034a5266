"""Moves waiting jobs from one database to another, a batch at a time; an interrupted move is finished by the next."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

from holdfast._cli import session
from holdfast._cli.session import CommandError
from holdfast._drivers import run_sync
from holdfast._store import moving
from holdfast._store.inspect import limit_time
from holdfast._store.worker import read_identity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast._store.moving import Departure, Which
    from holdfast._store.statement import Statement

T = TypeVar("T")

SECONDS = 60.0
"""The longest time of a statement."""
BATCH = 500
"""Jobs per transaction, by default."""
# A transaction that another one is in the way of is tried this many times, with so many seconds in between.
_TRIES = 10
_PAUSE = 0.2
_IN_THE_WAY = (
    psycopg.errors.LockNotAvailable,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
)


@dataclass(frozen=True)
class MovePlace:
    """A database that jobs move from or to."""

    name: str
    conn: psycopg.Connection[Any]
    identity: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "identity", self.run(read_identity()))

    def run(self, statement: Statement[T]) -> T:
        """Run one statement in its own bounded transaction. It is tried again if another session is in the way."""
        with self.translated():
            for _ in range(_TRIES):
                try:
                    return self._run(statement)
                except _IN_THE_WAY:
                    time.sleep(_PAUSE)
            return self._run(statement)

    def _run(self, statement: Statement[T]) -> T:
        with self.conn.transaction():
            run_sync(self.conn, limit_time(SECONDS))
            return run_sync(self.conn, statement)

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Translate database errors for the operator, with the name of this database."""
        try:
            with session.translated(self.conn, seconds=SECONDS):
                yield
        except CommandError as error:
            raise CommandError(f"{self.name}: {error}", status=error.status) from error


@dataclass
class MoveTally:
    """The counts of a mover so far."""

    departed: int = 0
    """Jobs that left the source in this run."""
    arrived: int = 0
    """Jobs that the destination has got in this run, those of an interrupted one included."""
    duplicates: int = 0
    """Jobs whose unique key a live job of the destination has."""
    returned: int = 0
    """Jobs that were called back."""
    held: int = 0
    """Order keys that stay stopped at the source, because their moved jobs have not ended."""
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return max(time.monotonic() - self.started, 0.001)


class Mover:
    """Moves jobs between two databases. Several may run at once, also in opposite directions."""

    def __init__(  # noqa: PLR0913 - one keyword per bound
        self,
        source: MovePlace,
        destination: MovePlace,
        which: Which,
        *,
        batch: int = BATCH,
        limit: int | None = None,
        progress: Callable[[str, MoveTally], None] = lambda _step, _tally: None,
    ) -> None:
        """`limit`: move at most so many jobs. Default: all. `progress`: called after every step with its name."""
        self.source = source
        self.destination = destination
        self.which = which
        self.tally = MoveTally()
        self._batch = batch
        self._limit = limit
        self.progress = progress

    def move(self) -> MoveTally:
        """Finish what an interrupted move has left, then move jobs until none of those that were there can move."""
        self.confirm()
        self._deliver()
        last = self.source.run(moving.last_job_id())
        while self._pass(last):
            pass
        self.confirm()
        self.release()
        return self.tally

    def call_back(self) -> MoveTally:
        """Take back every batch that the destination has not got, and make sure that it never gets it."""
        while (departure := self._next()) is not None:
            arrival = self.destination.run(moving.refuse_arrival(departure, self.source.identity))
            self._step("refused")
            self._settle(departure, arrival)
        self.confirm()
        self.release()
        return self.tally

    def confirm(self) -> None:
        """Let the destination forget batches in 14 days that the source has marked."""
        arrived = self.destination.run(moving.unconfirmed_arrivals(self.source.identity))
        if not arrived:
            self.destination.run(moving.confirm_arrivals(()))  # this user must be allowed to, before any job leaves
            return
        unfinished = set(self.source.run(moving.unfinished_departures(arrived)))
        self.destination.run(moving.confirm_arrivals([batch for batch in arrived if batch not in unfinished]))
        self._step("confirmed")

    def release(self) -> None:
        """Let order keys go on at the source whose moved jobs have all ended; count those that must wait.

        Also at the destination: jobs of its keys may have come back to it.
        """
        self.tally.held = _release(self.source, self.destination)
        _release(self.destination, self.source)
        self._step("released")

    def _pass(self, last: int) -> bool:
        """Move what can move of the jobs with ids up to `last`; return whether there was any."""
        since, before = 0, self.tally.departed
        while since < last and (size := self._size()):
            departed = self.source.run(
                moving.depart_jobs(
                    self.destination.identity, self.destination.name, self.which, since=since, last=last, limit=size
                )
            )
            since = departed.until
            self.tally.departed += departed.jobs
            self._step("departed")
            if departed.jobs:
                self._deliver()
        return self.tally.departed > before and bool(self._size())

    def _deliver(self) -> None:
        """Bring every batch that has left to the destination, in the order in which they left, also those of others."""
        while (departure := self._next()) is not None:
            arrival = self.destination.run(moving.arrive_jobs(departure, self.source.identity))
            self._step("arrived")
            self._settle(departure, arrival)

    def _next(self) -> Departure | None:
        return self.source.run(moving.next_departure(self.destination.identity))

    def _settle(self, departure: Departure, arrival: moving.Arrival) -> None:
        """Record at the source what the destination has decided about a batch."""
        if arrival.refused:
            back = self.source.run(moving.call_back_jobs(departure))
            self.tally.returned += back.jobs
            self.tally.duplicates += back.duplicates
            self._step("returned")
        elif self.source.run(moving.mark_arrived(departure, arrival)):
            made = arrival.made or ()
            self.tally.arrived += sum(made)
            self.tally.duplicates += len(made) - sum(made)
            self._step("marked")

    def _size(self) -> int:
        """Return how many jobs the next batch may have."""
        return self._batch if self._limit is None else max(0, min(self._batch, self._limit - self.tally.departed))

    def _step(self, name: str) -> None:
        self.progress(name, self.tally)


def _release(place: MovePlace, other: MovePlace) -> int:
    """Let order keys go on whose jobs moved to `other` and have all ended or come back; return how many must wait."""
    held, after = 0, ""
    while keys := place.run(moving.held_keys(other.identity, after=after)):
        after = keys[-1].name
        busy = set(other.run(moving.keys_under_way((key.name for key in keys), place.identity)))
        for key in keys:
            if not key.arrived or key.name in busy or not place.run(moving.release_key(key)):
                held += 1
    return held
