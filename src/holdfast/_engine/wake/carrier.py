"""The interface of a broker that carries wake-ups: short messages to current subscribers, stored nowhere."""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

from holdfast._logs.log import Log

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

log = Log(__name__)

# A broker without an answer for this many seconds counts as down.
PATIENCE = 2.0

_NAME = re.compile(r"[A-Za-z0-9_-]{1,50}")


class CarrierSession(Protocol):
    """One connection to a broker. Any exception means that the connection is lost."""

    async def subscribe(self, *channels: str) -> None: ...

    async def unsubscribe(self, channel: str) -> None: ...

    async def publish(self, channel: str, text: str) -> None: ...

    async def run(self) -> None:
        """Receive until the connection is lost, then raise."""


class Carrier(ABC):
    """A broker and its address. `name` is the prefix of every channel; one broker may serve several names."""

    def __init__(self, url: str, *, name: str = "holdfast") -> None:
        if not _NAME.fullmatch(name):
            raise ValueError(f"the name {name!r} is not 1 to 50 letters, digits, hyphens and underscores")
        self.url = url
        self.name = name

    @property
    def open_channel(self) -> str:
        """The channel on which producers announce commits; every worker of this name subscribes to it."""
        return f"{self.name}.wake"

    @abstractmethod
    def open(self, on_message: Callable[[str, bytes], None]) -> AbstractAsyncContextManager[CarrierSession]:
        """Connect once, without retries. `on_message(channel, data)` is called while `run` runs."""

    async def wake(self, *queues: str) -> bool:
        """Wake all sleepers of these queues, or of all. Return False if the broker is unreachable: workers poll."""
        try:
            async with asyncio.timeout(PATIENCE), self.open(_ignore) as session:
                for queue in queues or ("",):
                    await session.publish(self.open_channel, queue)
        except Exception as exc:  # noqa: BLE001 - the job is committed: no broker error may fail the call
            log.warning("no worker could be woken, polling goes on", extra={"error": type(exc).__name__})
            return False
        return True


def _ignore(_channel: str, _data: bytes) -> None:
    pass
