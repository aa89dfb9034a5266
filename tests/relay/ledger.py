"""A sink within the test: what it was asked to take, what it took, and when."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from holdfast import Retry
    from holdfast._relay.message import Message, Publish


class Ledger:
    """Takes messages of the form `{"n": 1}`. `refuses(n)` returns the error that one of them meets, or None."""

    name = "ledger"

    def __init__(
        self,
        refuses: Callable[[int], Exception | None] = lambda _: None,
        *,
        seconds: float = 0.0,
        retry: Retry | None = None,
    ) -> None:
        self._refuses = refuses
        self.seconds = seconds
        self.retry = retry
        self.asked: list[int] = []
        self.taken: list[int] = []
        self.in_flight: set[int] = set()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Publish]:
        yield self._publish

    async def _publish(self, message: Message) -> None:
        number: int = json.loads(message.body)["n"]
        self.asked.append(number)
        self.in_flight.add(number)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.in_flight.discard(number)
        if (refusal := self._refuses(number)) is not None:
            raise refusal
        self.taken.append(number)
