"""The receipt of a message, once for async and sync connections: its checks, and what its row becomes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._model.errors import InvalidEvent, InvalidJob, NoTransaction
from holdfast._model.option import KEY_LIMIT, check_text
from holdfast._store.event import CONSUMER_LIMIT, receive_message

if TYPE_CHECKING:
    from holdfast._store.statement import Statement


def check_receipt(message_id: str, consumer: str) -> None:
    try:
        check_text("message_id", message_id, KEY_LIMIT)
        check_text("consumer", consumer, CONSUMER_LIMIT)
    except InvalidJob as exc:
        raise InvalidEvent(str(exc)) from None


def receive(message_id: str, consumer: str, *, xid: str) -> Statement[bool]:
    """Return the statement that stores the receipt; its value is whether the message is new."""
    return receive_message(consumer, message_id, xid=xid).then(_fresh)


def _fresh(received: bool | None) -> bool:  # noqa: FBT001 - a result
    if received is None:
        raise NoTransaction
    return received
