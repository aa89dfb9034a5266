"""Waiting for a state, with a bound, and time as a loaded machine has it."""

from __future__ import annotations

import asyncio
import inspect
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from holdfast._engine.serving import Serving
    from holdfast._engine.worker import Worker


async def until(
    condition: Callable[[], object | Awaitable[object]], seconds: float = 30, *, every: float = 0.005
) -> None:
    """Return when the condition holds; fail when it does not within the time. How soon is for a `Stopwatch`."""
    deadline = time.monotonic() + seconds
    while True:
        held = condition()
        if await held if inspect.isawaitable(held) else held:
            return
        assert time.monotonic() < deadline, f"not within {seconds} s: {inspect.getsource(condition).strip()}"
        await asyncio.sleep(every)


def serving(worker: Worker) -> Serving:
    """Return what serves the first database of a worker that has started."""
    found = worker.pipelines[0].serving
    assert found is not None
    return found


async def after(seconds: float, started: float | None = None) -> None:
    """Let so much time pass, to show what does not happen meanwhile."""
    await asyncio.sleep(seconds - (0 if started is None else time.monotonic() - started))


class Stopwatch:
    """Counts the short sleeps of this loop within its block, so that what slows the machine slows the watch too."""

    _STEP = 0.01

    def __init__(self) -> None:
        self.seconds = 0.0

    def restart(self) -> None:
        self.seconds = 0.0

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._STEP)
            self.seconds += self._STEP
