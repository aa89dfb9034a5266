"""Events: publishes them, records received messages, and reads the next page of the log."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from holdfast._logs.log import current_trace
from holdfast._model.errors import InvalidEvent
from holdfast._store.statement import Row, Statement, column, json_text, statement, text_array, value

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from holdfast._model.event import NewEvent

CONSUMER_LIMIT = 200
Phase: TypeAlias = Literal["again", "late", "new"]
# Above every transaction id: used while the id that bounds late transactions is unknown.
_ANY_XID = "18446744073709551615"


# A raw row of the log: id, topic, key, payload, headers, published_at, version, trace. An object with named fields for
# each row would cost a relay more than the rest of reading.
LoggedEvent: TypeAlias = tuple[int, str, "str | None", str, "str | None", "datetime", int, "str | None"]


def publish_event(event: NewEvent) -> Statement[int]:
    """Append one event to the log and return its id."""
    return statement(
        "publish_event",
        value,
        topic=event.topic,
        payload=event.payload,
        key=event.key,
        headers=json_text(event.headers),
        version=event.version,
        trace=current_trace(),
    ).storing(InvalidEvent)


def publish_events(events: Sequence[NewEvent]) -> Statement[list[int]]:
    """Append the events to the log and return their ids in the same order."""
    text = f"[{','.join([event.as_json() for event in events])}]"
    return statement("publish_events", column, events=text).storing(InvalidEvent)


def receive_message(consumer: str, message_id: str, *, xid: str) -> Statement[bool | None]:
    """Record that a consumer processes a message in this transaction; return False when it has done so before.

    `xid`: the result of `own_transaction` in an earlier statement. None is returned when this is another transaction.
    """
    received = statement("receive_message", value, consumer=consumer, message_id=message_id, xid=xid)
    return received.storing(InvalidEvent)


class Position(NamedTuple):
    """A row of the table `position`, whose comments explain each column."""

    seen: str
    seen_id: int
    seen_top: int
    seen_xid: str | None
    """None: not stored yet."""
    next: str | None = None
    next_id: int | None = None
    next_top: int | None = None
    next_xid: str | None = None
    phase: Phase | None = None
    last_id: int | None = None

    def stored(self, xid: str) -> Position:
        """Return the position after it was stored by transaction `xid`."""
        next_xid = (self.next_xid or xid) if self.next is not None else None
        return self._replace(seen_xid=self.seen_xid or xid, next_xid=next_xid)


class Cut(NamedTuple):
    """The events that a partition of a subscription reads."""

    topics: tuple[str, ...]
    """Empty: all topics."""
    partitions: int
    partition: int
    base_id: int = 0


class LogPage(NamedTuple):
    events: list[LoggedEvent]
    after: Position
    """Where reading continues after these events are delivered."""

    @property
    def last(self) -> bool:
        """Whether no more events existed when it was read."""
        return self.after.phase is None


def read_events(cut: Cut, position: Position, *, limit: int) -> Statement[LogPage]:
    """Read the next page, scanning at most `limit` events. It writes nothing and keeps no transaction open."""

    def page(rows: Sequence[Row]) -> LogPage:
        found: list[Any] = list(rows)
        end = json.loads(found.pop()[3])
        return LogPage(found, _after(position, found, end))

    params = cut._asdict() | position._asdict()
    params |= {"topics": text_array(cut.topics), "seen_xid": position.seen_xid or _ANY_XID, "limit": limit}
    return statement("read_events", page, **params)


def _after(before: Position, events: Sequence[LoggedEvent], end: dict[str, Any]) -> Position:
    if end["phase"] is None:
        return Position(end["next"], end["next_id"], end["next_top"], before.next_xid)
    to_next, last_id = end.get("next"), end.get("last_id")
    return before._replace(
        next=to_next,
        next_id=end.get("next_id"),
        next_top=end.get("next_top"),
        next_xid=before.next_xid if to_next == before.next else None,
        phase=end["phase"],
        last_id=events[-1][0] if last_id is None else last_id,
    )
