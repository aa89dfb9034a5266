"""One-shot ticks beside the replicas, one after the other, as cron starts them; some are killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import random
    from types import TracebackType

    from labs.chaos.fleet import Fleet

PREFIX = "tick."
"""The names of their workers begin so."""
# The time in which a tick starts work, and its lifetime: the longest handlers outlast the first and not the second.
ENVIRONMENT = {"HOLDFAST_TICK_RUNNER_MAX_MS": "1500", "HOLDFAST_TICK_OVERALL_MAX_MS": "10000"}
PAUSE = 3.0
KILLED, STOPPED = 0.25, 0.1
"""Of all ticks."""
# A runner may fail while the server is away; and the schema may be newer than what a tick was started with.
ALLOWED = (0, 1)


class Ticks:
    """`async with`: one tick at a time, a pause, and the next."""

    def __init__(self, fleet: Fleet, dice: random.Random) -> None:
        self.count = 0
        self._fleet = fleet
        self._dice = dice
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._dice.uniform(0.5, PAUSE))
            await self._tick()

    async def _tick(self) -> None:
        self.count += 1
        name = f"{PREFIX}{self.count}"
        environment = {"CHAOS_NAME": name, **ENVIRONMENT, **self._fleet.latest}
        path = self._fleet.folder / f"{name}.log"
        with path.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *("setpriv", "--pdeathsig=KILL", "--", sys.executable, "-m", "labs.chaos.tick"),
                cwd=self._fleet.code,
                env=os.environ | self._fleet.environment | environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        fate = self._dice.random()
        try:
            if fate < KILLED + STOPPED:
                await asyncio.sleep(self._dice.uniform(0.5, 3))
                with suppress(ProcessLookupError):
                    process.send_signal(signal.SIGKILL if fate < KILLED else signal.SIGTERM)
            code = await process.wait()
        except asyncio.CancelledError:
            with suppress(ProcessLookupError):
                process.terminate()
            await process.wait()
            raise
        if code not in (*ALLOWED, -signal.SIGKILL, -signal.SIGTERM):
            self._fleet.note_death(name, code, path.read_text(errors="replace"))
