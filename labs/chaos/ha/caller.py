"""Producers as an application has them: one job in a transaction, repeated until its commit was acknowledged."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Self

from labs.chaos.prober import urgent

if TYPE_CHECKING:
    from types import TracebackType

    from labs.chaos.producer import Producer

CALLERS = 4
PAUSE = 0.05


class Callers:
    """While the `async with` block runs, each enqueues one job after the other."""

    def __init__(self, load: Producer) -> None:
        self.waits: list[tuple[float, float]] = []
        """By the monotonic clock: when the first try began, and how long it took until one was acknowledged."""
        self._load = load
        self._over = False
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._call()) for _ in range(CALLERS)]
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        if exc_type is not None:
            for task in self._tasks:
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=exc_type is not None)

    async def _call(self) -> None:
        while not self._over:
            begun = time.monotonic()
            await self._load.promise(urgent())
            self.waits.append((begun, time.monotonic() - begun))
            await asyncio.sleep(PAUSE)
