"""The message that a sink receives, and the answers it can give."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from holdfast._model.errors import HoldfastError

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime


@dataclass(frozen=True, slots=True)
class Message:
    """One event in the form in which it is published."""

    id: str
    """For deduplication: unique per event, and the same on every attempt."""
    topic: str
    key: str | None
    """Messages of one key are delivered in order, one at a time. None: in any order."""
    body: bytes
    headers: Mapping[str, str]
    published_at: datetime
    content_type: str = "application/json"


# The longest rest, in seconds, that a sink may ask for: all its messages wait meanwhile.
LONGEST_REST = 300.0


class Receipt(NamedTuple):
    """The receiver's answer, for sinks whose answer is worth storing."""

    status: int
    text: str


class NotTaken(HoldfastError):  # noqa: N818 - named for what happened
    """The sink did not take the message this time.

    Cure: Nothing to do: the relay tries again.
    """

    def __init__(
        self, message: str | None = None, *, receipt: Receipt | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.receipt = receipt
        """The receiver's answer, if there was one."""
        self.retry_after = retry_after
        """In seconds, if the sink gives a time. A relay waits at most five minutes before it tries again."""


class Refused(NotTaken):
    """The sink will never take this message as it is.

    Cure: Correct the event or the sink, then release the parked event, or skip it.
    """


class Gone(NotTaken):
    """The other side is gone for good and wants nothing more: the subscription is paused until a person resumes it.

    Cure: Ask the receiver, then `holdfast events resume` the subscription, or delete it.
    """


class Unavailable(NotTaken):
    """The sink takes nothing for now.

    Cure: Nothing to do: the relay tries again.
    """


Publish: TypeAlias = Callable[[Message], Awaitable[Receipt | None]]
"""Publishes a message and returns when it is confirmed.

Raises Refused, Gone or Unavailable; after any other error the message is retried. Called concurrently, but never for
two messages of one key.
"""


class Sink(Protocol):
    """The destination that a relay publishes to."""

    @property
    def name(self) -> str:
        """The broker and its address, for display, without a password."""
        ...

    def open(self) -> AbstractAsyncContextManager[Publish]:
        """Connect. The connection is re-established by itself; calls in progress when it breaks raise."""
        ...
