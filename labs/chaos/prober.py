"""Probes: urgent jobs that are enqueued one by one, so that a long wait means that a worker was not woken."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Literal, NamedTuple, Self, get_args

from labs.chaos import application
from labs.chaos.producer import Lane, Promised

if TYPE_CHECKING:
    import random
    from types import TracebackType

    from labs.chaos.producer import Producer

How = Literal["at once", "late", "rare"]


class Probe(NamedTuple):
    job: int
    how: How
    """Late: its transaction was open for long, and others of its kind overtook it. Rare: in one of many queues."""
    committed: float
    """By the monotonic clock."""


def urgent() -> Promised:
    return Promised(application.probe.new().options(priority=0), "probe")


def rare(queue: str) -> Promised:
    """Be no more urgent than others, in a queue of one's own."""
    return Promised(application.probe.new().options(queue=queue), "rare")


class Prober:
    """Sends probes for as long as its `async with` block runs."""

    def __init__(self, load: Producer, dice: random.Random) -> None:
        self.sent: list[Probe] = []
        self._lanes: dict[How, Lane] = {how: load.lane() for how in get_args(How)}
        self._dice = dice
        self._over = False
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._send(how)) for how in self._lanes]
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        await asyncio.gather(*self._tasks)

    async def _send(self, how: How) -> None:
        lane = self._lanes[how]
        while not self._over:
            await asyncio.sleep(self._dice.choice([0.03, 0.1, 0.3, 0.7]) * self._dice.uniform(0.5, 1.5))
            held = self._dice.uniform(0.5, 2.5) if how == "late" else 0
            promised = rare(self._dice.choice(application.RARE)) if how == "rare" else urgent()
            ids = await lane.commit([promised], whim=held)
            if ids is not None:
                self.sent.append(Probe(ids[0], how, time.monotonic()))
