"""Demand: how many more jobs one database wants, and what its claimer waits for until it wants more."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import KeysView

    from holdfast._engine.jobs.slots import Slots
    from holdfast._engine.session import Control


class Demand:
    """The demand of one database, which shares the slots of its worker with the others.

    The dispatcher and the finisher note when there may be more of it; the claimer waits for that.
    """

    def __init__(self, slots: Slots, control: Control) -> None:
        self.slots = slots
        self._control = control
        self.full = False
        """Whether outcomes arrive faster than they can be written: then no more jobs should start."""
        self.room = asyncio.Event()
        """Set when more jobs may be wanted."""
        self.woken = asyncio.Event()
        """Set when a sleeping claimer should claim."""
        self.asleep_for: KeysView[str] | None = None
        """The queues that wanted jobs when the claimer fell asleep; None while it is awake."""

    def wanted(self) -> dict[str, int]:
        """Return the number of jobs wanted by queue."""
        if self.full:
            return {}
        paused = self._control.paused
        return {queue: count for queue, count in self.slots.wanted(of=self).items() if queue not in paused}

    @property
    def limit(self) -> int:
        """How many jobs one claim may take."""
        return self.slots.limit(of=self)

    def overtaken(self) -> None:
        """Note that a claim took urgent jobs before others of their queue."""
        self.slots.overtaken(of=self)

    def openings(self) -> list[str]:
        """Return the queues that may start a job when nothing else runs."""
        return [queue for queue in self.slots.openings() if queue not in self._control.paused]

    def grew(self) -> None:
        """Note that a slot became free: wake the claimer if a queue that was full when it fell asleep has capacity."""
        self.room.set()
        if self.asleep_for is not None and not self.wanted().keys() <= self.asleep_for:
            self.woken.set()
