"""A worker as the main thing of a process: signals stop it, and the process ends in time."""

from __future__ import annotations

import asyncio
import sys
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from holdfast._engine.keeper import BROKEN_STATUS
from holdfast._engine.process import Process
from holdfast._engine.supervisor import SPENT_STATUS
from holdfast._logs.log import Log
from holdfast._model.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from holdfast._engine.worker import Worker
    from holdfast._model.settings import Settings

log = Log(__name__)

# A cancelled gentle stop may still wait for the database, but no longer than this many seconds.
_CALLED_OFF_SECONDS = 1.0


def run_in_foreground(
    made: Callable[[], AbstractAsyncContextManager[Worker]],
    settings: Settings,
    *,
    started: Callable[[], object] = lambda: None,
    supervised: bool = False,
) -> int:
    """Run the worker of `made()` until it is stopped, and return the exit status of the process.

    `made()`: entered before the worker starts and left after it stopped. `started()` is called when the worker runs.
    `supervised`: a supervisor forwards the signals, and replaces the process.
    """
    if threading.current_thread() is not threading.main_thread():
        raise HoldfastError("app.run_worker: signals reach the main thread only: call it there, or use app.worker()")
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        raise HoldfastError("app.run_worker: an event loop runs here: write `async with app.worker(): …`")
    place = Process(settings)
    try:
        status = place.run(_work(made, settings, place, started=started, supervised=supervised))
    except BaseException:
        place.fail()
        raise
    place.leave(status)
    return status


async def _work(
    made: Callable[[], AbstractAsyncContextManager[Worker]],
    settings: Settings,
    place: Process,
    *,
    started: Callable[[], object],
    supervised: bool,
) -> int:
    stops = _Stops()
    end_soon = partial(place.end_within, settings.shutdown_timeout.total_seconds())
    place.on_signals(stops.gently, stops.at_once, supervised=supervised)
    if supervised:
        _watch_parent(stops, end_soon)
    async with made() as worker:
        await _run(worker, stops, end_soon, started)
    left = sum(len(pipeline.held) for pipeline in worker.pipelines)
    if left:
        log.error("jobs are left to the reaper: %d", left)
    for refused in filter(None, (pipeline.refused for pipeline in worker.pipelines)):
        raise refused
    if worker.broken.is_set():
        return BROKEN_STATUS
    if supervised and worker.spent.is_set() and not stops.first.is_set():
        return SPENT_STATUS
    return 1 if left else 0


async def _run(worker: Worker, stops: _Stops, end_soon: Callable[[], object], started: Callable[[], object]) -> None:
    try:
        async with worker:
            stops.starting = None
            started()
            await _until_over(worker, stops)
            if worker.broken.is_set() and not any(pipeline.refused for pipeline in worker.pipelines):
                log.critical("a loop cannot go on: the worker stops with exit status %d", BROKEN_STATUS)
                end_soon()
            if worker.spent.is_set():
                log.info("as many jobs have ended as the worker was to run")
                end_soon()
            await _stop(worker, stops)
    except asyncio.CancelledError:
        if not stops.second.is_set():
            raise
        log.warning("stopped before it had started")


async def _until_over(worker: Worker, stops: _Stops) -> None:
    """Return when a signal asks to stop, when a loop of the worker cannot go on, or when it has run its jobs."""
    waiting = [asyncio.create_task(event.wait()) for event in (stops.first, worker.broken, worker.spent)]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()


async def _stop(worker: Worker, stops: _Stops) -> None:
    log.info("stopping: running jobs may finish; a second signal stops at once")
    gently = asyncio.create_task(worker.stop())
    hurried = asyncio.create_task(stops.second.wait())
    await asyncio.wait((gently, hurried), return_when=asyncio.FIRST_COMPLETED)
    hurried.cancel()
    if gently.done():
        await gently
        return
    log.warning("stopping at once")
    gently.cancel()
    await asyncio.wait((gently,), timeout=_CALLED_OFF_SECONDS)
    await worker.stop(at_once=True)


class _Stops:
    """The requests made by signals: to stop gently, and to stop at once."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        self.starting: asyncio.Task[object] | None = asyncio.current_task()
        """The task to cancel on a stop at once, while the worker has not started."""

    def gently(self) -> None:
        self.first.set()

    def at_once(self) -> None:
        self.first.set()
        self.second.set()
        if self.starting is not None:
            self.starting.cancel()


def _watch_parent(stops: _Stops, end_in_time: Callable[[], None]) -> None:
    """Stop gently when the supervisor is gone, because it can no longer forward signals."""
    loop = asyncio.get_running_loop()
    lifeline = sys.stdin.fileno()

    def ended() -> None:
        loop.remove_reader(lifeline)
        if not stops.first.is_set():
            log.error("the supervisor is gone")
            end_in_time()
            stops.gently()

    loop.add_reader(lifeline, ended)
