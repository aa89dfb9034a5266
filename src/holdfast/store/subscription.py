"""Subscriptions: taking part, moving on, and what people do with them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple, cast

from holdfast.failure import Failure
from holdfast.store.position import Position
from holdfast.store.statement import Row, Statement, statements, text_array

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from holdfast.store.position import LoggedEvent
    from holdfast.store.statement import Parameter

MOST_PARTITIONS = 64


class Subscribed(NamedTuple):
    id: int
    partitions: int
    """As it was cut when it was made."""


class Held(NamedTuple):
    """A partition in a worker's hands. Every write names its seq and token."""

    partition: int
    seq: int
    token: int
    position: Position


class Membership(NamedTuple):
    """What a member holds, and how much of it it should."""

    held: list[Held]
    share: int
    paused: bool
    elsewhere: bool
    """The positions are of another server: this database was restored, and must be rebased."""
    moved: bool
    """This call has found the server's identifier changed and the positions valid, as after pg_upgrade."""
    base_id: int
    partitions: int
    topics: tuple[str, ...]


class ParkedEvent(NamedTuple):
    """An event that is not handed over for now."""

    event_id: int
    key: str | None
    holds_key: bool
    attempt: int = 0
    retry_ms: int | None = None
    """None: when a person says so, or when what it follows is handed over."""
    error_code: str | None = None
    error: str | None = None
    """Of the one that was not taken; None of those that only follow it."""

    @classmethod
    def of(cls, event_id: int, key: str | None, attempt: int, wait: float | None, refusal: Exception) -> ParkedEvent:
        """`wait`: seconds until it is tried again."""
        failure = Failure.of(refusal)
        retry_ms = None if wait is None else round(wait * 1000)
        return cls(event_id, key, False, attempt, retry_ms, failure.code, failure.text)  # noqa: FBT003 - its holder decides


class Delivery(NamedTuple):
    """What a sink answered that keeps answers."""

    event_id: int
    attempt: int
    status: int
    answer: str


class Fed(NamedTuple):
    events: int
    more: bool


class SubscriptionLine(NamedTuple):
    """One partition of a subscription, for people."""

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


class ParkedLine(NamedTuple):
    event_id: int
    key: str | None
    holds_key: bool
    parked_at: datetime
    released_at: datetime | None
    error_code: str | None
    error: str | None
    topic: str | None


def subscribe(  # noqa: PLR0913 - what a subscription is made of
    name: str, *, target: str, topics: Iterable[str], partitions: int, beginning: bool, makes_jobs: bool = False
) -> Statement[Subscribed]:
    """Make the subscription if it is not there: from now on, or from the `beginning` of what is kept."""
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
    """Say that the worker takes part, for the length of a lease, and take what nobody alive holds; None: it is gone."""

    def membership(rows: Sequence[Row]) -> Membership | None:
        if not rows:
            return None
        *held, end = rows
        share, paused, elsewhere, moved, base_id, partitions, topics = end[13:]
        ours = [Held(row[0], row[1], row[2], Position(*row[3:13])) for row in held]
        return Membership(ours, share, paused, elsewhere, moved, base_id, partitions, tuple(topics))

    params: dict[str, Parameter] = {"subscription": subscription, "worker": worker, "lease_ms": lease_ms}
    return Statement(statements()["join_subscription"], params, membership)


def leave_subscription(subscription: int, worker: int) -> Statement[None]:
    """Leave everything to the others at once."""
    return Statement(
        statements()["leave_subscription"], {"subscription": subscription, "worker": worker}, lambda _: None
    )


def advance_position(  # noqa: PLR0913 - a fence has three parts
    subscription: int,
    worker: int,
    held: Held,
    position: Position,
    *,
    free: bool = False,
    parked: Sequence[ParkedEvent] = (),
    deliveries: Iterable[Delivery] = (),
) -> Statement[Held | None]:
    """Move on, and with `free` give the partition back; None when it is in other hands, and nothing was written."""

    def moved(rows: Sequence[Row]) -> Held | None:
        xid = rows[0][0]
        return None if xid is None else Held(held.partition, held.seq + 1, held.token, position.stored(xid))

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


def feed_jobs(  # noqa: PLR0913 - what a job needs
    subscription: int,
    worker: int,
    *,
    kind: str,
    queue: str,
    priority: int,
    max_attempts: int,
    ordered: bool,
    most: int,
) -> Statement[Fed | None]:
    """Make jobs of the next events, in one transaction with the new position; None: it is in other hands, or paused."""
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


