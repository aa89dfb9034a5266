"""Publishes events and records received messages, each with one call in the caller's transaction."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from holdfast._logs.trace import current_trace
from holdfast._store.statement import Row, Statement, statements

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast._model.event import NewEvent
    from holdfast._store.statement import Parameter

CONSUMER_LIMIT = 200


def publish_event(event: NewEvent) -> Statement[int]:
    """Append one event to the log and return its id."""
    return Statement(
        statements()["publish_event"],
        {
            "topic": event.topic,
            "payload": event.payload,
            "key": event.key,
            "headers": json.dumps(dict(event.headers)) if event.headers else None,
            "version": event.version,
            "trace": current_trace(),
        },
        _only,
    )


def publish_events(events: Sequence[NewEvent]) -> Statement[list[int]]:
    """Append the events to the log and return their ids in the same order."""
    text = f"[{','.join([event.as_json() for event in events])}]"
    return Statement(statements()["publish_events"], {"events": text}, lambda rows: [row[0] for row in rows])


def receive_message(consumer: str, message_id: str, *, xid: str) -> Statement[bool | None]:
    """Record that a consumer processes a message in this transaction; return False when it has done so before.

    `xid`: the result of `own_transaction` in an earlier statement. None is returned when this is another transaction.
    """
    params: dict[str, Parameter] = {"consumer": consumer, "message_id": message_id, "xid": xid}
    return Statement(statements()["receive_message"], params, lambda rows: rows[0][0])


def _only(rows: Sequence[Row]) -> int:
    number: int = rows[0][0]
    return number
