"""Executors: handlers that are plain functions run in threads, or in processes if they keep a CPU core busy."""

from __future__ import annotations

import asyncio
import contextvars
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from holdfast._engine.jobs.child import ChildDied, ChildDiedIdle
from holdfast._engine.jobs.threads import Threads
from holdfast._logs.log import Log
from holdfast._model.errors import AbortReason, HoldfastError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from holdfast._engine.attempt import Attempt
    from holdfast._engine.jobs.child import Child
    from holdfast._engine.jobs.processes import Processes
    from holdfast._model.job import Job

log = Log(__name__)

# Seconds that the thread of a given-up attempt has to end before a warning is logged.
REPORT_SECONDS = 1.0


class Executors:
    """One thread per slot, and the processes."""

    def __init__(self, slots: int, processes: Processes) -> None:
        self._threads = Threads(slots)
        self.processes = processes
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        await self.processes.stop()
        # A thread that ignores its signal cannot be ended, and must not block the shutdown.
        self._threads.shutdown()

    async def run(self, attempt: Attempt, job: Job[Any], handler: partial[object]) -> object:
        if attempt.kind.work.in_process:
            try:
                return await self._run_in_process(attempt, job, handler.keywords)
            except ChildDiedIdle:
                # It ended between two jobs, and the handler was not called. Another one is in its place.
                return await self._run_in_process(attempt, job, handler.keywords)
        return await self._in_thread(attempt, handler)

    async def ended(self, attempt: Attempt) -> None:
        """Return when no call of this attempt runs any more: then its slot is free, and its job may run again.

        Cancelling a call, for example by a middleware's timeout, does not end its thread. Once closed,
        no attempt waits for it.
        """
        running = [call for call in attempt.calls or () if not call.cancel() and not call.done()]
        if not running or self._closed:
            return
        for each in attempt.group or (attempt,):
            each.signal.abort(AbortReason.timeout)
        waiting = {asyncio.wrap_future(call) for call in running}
        _, waiting = await asyncio.wait(waiting, timeout=REPORT_SECONDS)
        if waiting:
            log.warning(
                "a handler goes on in its thread after its attempt was given up; it keeps its slot until it returns",
                extra={"job": attempt.claimed.id, "kind": attempt.claimed.kind},
            )
            await asyncio.wait(waiting)

    async def _in_thread(
        self, attempt: Attempt, function: Callable[[], object], give_up: Callable[[], None] | None = None
    ) -> object:
        """Call the function in a thread. On cancellation, do not wait for it, unless `give_up()` can end it."""
        if attempt.over:
            raise HoldfastError(f"{attempt.claimed.kind}: called after its attempt had ended")
        call = self._threads.submit(contextvars.copy_context().run, _caught, function)
        attempt.calls = [*(attempt.calls or ()), call]
        running = asyncio.wrap_future(call)
        try:
            result, error = await asyncio.shield(running)
        except asyncio.CancelledError:
            call.cancel()
            if give_up is not None:
                give_up()
                await asyncio.wait({running})
            raise
        if error is not None:
            raise error
        return result

    async def _run_in_process(self, attempt: Attempt, job: Job[Any], arguments: Mapping[str, object]) -> object:
        child = await self.processes.take(attempt.signal)
        watch = asyncio.create_task(_kill_when_aborted(attempt, child))
        try:
            return await self._in_thread(attempt, partial(child.call, attempt, job, arguments), give_up=child.kill)
        except ChildDied:
            attempt.signal.raise_if_aborted()
            raise
        finally:
            watch.cancel()
            self.processes.give_back(child, reusable=not attempt.signal.aborted)


def _caught(function: Callable[[], object]) -> tuple[object, BaseException | None]:
    """Return a raised exception as a value: futures reject StopIteration, and coroutines GeneratorExit."""
    try:
        return function(), None
    except BaseException as exc:  # noqa: BLE001 - raised again where it is awaited
        return None, exc


async def _kill_when_aborted(attempt: Attempt, child: Child) -> None:
    await attempt.signal.wait()
    child.kill()