class Released(NamedTuple):
    """Parked events whose time has come, in order, and how often each was tried."""

    events: list[LoggedEvent]
    tried: dict[int, int]


def released_events(subscription: int, partition: int, *, most: int) -> Statement[Released]:
    def released(rows: Sequence[Row]) -> Released:
        events = cast("list[LoggedEvent]", [row[:-1] for row in rows])
        return Released(events, {row[0]: row[-1] for row in rows})

    params: dict[str, Parameter] = {"subscription": subscription, "partition": partition, "most": most}
    return Statement(statements()["released_events"], params, released)


def settle_parked(
    subscription: int, worker: int, held: Held, *, done: Iterable[int], kept: Iterable[ParkedEvent]
) -> Statement[int]:
    """Forget parked events that were handed over, and keep those that were not taken again."""
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
    """Record that a reader of these topics sleeps and may be woken, for ten seconds."""
    params: dict[str, Parameter] = {"worker": worker, "topics": text_array(topics)}
    return Statement(statements()["read_on"], params, lambda _: None)


def own_transaction() -> Statement[str]:
    """Ask for a number above that of everybody who may have looked for readers too early."""
    return Statement(statements()["own_transaction"], {}, lambda rows: str(rows[0][0]))


def list_subscriptions() -> Statement[list[SubscriptionLine]]:
    return Statement(statements()["list_subscriptions"], {}, lambda rows: [SubscriptionLine._make(row) for row in rows])


def find_subscription(name: str) -> Statement[int | None]:
    return Statement(statements()["find_subscription"], {"name": name}, lambda rows: rows[0][0] if rows else None)


def pause_subscription(subscription: int, *, paused: bool) -> Statement[bool]:
    """Let nobody read it, or let them again."""
    params: dict[str, Parameter] = {"subscription": subscription, "paused": paused}
    return Statement(statements()["pause_subscription"], params, bool)


def replay_subscription(
    subscription: int, *, since: datetime | None = None, after: int | None = None
) -> Statement[int | None]:
    """Hand over again what was published since a time or after an event; None when nothing was."""
    params: dict[str, Parameter] = {
        "subscription": subscription,
        "since": None if since is None else since.isoformat(),
        "after": after,
    }
    return Statement(statements()["replay_subscription"], params, lambda rows: rows[0][0])


def skip_subscription(subscription: int) -> Statement[None]:
    """Pass everything that has been published until now."""
    return Statement(statements()["skip_subscription"], {"subscription": subscription}, lambda _: None)


def repartition_subscription(subscription: int, *, partitions: int) -> Statement[bool]:
    """Cut it anew; some events may be handed over again. False: it makes jobs, and is never cut."""
    params: dict[str, Parameter] = {"subscription": subscription, "partitions": partitions}
    return Statement(statements()["repartition_subscription"], params, lambda rows: bool(rows[0][0]))


def rebase_subscription(subscription: int) -> Statement[int | None]:
    """Begin anew on the server that this database was restored into; the answer is the first event handed over."""
    return Statement(statements()["rebase_subscription"], {"subscription": subscription}, lambda rows: rows[0][0])


def clear_subscription(subscription: int, *, most: int = 10_000) -> Statement[int]:
    """Delete a piece of what `delete_subscription` would have to; fewer than `most`: that was the last piece."""
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


def list_parked(subscription: int, *, after: int = 0, most: int = 100) -> Statement[list[ParkedLine]]:
    params: dict[str, Parameter] = {"subscription": subscription, "after": after, "most": most}
    return Statement(statements()["list_parked"], params, lambda rows: [ParkedLine._make(row) for row in rows])


def release_parked(subscription: int, *, key: str | None = None, most: int = 10_000) -> Statement[int]:
    """Let a relay try again what is parked, of one key or of all; the answer is how many events."""
    params: dict[str, Parameter] = {"subscription": subscription, "key": key, "key_again": key, "most": most}
    return Statement(statements()["release_parked"], params, _number)


def delete_positions(*, most: int = 10_000) -> Statement[int]:
    return Statement(statements()["delete_positions"], {"most": most, "most_in_all": most}, _number)


def delete_readers(*, most: int = 10_000) -> Statement[int]:
    return Statement(statements()["delete_readers"], {"most": most, "most_members": most}, _number)


def _number(rows: Sequence[Row]) -> int:
    number: int = rows[0][0]
    return number
