"""The processes of a worker: one imports the application ahead of the jobs, and more follow as jobs need them."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
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
    from holdfast._model.settings import Settings

# A call without an idle process looks for one this often, in seconds.
LOOK_SECONDS = 0.05
# A process that has run nothing for so many seconds ends, unless it is the only one.
IDLE_SECONDS = 60.0


class Processes:
    """As many processes as jobs need, at most as many as the slots want. Each is kept by a loop of its own."""

    def __init__(self, slots: Slots, modules: Sequence[str], keeper: Keeper, settings: Settings) -> None:
        """`modules`: those of the handlers."""
        self._slots = slots
        self._wanted = slots.processes
        self._modules = modules
        self._keeper = keeper
        self._max_jobs = settings.process_max_jobs or math.inf
        self._max_memory = (settings.process_max_memory_mb or math.inf) * 2**20
        self._loops: dict[int, Kept] = {}
        self._ready: set[Child] = set()
        self._failing: set[int] = set()
        """The loops whose last process did not start."""
        self._idle: list[Child] = []
        self.on_change: Callable[[], None] = lambda: None
        """Called when more or fewer are ready."""

    def start(self, jobs: int = 1) -> None:
        """Have one process for each of these waiting jobs, beside those that run one, as far as the slots want them."""
        running = len(self._ready) - len(self._idle)
        for number in range(self._wanted):
            if len(self._loops) >= running + jobs:
                break
            if number not in self._loops:
                loop = self._keeper.start("process", partial(self._keep, number), detail=str(number))
                self._loops[number] = loop

    async def stop(self) -> None:
        """End them all."""
        loops = list(self._loops.values())
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*(loop.wait() for loop in loops))

    async def take(self, signal: AbortSignal) -> Child:
        """Take an idle process. There is one, unless a middleware has killed that of the attempt and calls again."""
        while not self._idle:
            signal.raise_if_aborted()
            await asyncio.sleep(LOOK_SECONDS)
        child = self._idle.pop()
        child.taken = True
        child.jobs += 1
        return child

    def give_back(self, child: Child, *, reusable: bool) -> None:
        child.taken = False
        if reusable and child.alive and not child.busy and not self._is_worn(child):
            self._idle.append(child)
        else:
            self._drop(child)

    def _is_worn(self, child: Child) -> bool:
        """Return whether another process is to take its place, since its handlers may have left memory behind."""
        return child.jobs >= self._max_jobs or (self._max_memory < math.inf and child.memory > self._max_memory)

    async def _keep(self, number: int, turn: Turn) -> None:
        """Keep one process until it is idle too long. If it does not start, the keeper tries again later."""
        while True:
            turn(children.START_SECONDS)
            child = Child(self._modules)
            try:
                await self._begin(number, child)
                turn(math.inf)
                needed = await self._offer(number, child)
            finally:
                self._drop(child)
                child.stop()
            if not needed:
                return

    async def _begin(self, number: int, child: Child) -> None:
        try:
            await in_thread(child.start, name="process")
        except Exception:
            self._failing.add(number)
            raise
        self._failing.discard(number)

    async def _offer(self, number: int, child: Child) -> bool:
        """Offer it to attempts until it has ended. Return False if it has been idle too long."""
        loop, sentinel = asyncio.get_running_loop(), child.sentinel
        self._ready.add(child)
        self._idle.append(child)
        self._tell()
        loop.add_reader(sentinel, self._ended, child)
        try:
            while not child.over.is_set():
                jobs = child.jobs
                with suppress(TimeoutError):
                    async with asyncio.timeout(IDLE_SECONDS):
                        await child.over.wait()
                if child in self._idle and child.jobs == jobs and len(self._loops) > 1:
                    del self._loops[number]
                    return False
            return True
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
        # As many as could be started; if one has failed to start, as many as there are.
        kept = len(self._loops) - len(self._failing) if self._failing else self._wanted
        self._slots.use_processes(ready=len(self._ready), kept=kept)
        self.on_change()
