"""The processes of a worker: they import the application ahead of the jobs, and one that ends is replaced."""

from __future__ import annotations

import asyncio
import math
from functools import partial
from typing import TYPE_CHECKING

from holdfast._engine.jobs import child as children
from holdfast._engine.jobs.child import Child
from holdfast._engine.keeper import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast._engine.jobs.slots import Slots
    from holdfast._engine.keeper import Keeper, Kept, Turn
    from holdfast._model.errors import AbortSignal

# A call without an idle process looks for one this often, in seconds.
LOOK_SECONDS = 0.05


class Processes:
    """As many processes as the slots want. Each is kept by a loop of its own."""

    def __init__(self, slots: Slots, modules: Sequence[str], keeper: Keeper) -> None:
        """`modules`: those of the handlers."""
        self._slots = slots
        self._wanted = slots.processes
        self._modules = modules
        self._keeper = keeper
        self._loops: list[Kept] = []
        self._ready: set[Child] = set()
        self._failing: set[int] = set()
        """The loops whose last process did not start."""
        self._idle: list[Child] = []
        self.on_change: Callable[[], None] = lambda: None
        """Called when more or fewer are ready."""

    def start(self) -> None:
        """Start them, unless that was done before."""
        if not self._loops:
            self._loops = [
                self._keeper.start("process", partial(self._keep, number), detail=str(number))
                for number in range(self._wanted)
            ]

    async def stop(self) -> None:
        """End them all."""
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*(loop.wait() for loop in self._loops))

    async def take(self, signal: AbortSignal) -> Child:
        """Take an idle process. There is one, unless a middleware has killed that of the attempt and calls again."""
        while not self._idle:
            signal.raise_if_aborted()
            await asyncio.sleep(LOOK_SECONDS)
        child = self._idle.pop()
        child.taken = True
        return child

    def give_back(self, child: Child, *, reusable: bool) -> None:
        child.taken = False
        if reusable and child.alive and not child.busy:
            self._idle.append(child)
        else:
            self._drop(child)

    async def _keep(self, number: int, turn: Turn) -> None:
        """Keep one process. If it does not start, the keeper tries again later."""
        while True:
            turn(children.START_SECONDS)
            child = Child(self._modules)
            try:
                await self._begin(number, child)
                turn(math.inf)
                await self._offer(child)
            finally:
                self._drop(child)
                child.stop()

    async def _begin(self, number: int, child: Child) -> None:
        try:
            await in_thread(child.start, name="process")
        except Exception:
            self._failing.add(number)
            raise
        self._failing.discard(number)

    async def _offer(self, child: Child) -> None:
        """Offer it to attempts until it has ended."""
        loop, sentinel = asyncio.get_running_loop(), child.sentinel
        self._ready.add(child)
        self._idle.append(child)
        self._tell()
        loop.add_reader(sentinel, self._ended, child)
        try:
            await child.over.wait()
        finally:
            loop.remove_reader(sentinel)

    def _ended(self, child: Child) -> None:
        asyncio.get_running_loop().remove_reader(child.sentinel)
        if not child.taken:
            self._drop(child)

    def _drop(self, child: Child) -> None:
        child.over.set()
        self._ready.discard(child)
        if child in self._idle:
            self._idle.remove(child)
        self._tell()

    def _tell(self) -> None:
        self._slots.use_processes(ready=len(self._ready), kept=self._wanted - len(self._failing))
        self.on_change()
