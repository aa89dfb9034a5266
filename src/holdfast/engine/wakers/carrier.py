"""What a broker must be able to do to carry wake-ups: short messages, to whoever listens now, kept nowhere."""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

from holdfast.logs import Log

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

log = Log(__name__)

# Seconds after which a broker that has not answered counts as down.
PATIENCE = 2.0

_NAME = re.compile(r"[A-Za-z0-9_-]{1,50}")


class Session(Protocol):
    """One connection to a broker. Whatever it raises means that the connection is lost."""

    async def subscribe(self, *channels: str) -> None: ...

    async def unsubscribe(self, channel: str) -> None: ...

    async def publish(self, channel: str, text: str) -> None: ...

    async def run(self) -> None:
        """Receive until the connection is lost; raise then."""


class Carrier(ABC):
    """A broker and how to reach it. `name` comes first in every channel; one broker may carry several names."""

    def __init__(self, url: str, *, name: str = "holdfast") -> None:
        if not _NAME.fullmatch(name):
            raise ValueError(f"the name {name!r} is not 1 to 50 letters, digits, hyphens and underscores")
        self.url = url
        self.name = name

    @property
    def open_channel(self) -> str:
        """Where producers say that something was committed; heard by every worker of this name."""
        return f"{self.name}.wake"

    @abstractmethod
    def open(self, on_message: Callable[[str, bytes], None]) -> AbstractAsyncContextManager[Session]:
        """Connect once, without retrying; `on_message(channel, data)` is called while `run` runs."""

    async def wake(self, *queues: str) -> bool:
        """Wake every sleeper of these queues, or of all; False when the broker could not be reached: no harm done."""
        try:
            async with asyncio.timeout(PATIENCE), self.open(_ignore) as session:
                for queue in queues or ("",):
                    await session.publish(self.open_channel, queue)
        except Exception as exc:  # noqa: BLE001 - the job is committed, and whatever a broker's library raises is no reason to fail
            log.warning("nobody could be woken, polling will do", extra={"error": type(exc).__name__})
            return False
        return True


def _ignore(_channel: str, _data: bytes) -> None:
    pass
