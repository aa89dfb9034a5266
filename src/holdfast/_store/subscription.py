"""Subscriptions: workers join them and advance their positions; operators pause, replay, skip and delete them."""

from __future__ import annotations

import json
from datetime import datetime  # noqa: TC003 - pydantic reads the annotations
from typing import TYPE_CHECKING, NamedTuple, cast

from holdfast._logs.failure import Failure
from holdfast._store.answer import Answer, ErrorText, Id
from holdfast._store.event import Position
from holdfast._store.statement import (
    Row,
    Statement,
    many,
    nothing,
    one,
    one_or_none,
    statement,
    text_array,
    time_text,
    value,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast._store.event import LoggedEvent

MOST_PARTITIONS = 64


class Subscribed(NamedTuple):
    id: int
    partitions: int
    """The number of partitions it was created with."""


class HeldPartition(NamedTuple):
    """A partition that this worker holds. Every write is fenced by its seq and token."""

    partition: int
    seq: int
    token: int
    position: Position


class Membership(NamedTuple):
    """The partitions that a worker holds, and its fair share of them."""

    held: list[HeldPartition]
    share: int
    paused: bool
    elsewhere: bool
    """The positions belong to another server: this database was restored, and must be rebased."""
    moved: bool
    """This call found that the server's identifier changed and the positions are valid, as after pg_upgrade."""
    base_id: int
    partitions: int
    topics: tuple[str, ...]


class ParkedEvent(NamedTuple):
    """An event whose delivery is postponed."""

    event_id: int
    key: str | None
    holds_key: bool
    attempt: int = 0
    retry_ms: int | None = None
    """None: an operator must release it, or it waits for an earlier event of its key."""
    error_code: str | None = None
    error: str | None = None
    """The sink's error; None for events that only follow a rejected one."""

    @classmethod
    def of(cls, event_id: int, key: str | None, attempt: int, wait: float | None, refusal: Exception) -> ParkedEvent:
        """Return a parked event with its error. `wait`: seconds until the next attempt; None: until released."""
        failure = Failure.of(refusal)
        retry_ms = None if wait is None else round(wait * 1000)
        return cls(event_id, key, False, attempt, retry_ms, failure.code, failure.text)  # noqa: FBT003 - sets holds_key


class Delivery(NamedTuple):
    """The response of a sink that keeps responses."""

    event_id: int
    attempt: int
    status: int
    answer: str


class FeedResult(NamedTuple):
    events: int
    more: bool
    made: list[int]
    """The ids of the jobs."""


class SubscriptionRow(NamedTuple):
    """One partition of a subscription, for operators."""

    name: str
    target: str
    partition: int
    paused: bool
    elsewhere: bool
    worker: int | None
    events: int
    seconds: float
    parked: int
    at: datetime
    phase: str | None


class ParkedLine(Answer):
    event_id: Id
    topic: str | None
    key: str | None
    holds_key: bool
    parked_at: datetime
    released_at: datetime | None
    error_code: str | None
    error: ErrorText | None


def subscribe(  # noqa: PLR0913 - one keyword per column
    name: str, *, target: str, topics: Iterable[str], partitions: int, beginning: bool, makes_jobs: bool = False
) -> Statement[Subscribed]:
    """Create the subscription if it does not exist, starting now or at the `beginning` of the stored log."""
    return statement(
        "subscribe",
        one(Subscribed),
        name=name,
        target=target,
        topics=text_array(topics),
        partitions=partitions,
        beginning=beginning,
        makes_jobs=makes_jobs,
    )


def join_subscription(subscription: int, worker: int, *, lease_ms: int) -> Statement[Membership | None]:
    """Join a subscription for the length of a lease and take partitions that no live worker holds.

    Returns None when the subscription does not exist.
    """

    def membership(rows: Sequence[Row]) -> Membership | None:
        if not rows:
            return None
        *held, end = rows
        share, paused, elsewhere, moved, base_id, partitions, topics = end[13:]
        ours = [HeldPartition(row[0], row[1], row[2], Position._make(row[3:13])) for row in held]
        return Membership(ours, share, paused, elsewhere, moved, base_id, partitions, tuple(topics))

    return statement("join_subscription", membership, subscription=subscription, worker=worker, lease_ms=lease_ms)


def leave_subscription(subscription: int, worker: int) -> Statement[None]:
    """Release all partitions of this worker at once."""
    return statement("leave_subscription", nothing, subscription=subscription, worker=worker)


def advance_position(  # noqa: PLR0913 - a fence has three parts
    subscription: int,
    worker: int,
    held: HeldPartition,
    position: Position,
    *,
    free: bool = False,
    parked: Sequence[ParkedEvent] = (),
    deliveries: Iterable[Delivery] = (),
) -> Statement[HeldPartition | None]:
    """Store a position and, with `free`, release the partition; None: another worker holds it, nothing is written."""

    def moved(rows: Sequence[Row]) -> HeldPartition | None:
        xid = rows[0][0]
        return None if xid is None else HeldPartition(held.partition, held.seq + 1, held.token, position.stored(xid))

    receipts = [delivery._asdict() for delivery in deliveries]
    return statement(
        "advance_position",
        moved,
        subscription=subscription,
        partition=held.partition,
        seq=held.seq,
        token=held.token,
        worker=worker,
        **position._asdict(),
        free=free,
        parked=json.dumps([event._asdict() for event in parked]) if parked else None,
        receipts=json.dumps(receipts) if receipts else None,
    )


def feed_jobs(  # noqa: PLR0913 - one keyword per column of a job
    subscription: int,
    worker: int,
    *,
    kind: str,
    queue: str,
    priority: int,
    max_attempts: int | None,
    ordered: bool,
    limit: int,
    limits: Sequence[str] = (),
) -> Statement[FeedResult | None]:
    """Make jobs from the next events and store the position in one transaction.

    Returns None when the subscription is paused or another worker holds it.
    """
    return statement(
        "feed_jobs",
        one_or_none(FeedResult),
        subscription=subscription,
        worker=worker,
        kind=kind,
        queue=queue,
        priority=priority,
        max_attempts=max_attempts,
        ordered=ordered,
        limit=limit,
        limits=text_array(limits) if limits else None,
    )


def parked_keys(subscription: int, partition: int) -> Statement[set[str]]:
    return statement(
        "parked_keys", lambda rows: {row[0] for row in rows}, subscription=subscription, partition=partition
    )


class ReleasedEvents(NamedTuple):
    """Parked events that are due again, in order, and the number of attempts of each."""

    events: list[LoggedEvent]
    tried: dict[int, int]


def released_events(subscription: int, partition: int, *, limit: int) -> Statement[ReleasedEvents]:
    def released(rows: Sequence[Row]) -> ReleasedEvents:
        events = cast("list[LoggedEvent]", [row[:-1] for row in rows])
        return ReleasedEvents(events, {row[0]: row[-1] for row in rows})

    return statement("released_events", released, subscription=subscription, partition=partition, limit=limit)


def settle_parked(
    subscription: int, worker: int, held: HeldPartition, *, done: Iterable[int], kept: Iterable[ParkedEvent]
) -> Statement[int]:
    """Delete parked events that were delivered, and keep those that were rejected again."""
    outcomes = [{"event_id": id_, "done": True} for id_ in done]
    outcomes += [event._asdict() | {"done": False} for event in kept]
    return statement(
        "settle_parked",
        value,
        subscription=subscription,
        partition=held.partition,
        token=held.token,
        worker=worker,
        outcomes=json.dumps(outcomes),
    )


def record_reader(worker: int, topics: Iterable[str]) -> Statement[None]:
    """Record for ten seconds that a reader of these topics sleeps and can be woken."""
    return statement("record_reader", nothing, worker=worker, topics=text_array(topics))


def own_transaction() -> Statement[str]:
    """Return a transaction id above those of all transactions that may have looked for readers too early."""
    return statement("own_transaction", value)


def list_subscriptions() -> Statement[list[SubscriptionRow]]:
    return statement("list_subscriptions", many(SubscriptionRow))


def find_subscription(name: str) -> Statement[int | None]:
    return statement("find_subscription", lambda rows: rows[0][0] if rows else None, name=name)


def pause_subscription(
    subscription: int, *, paused: bool, by: str | None = None, reason: str | None = None
) -> Statement[bool]:
    """Pause or resume a subscription. `by` and `reason`: as of `pause_queue`."""
    return statement("pause_subscription", bool, subscription=subscription, paused=paused, by=by, reason=reason)


def replay_subscription(
    subscription: int, *, since: datetime | None = None, after: int | None = None
) -> Statement[int | None]:
    """Deliver again the events published since a time or after an event; None when there are none."""
    return statement("replay_subscription", value, subscription=subscription, since=time_text(since), after=after)


def skip_subscription(subscription: int) -> Statement[None]:
    """Skip all events published until now."""
    return statement("skip_subscription", nothing, subscription=subscription)


def repartition_subscription(subscription: int, *, partitions: int) -> Statement[bool]:
    """Change the number of partitions; some events may be delivered again. False: it makes jobs, and has only one."""
    return statement("repartition_subscription", value, subscription=subscription, partitions=partitions)


def rebase_subscription(subscription: int) -> Statement[int | None]:
    """Restart on the server that this database was restored to; return the first event that is delivered."""
    return statement("rebase_subscription", value, subscription=subscription)


def clear_subscription(subscription: int, *, limit: int = 10_000) -> Statement[int]:
    """Delete up to `limit` rows of a subscription before `delete_subscription`; fewer than `limit`: none are left."""
    return statement("clear_subscription", value, subscription=subscription, limit=limit)


def delete_subscription(subscription: int) -> Statement[bool]:
    return statement("delete_subscription", bool, subscription=subscription)


def list_parked(subscription: int, *, after: int = 0, limit: int = 100) -> Statement[list[ParkedLine]]:
    return statement("list_parked", many(ParkedLine.of), subscription=subscription, after=after, limit=limit)


def release_parked(subscription: int, *, key: str | None = None, limit: int = 10_000) -> Statement[int]:
    """Let a relay retry parked events, of one key or of all; return how many."""
    return statement("release_parked", value, subscription=subscription, key=key, limit=limit)


def delete_positions(*, limit: int = 10_000) -> Statement[int]:
    return statement("delete_positions", value, limit=limit)


def delete_readers(*, limit: int = 10_000) -> Statement[int]:
    return statement("delete_readers", value, limit=limit)
