"""Publishing, and receiving once: each one call in the caller's own transaction."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from holdfast.store.statement import Row, Statement, statements
from holdfast.trace import current_trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.event import NewEvent
    from holdfast.store.statement import Parameter

CONSUMER_LIMIT = 200


def publish_event(event: NewEvent) -> Statement[int]:
    """Append one event; the answer is its id."""
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
    """Append the events; the ids come back in the order given."""
    text = f"[{','.join([event.as_json() for event in events])}]"
    return Statement(statements()["publish_events"], {"events": text}, lambda rows: [row[0] for row in rows])


def receive_message(consumer: str, message_id: str, *, xid: str) -> Statement[bool | None]:
    """Take note that a consumer deals with a message in this transaction; False when it has done so before.

    `xid`: what `own_transaction` answered in a statement before. None: this is another transaction.
    """
    params: dict[str, Parameter] = {"consumer": consumer, "message_id": message_id, "xid": xid}
    return Statement(statements()["receive_message"], params, lambda rows: rows[0][0])


def _only(rows: Sequence[Row]) -> int:
    number: int = rows[0][0]
    return number
