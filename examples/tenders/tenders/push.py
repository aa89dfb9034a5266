"""A provider of push notifications, as the chain of a delivery sees it: what it is asked, and what it may answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

LONGEST_MESSAGE = 500


@dataclass(frozen=True, slots=True)
class Push:
    """A notification for one phone."""

    token: str
    title: str
    body: str
    data: dict[str, str]
    """For the application on the phone. `id` is the key of the delivery: a push that is sent again has the same one."""


@dataclass(frozen=True, slots=True)
class Sent:
    """The provider has the push. The ticket is the number under which it can be asked what became of it."""

    ticket: str


@dataclass(frozen=True, slots=True)
class Delivered:
    """The phone's own service has the push."""


@dataclass(frozen=True, slots=True)
class Retryable:
    """It did not work, and may work later."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Refused:
    """It will never work."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Unregistered:
    """The phone is gone, or the application was removed from it."""

    code: str
    message: str


Ticket: TypeAlias = Sent | Retryable | Refused | Unregistered
Receipt: TypeAlias = Delivered | Retryable | Refused | Unregistered


class RateLimited(Exception):
    """The provider wants no more for now. `retry_after`: None if it did not say for how long."""

    def __init__(self, retry_after: timedelta | None) -> None:
        super().__init__("the provider answered that there are too many requests")
        self.retry_after = retry_after


class Unavailable(Exception):
    """The provider did not answer, or not in a way that tells what it did."""


class PushProvider(Protocol):
    """Sends pushes and returns receipts. Both calls may raise RateLimited and Unavailable."""

    @property
    def name(self) -> str: ...

    async def send(self, pushes: Sequence[Push]) -> Sequence[Ticket]:
        """Send them with one request, and return what became of each, in the same order."""
        ...

    async def fetch_receipts(self, tickets: Sequence[str]) -> Mapping[str, Receipt]:
        """Return with one request what became of each. One that is missing is not known yet."""
        ...
