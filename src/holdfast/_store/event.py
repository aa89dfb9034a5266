"""Publishes events and records received messages, each with one call in the caller's transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._logs.trace import current_trace
from holdfast._store.statement import Statement, column, json_text, statement, value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast._model.event import NewEvent

CONSUMER_LIMIT = 200


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
    )


def publish_events(events: Sequence[NewEvent]) -> Statement[list[int]]:
    """Append the events to the log and return their ids in the same order."""
    text = f"[{','.join([event.as_json() for event in events])}]"
    return statement("publish_events", column, events=text)


def receive_message(consumer: str, message_id: str, *, xid: str) -> Statement[bool | None]:
    """Record that a consumer processes a message in this transaction; return False when it has done so before.

    `xid`: the result of `own_transaction` in an earlier statement. None is returned when this is another transaction.
    """
    return statement("receive_message", value, consumer=consumer, message_id=message_id, xid=xid)
