"""Waiting for a state, with a bound, and time as a loaded machine has it."""

from __future__ import annotations

import asyncio
import inspect
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from holdfast._engine import link

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from holdfast._engine.serving import Serving
    from holdfast._engine.worker import Worker

SHORTEST_PAUSE = 0.005
LONGEST_PAUSE = 0.05


async def until(condition: Callable[[], object | Awaitable[object]], seconds: float = 30) -> None:
    """Return when the condition holds; fail when it does not within the time. How soon is for a `Stopwatch`.

    The condition is looked at soon after each statement of the engine. Changes by other means, in a handler, in
    another process or with time, are found by looking now and then.
    """
    deadline = time.monotonic() + seconds
    pause = SHORTEST_PAUSE
    statement = asyncio.Event()
    waiter = asyncio.get_running_loop(), statement
    _waiters.add(waiter)
    try:
        while True:
            held = condition()
            if await held if inspect.isawaitable(held) else held:
                return
            assert time.monotonic() < deadline, (
                f"not within {seconds} s: {inspect.getsource(condition).strip()}\n"
                f"Meanwhile, each task waits in\n{_waits()}"
            )
            try:
                async with asyncio.timeout(pause):
                    await statement.wait()
            except TimeoutError:
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                statement.clear()
                await asyncio.sleep(SHORTEST_PAUSE)  # the engine has the answer, and has yet to act on it
                pause = SHORTEST_PAUSE
    finally:
        _waiters.discard(waiter)


def _waits() -> str:
    """Return a line per task of the running loop: the coroutines that await each other, outermost first."""
    lines = []
    for task in asyncio.all_tasks():
        names, awaited = [], task.get_coro()
        while (frame := getattr(awaited, "cr_frame", None)) is not None:
            names.append(f"{awaited.__qualname__}:{frame.f_lineno}")  # type: ignore[union-attr]
            awaited = awaited.cr_await  # type: ignore[union-attr]
        lines.append(f"{task.get_name()}: {' > '.join(names)}")
    return "\n".join(sorted(lines))


def until_true(condition: Callable[[], object], seconds: float = 10) -> None:
    """Wait where there is no event loop."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {inspect.getsource(condition).strip()}"
        time.sleep(0.01)


def _wake() -> None:
    for loop, statement in tuple(_waiters):
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(statement.set)


_waiters: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
link.on_statement = _wake


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
