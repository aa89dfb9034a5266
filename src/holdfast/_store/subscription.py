"""Subscriptions: workers join them and advance their positions; operators pause, replay, skip and delete them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple, cast

from holdfast._logs.failure import Failure
from holdfast._store.position import Position
from holdfast._store.statement import Row, Statement, statements, text_array

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from holdfast._store.position import LoggedEvent
    from holdfast._store.statement import Parameter

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


class Fed(NamedTuple):
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


class ParkedRow(NamedTuple):
    event_id: int
    key: str | None
    holds_key: bool
    parked_at: datetime
    released_at: datetime | None
    error_code: str | None
    error: str | None
    topic: str | None


def subscribe(  # noqa: PLR0913 - one keyword per column
    name: str, *, target: str, topics: Iterable[str], partitions: int, beginning: bool, makes_jobs: bool = False
) -> Statement[Subscribed]:
    """Create the subscription if it does not exist, starting now or at the `beginning` of the stored log."""
    params: dict[str, Parameter] = {
        "name": name,
        "target": target,
        "topics": text_array(topics),
        "partitions": partitions,
        "beginning": beginning,
        "makes_jobs": makes_jobs,
    }
    return Statement(statements()["subscribe"], params, lambda rows: Subscribed._make(rows[0]))


def join_subscription(subscription: int, worker: int, *, lease_ms: int) -> Statement[Membership | None]:
    """Join a subscription for the length of a lease and take partitions that no live worker holds.

    Returns None when the subscription does not exist.
    """

    def membership(rows: Sequence[Row]) -> Membership | None:
        if not rows:
            return None
        *held, end = rows
        share, paused, elsewhere, moved, base_id, partitions, topics = end[13:]
        ours = [HeldPartition(row[0], row[1], row[2], Position(*row[3:13])) for row in held]
        return Membership(ours, share, paused, elsewhere, moved, base_id, partitions, tuple(topics))

    params: dict[str, Parameter] = {"subscription": subscription, "worker": worker, "lease_ms": lease_ms}
    return Statement(statements()["join_subscription"], params, membership)


def leave_subscription(subscription: int, worker: int) -> Statement[None]:
    """Release all partitions of this worker at once."""
    return Statement(
        statements()["leave_subscription"], {"subscription": subscription, "worker": worker}, lambda _: None
    )


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
    params: dict[str, Parameter] = {
        "subscription": subscription,
        "partition": held.partition,
        "seq": held.seq,
        "token": held.token,
        "worker": worker,
        "seen": position.seen,
        "seen_id": position.seen_id,
        "seen_top": position.seen_top,
        "seen_xid": position.seen_xid,
        "next": position.next,
        "next_id": position.next_id,
        "next_top": position.next_top,
        "next_xid": position.next_xid,
        "phase": position.phase,
        "last_id": position.last_id,
        "free": free,
        "parked": json.dumps([event._asdict() for event in parked]) if parked else None,
        "receipts": json.dumps(receipts) if receipts else None,
    }
    return Statement(statements()["advance_position"], params, moved)


def feed_jobs(  # noqa: PLR0913 - one keyword per column of a job
    subscription: int,
    worker: int,
    *,
    kind: str,
    queue: str,
    priority: int,
    max_attempts: int | None,
    ordered: bool,
    most: int,
) -> Statement[Fed | None]:
    """Make jobs from the next events and store the position in one transaction.

    Returns None when the subscription is paused or another worker holds it.
    """
    params: dict[str, Parameter] = {
        "subscription": subscription,
        "worker": worker,
        "kind": kind,
        "queue": queue,
        "priority": priority,
        "max_attempts": max_attempts,
        "ordered": ordered,
        "most": most,
    }
    return Statement(statements()["feed_jobs"], params, lambda rows: Fed._make(rows[0]) if rows else None)


def parked_keys(subscription: int, partition: int) -> Statement[set[str]]:
    params: dict[str, Parameter] = {"subscription": subscription, "partition": partition}
    return Statement(statements()["parked_keys"], params, lambda rows: {row[0] for row in rows})


class ReleasedEvents(NamedTuple):
    """Parked events that are due again, in order, and the number of attempts of each."""

    events: list[LoggedEvent]
    tried: dict[int, int]


def released_events(subscription: int, partition: int, *, most: int) -> Statement[ReleasedEvents]:
    def released(rows: Sequence[Row]) -> ReleasedEvents:
        events = cast("list[LoggedEvent]", [row[:-1] for row in rows])
        return ReleasedEvents(events, {row[0]: row[-1] for row in rows})

    params: dict[str, Parameter] = {"subscription": subscription, "partition": partition, "most": most}
    return Statement(statements()["released_events"], params, released)


def settle_parked(
    subscription: int, worker: int, held: HeldPartition, *, done: Iterable[int], kept: Iterable[ParkedEvent]
) -> Statement[int]:
    """Delete parked events that were delivered, and keep those that were rejected again."""
    outcomes = [{"event_id": id_, "done": True} for id_ in done]
    outcomes += [event._asdict() | {"done": False} for event in kept]
    params: dict[str, Parameter] = {
        "subscription": subscription,
        "partition": held.partition,
        "token": held.token,
        "worker": worker,
        "outcomes": json.dumps(outcomes),
    }
    return Statement(statements()["settle_parked"], params, _number)


def read_on(worker: int, topics: Iterable[str]) -> Statement[None]:
    """Record for ten seconds that a reader of these topics sleeps and can be woken."""
    params: dict[str, Parameter] = {"worker": worker, "topics": text_array(topics)}
    return Statement(statements()["read_on"], params, lambda _: None)


def own_transaction() -> Statement[str]:
    """Return a transaction id above those of all transactions that may have looked for readers too early."""
    return Statement(statements()["own_transaction"], {}, lambda rows: str(rows[0][0]))


def list_subscriptions() -> Statement[list[SubscriptionRow]]:
    return Statement(statements()["list_subscriptions"], {}, lambda rows: [SubscriptionRow._make(row) for row in rows])


def find_subscription(name: str) -> Statement[int | None]:
    return Statement(statements()["find_subscription"], {"name": name}, lambda rows: rows[0][0] if rows else None)


def pause_subscription(subscription: int, *, paused: bool) -> Statement[bool]:
    """Pause a subscription, or resume it."""
    params: dict[str, Parameter] = {"subscription": subscription, "paused": paused}
    return Statement(statements()["pause_subscription"], params, bool)


def replay_subscription(
    subscription: int, *, since: datetime | None = None, after: int | None = None
) -> Statement[int | None]:
    """Deliver again the events published since a time or after an event; None when there are none."""
    params: dict[str, Parameter] = {
        "subscription": subscription,
        "since": None if since is None else since.isoformat(),
        "after": after,
    }
    return Statement(statements()["replay_subscription"], params, lambda rows: rows[0][0])


def skip_subscription(subscription: int) -> Statement[None]:
    """Skip all events published until now."""
    return Statement(statements()["skip_subscription"], {"subscription": subscription}, lambda _: None)


def repartition_subscription(subscription: int, *, partitions: int) -> Statement[bool]:
    """Change the number of partitions; some events may be delivered again. False: it makes jobs, and has only one."""
    params: dict[str, Parameter] = {"subscription": subscription, "partitions": partitions}
    return Statement(statements()["repartition_subscription"], params, lambda rows: bool(rows[0][0]))


def rebase_subscription(subscription: int) -> Statement[int | None]:
    """Restart on the server that this database was restored to; return the first event that is delivered."""
    return Statement(statements()["rebase_subscription"], {"subscription": subscription}, lambda rows: rows[0][0])


def clear_subscription(subscription: int, *, most: int = 10_000) -> Statement[int]:
    """Delete up to `most` rows of a subscription before `delete_subscription`; fewer than `most`: none are left."""
    params: dict[str, Parameter] = {
        "subscription": subscription,
        "subscription_again": subscription,
        "most": most,
        "most_positions": most,
        "most_in_all": most,
    }
    return Statement(statements()["clear_subscription"], params, _number)


def delete_subscription(subscription: int) -> Statement[bool]:
    return Statement(statements()["delete_subscription"], {"subscription": subscription}, bool)


def list_parked(subscription: int, *, after: int = 0, most: int = 100) -> Statement[list[ParkedRow]]:
    params: dict[str, Parameter] = {"subscription": subscription, "after": after, "most": most}
    return Statement(statements()["list_parked"], params, lambda rows: [ParkedRow._make(row) for row in rows])


def release_parked(subscription: int, *, key: str | None = None, most: int = 10_000) -> Statement[int]:
    """Let a relay retry parked events, of one key or of all; return how many."""
    params: dict[str, Parameter] = {"subscription": subscription, "key": key, "key_again": key, "most": most}
    return Statement(statements()["release_parked"], params, _number)


def delete_positions(*, most: int = 10_000) -> Statement[int]:
    return Statement(statements()["delete_positions"], {"most": most, "most_in_all": most}, _number)


def delete_readers(*, most: int = 10_000) -> Statement[int]:
    return Statement(statements()["delete_readers"], {"most": most, "most_members": most}, _number)


def _number(rows: Sequence[Row]) -> int:
    number: int = rows[0][0]
    return number
