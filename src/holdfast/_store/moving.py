"""Moving jobs to another database: a batch departs here, arrives there, and is marked here."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast._store.statement import (
    Statement,
    column,
    many,
    nothing,
    number_array,
    one,
    one_or_none,
    statement,
    text_array,
    value,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime


MOST_COUNTED = 200_000
"""The most jobs that are counted."""
MOST_KEYS = 1_000
"""The most order keys in one page."""
_MOST_BLOCKERS = 100
_MOST_ARRIVALS = 10_000


class Which(NamedTuple):
    """Which jobs move."""

    queues: tuple[str, ...] | None = None
    """None: all."""
    kinds: tuple[str, ...] | None = None
    """None: all."""


class Departed(NamedTuple):
    """How many jobs left, and the id after which to continue."""

    jobs: int
    until: int


class Departure(NamedTuple):
    """A batch that has left and has not arrived."""

    id: str
    body: str
    """JSON text."""


class LateDepartures(NamedTuple):
    """The batches that have left for a database and have not arrived."""

    place: str
    batches: int
    jobs: int
    seconds: float
    """Since the oldest of them has left."""


class HeldKeys(NamedTuple):
    """The order keys that are held here because jobs of them have moved to a database."""

    place: str
    keys: int
    seconds: float
    """Since jobs of the first of them have left."""


class LeftWaiters(NamedTuple):
    """The jobs that wait here for chains that have moved to a database."""

    place: str
    jobs: int


class MovedBlocker(NamedTuple):
    """A chain that a job waits for and that has moved to another database."""

    chain_id: int
    place: str
    new_chain_id: int | None
    """None: it has not arrived."""


class Arrival(NamedTuple):
    """The fate of a batch at its destination: one entry per job, all in the same order."""

    refused: bool
    """It was called back before it arrived. Then there are no entries."""
    job_ids: Sequence[int] | None
    new_ids: Sequence[int] | None
    """Of a duplicate, the job that has its unique key."""
    chain_ids: Sequence[int] | None
    made: Sequence[bool] | None
    """False: a duplicate."""


class CalledBack(NamedTuple):
    """How many jobs are back, and how many were duplicates of live ones."""

    jobs: int
    duplicates: int


class HeldKey(NamedTuple):
    """An order key whose jobs follow those that have moved, and since when no more of them have left."""

    name: str
    stopped_at: datetime
    arrived: bool
    """Whether all jobs that have left for the destination are there."""


class MovableCount(NamedTuple):
    """How many jobs of a queue and kind can move, or what keeps them."""

    queue: str
    kind: str
    stays: str
    """`movable`, `running`, `key_running`, `key_stopped` or `awaits_chain`."""
    jobs: int


class Moved(NamedTuple):
    """Where a job has gone."""

    job_id: int
    place: str
    """The name of the database."""
    new_id: int | None
    """None: it has not arrived."""
    new_chain_id: int | None
    departed_at: datetime
    arrived_at: datetime | None

    @property
    def says(self) -> str:
        """Where it is, as the end of a sentence."""
        if self.new_id is None:
            return f"is being moved to the database {self.place}: run `holdfast move` again if that was interrupted"
        return f"has moved to the database {self.place}, as job {self.new_id}"


class MovedLane(NamedTuple):
    """A queue and a kind."""

    queue: str
    kind: str


def last_job_id() -> Statement[int]:
    """Return the last id that a job got."""
    return statement("last_job_id", value)


def depart_jobs(  # noqa: PLR0913 - one keyword per bound
    destination: str, place: str, which: Which, *, since: int, last: int, limit: int
) -> Statement[Departed]:
    """Take a batch of waiting jobs with ids above `since`, up to `last`, out of this database.

    `destination`: the identity of its schema. `place`: what operators call it.
    """
    return statement(
        "depart_jobs", one(Departed), destination=destination, place=place, since=since, last=last, limit=limit,
        **_which(which),
    )  # fmt: skip


def next_departure(destination: str) -> Statement[Departure | None]:
    """Return the oldest batch that has not arrived; None: there is none."""
    return statement("next_departure", one_or_none(Departure), destination=destination)


def late_departures() -> Statement[list[LateDepartures]]:
    """Return the batches that have not arrived, by destination. At most 10,000 are counted."""
    return statement("late_departures", many(LateDepartures), limit=_MOST_ARRIVALS)


def count_held_keys() -> Statement[list[HeldKeys]]:
    """Return how many order keys are held because jobs of them have moved. See MOST_COUNTED."""
    return statement("count_held_keys", many(HeldKeys), limit=MOST_COUNTED)


def count_left_waiters() -> Statement[list[LeftWaiters]]:
    """Return how many jobs wait here for chains that have moved. At most 10,000 open blockers are looked at."""
    return statement("count_left_waiters", many(LeftWaiters), limit=_MOST_ARRIVALS)


def list_moved_blockers(job_id: int) -> Statement[list[MovedBlocker]]:
    """Return the chains that a job waits for and that have moved. At most 100 of its chains are looked at."""
    return statement("list_moved_blockers", many(MovedBlocker), id=job_id, limit=_MOST_BLOCKERS)


def arrive_jobs(departure: Departure, source: str) -> Statement[Arrival]:
    """Store a batch once; return what became of it, now or the first time. `source`: the identity of its database."""
    return statement("arrive_jobs", one(Arrival), departure=departure.id, source=source, body=departure.body)


def refuse_arrival(departure: Departure, source: str) -> Statement[Arrival]:
    """Decide that a batch will not arrive, unless it has."""
    return statement("refuse_arrival", one(Arrival), departure=departure.id, source=source)


def mark_arrived(departure: Departure, arrival: Arrival) -> Statement[bool]:
    """Record that the destination has a batch. False: that was known."""
    return statement(
        "mark_arrived", value, departure=departure.id, ids=number_array(arrival.job_ids or ()),
        new_ids=number_array(arrival.new_ids or ()), chains=number_array(arrival.chain_ids or ()),
    )  # fmt: skip


def call_back_jobs(departure: Departure) -> Statement[CalledBack]:
    """Make the jobs of a batch that its destination has refused live again."""
    return statement("call_back_jobs", one(CalledBack), departure=departure.id)


def unconfirmed_arrivals(source: str) -> Statement[list[str]]:
    """Return the batches that arrived and are not confirmed, see `confirm_arrivals`."""
    return statement("unconfirmed_arrivals", column, source=source, limit=_MOST_ARRIVALS)


def unfinished_departures(departures: Iterable[str]) -> Statement[list[str]]:
    """Return those of these batches that are not marked as arrived."""
    return statement("unfinished_departures", column, departures=text_array(departures))


def confirm_arrivals(departures: Iterable[str]) -> Statement[None]:
    """Record that the source has marked these batches: their records are deleted in 14 days."""
    return statement("confirm_arrivals", nothing, departures=text_array(departures))


def held_keys(destination: str, *, after: str = "", limit: int = MOST_KEYS) -> Statement[list[HeldKey]]:
    """Return order keys of which jobs have moved to this destination, by name, after a name."""
    return statement("held_keys", many(HeldKey), destination=destination, after=after, limit=limit)


def held_key(key: str) -> Statement[str | None]:
    """Return the database that jobs of this order key have moved to; None: the key is not held for that."""
    return statement("held_key", one_or_none(str), key=key)


def keys_under_way(keys: Iterable[str], source: str) -> Statement[list[str]]:
    """Return those of these order keys of which jobs from `source` may not have ended, here or elsewhere."""
    return statement("keys_under_way", column, keys=text_array(keys), source=source)


def release_key(key: HeldKey) -> Statement[bool]:
    """Let the jobs of an order key run here again. False: more of them have left."""
    return statement("release_key", value, key=key.name, stopped=key.stopped_at.isoformat())


def count_movable(destination: str, which: Which, *, last: int) -> Statement[list[MovableCount]]:
    """Count the oldest jobs by queue, kind and what keeps them. See MOST_COUNTED."""
    return statement(
        "count_movable", many(MovableCount), destination=destination, last=last, limit=MOST_COUNTED, **_which(which)
    )


def find_moved(job_id: int) -> Statement[Moved | None]:
    """Return where a job has gone; None: it has not moved, or that was too long ago."""
    return statement("find_moved", one_or_none(Moved), id=job_id)


def find_moved_jobs(job_ids: Iterable[int], *, limit: int = 1_000) -> Statement[dict[int, Moved]]:
    """Return where these jobs have gone. Those that have not moved are left out."""
    read = many(Moved)
    return statement(
        "find_moved_jobs", lambda rows: {moved.job_id: moved for moved in read(rows)}, ids=number_array(job_ids),
        limit=limit,
    )  # fmt: skip


def unserved_there(lanes: Iterable[MovedLane]) -> Statement[list[MovedLane]]:
    """Return those of these queues and kinds that no live worker takes."""
    given = list(lanes)
    queues, kinds = text_array(lane.queue for lane in given), text_array(lane.kind for lane in given)
    return statement("unserved_there", many(MovedLane), queues=queues, kinds=kinds)


def delete_moved(*, limit: int = 10_000) -> Statement[int]:
    """Delete the records of moves that ended 14 days ago. Those of chains that jobs wait for here are kept."""
    return statement("delete_moved", value, limit=limit)


def _which(which: Which) -> dict[str, str | None]:
    return {
        "queues": None if which.queues is None else text_array(which.queues),
        "kinds": None if which.kinds is None else text_array(which.kinds),
    }
