"""What a sink is given, and what it answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime


@dataclass(frozen=True, slots=True)
class Message:
    """One event, as it goes out."""

    id: str
    """For deduplication: the same event has the same id at every try, and no other event has it."""
    topic: str
    key: str | None
    """Messages of one key are handed over in order, one at a time; None: in any order."""
    body: bytes
    headers: Mapping[str, str]
    published_at: datetime
    content_type: str = "application/json"


# A sink that asks to be left alone for longer, in seconds, is asked again after this: everything waits for the answer.
LONGEST_REST = 300.0


class Receipt(NamedTuple):
    """What the other side answered, where that is worth keeping."""

    status: int
    text: str


class Refused(HoldfastError):  # noqa: N818 - a name says what happened
    """The sink will never take this message as it is."""


class Gone(HoldfastError):  # noqa: N818 - a name says what happened
    """The other side is gone for good and wants nothing more: the subscription is paused until a person resumes it."""


class Unavailable(HoldfastError):  # noqa: N818 - a name says what happened
    """The sink takes nothing for now."""

    def __init__(self, message: str | None = None, *, retry_after: float | None = None) -> None:
        super().__init__(*([message] if message else []))
        self.retry_after = retry_after
        """Seconds, when the sink knows. Five minutes are the most that a relay waits before it asks again."""


Publish: TypeAlias = Callable[[Message], Awaitable[Receipt | None]]
"""Returns when the message is confirmed. Raises Refused, Gone, Unavailable, or whatever else went wrong: then it is
tried again. Called many times at once, never for two messages of one key."""


class Sink(Protocol):
    """Where a relay publishes."""

    @property
    def name(self) -> str:
        """For people: which broker, where, without a password."""
        ...

    def open(self) -> AbstractAsyncContextManager[Publish]:
        """Connect. The connection heals by itself; what was under way when it broke raises."""
        ...
