"""The process of a command that runs handlers: log, signals, event loop, and a bounded exit."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from holdfast._logs.log import Log

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import FrameType

    from holdfast._model.settings import Settings

T = TypeVar("T")

log = Log(__name__)

SIGNALS = (signal.SIGINT, signal.SIGTERM)
# After the shutdown timeout a stopping process has this many more seconds to abort handlers, write their jobs' results
# and close its connections. Then it exits, even if something hangs.
GRACE_SECONDS = 10.0
# The exit status of a process that did not stop in time.
OVERDUE = 3
# After everything else, tasks and threads left by handlers have this many seconds to end.
_LAST_SECONDS = 1.0
# Threads for handlers that call `asyncio.to_thread`, in addition to one per slot.
_SPARE_THREADS = 22


def on_signals(callback: Callable[[], object]) -> None:
    """Call `callback` on the running loop for each SIGINT and SIGTERM."""
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, callback)


class Process:
    """Runs one coroutine in its own event loop, and exits within its time after a signal, even if handlers hang.

    `asyncio.run` waits without limit for tasks that swallow their cancellation and for threads of `asyncio.to_thread`.
    """

    def __init__(self, settings: Settings) -> None:
        self._timeout = settings.shutdown_timeout.total_seconds()
        self._slots = settings.concurrency
        self._alarm = Alarm()
        self._runner = asyncio.Runner()
        self._threads = ThreadPoolExecutor(self._slots + _SPARE_THREADS, thread_name_prefix="asyncio")
        self._left: set[asyncio.Task[Any]] = set()

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run to the end, then cancel the tasks that handlers left, and wait for them briefly."""
        loop = self._runner.get_loop()
        loop.set_default_executor(self._threads)
        # Imported objects stay. Each full collection would visit them again, and stop all handlers meanwhile.
        gc.freeze()
        try:
            return self._runner.run(main)
        finally:
            gc.unfreeze()
            loop.run_until_complete(self._cancel_all())

    def on_signals(
        self, gently: Callable[[], object], at_once: Callable[[], object], *, supervised: bool = False
    ) -> None:
        """Call these on the running loop: `gently` for the first SIGINT or SIGTERM, `at_once` for the second.

        The time limit starts with the first signal, and a third one has its default effect. A `supervised` process
        always stops gently on these signals, because a signal to the process group also reaches the supervisor, which
        forwards it. The supervisor sends SIGQUIT to stop it at once.
        """
        loop, counted = asyncio.get_running_loop(), not supervised

        def signalled(number: int, _frame: FrameType | None) -> None:
            hurry = number == signal.SIGQUIT or (counted and self._alarm.set)
            if hurry or not self._alarm.set:
                self.end_within(0.0 if hurry else self._timeout)
            if hurry and counted:
                for each in SIGNALS:
                    signal.signal(each, signal.SIG_DFL)
            loop.call_soon_threadsafe(at_once if hurry else gently)

        for number in (*SIGNALS, signal.SIGQUIT) if supervised else SIGNALS:
            # This wakes the loop. Python calls `signalled` between two instructions, even if a handler blocks the loop
            # or waits for a lock, which the loop's own signal handlers cannot do.
            loop.add_signal_handler(number, int)
            signal.signal(number, signalled)

    def end_within(self, seconds: float) -> None:
        """End the process after this many seconds plus the grace, if it still runs."""
        self._alarm.start(seconds + GRACE_SECONDS)

    def leave(self, status: int) -> None:
        """Return if nothing can keep Python from exiting. Otherwise end the process here."""
        if left := self._left_behind():
            log.warning("ended although handlers left something running: %s", ", ".join(left[:10]))
            end(status)
        self._runner.close()

    def fail(self) -> None:
        """Prepare the exit after an error that the caller still has to report."""
        if self._left_behind():
            self.end_within(0.0)
        else:
            self._runner.close()

    def _left_behind(self) -> list[str]:
        self._threads.shutdown(wait=False, cancel_futures=True)
        if (asgiref := sys.modules.get("asgiref.sync")) is not None:
            # Django's thread for `sync_to_async`. It is idle between two calls, and would wait for the exit of Python.
            asgiref.SyncToAsync.single_thread_executor.shutdown(wait=False)
        left = [f"task {task.get_name()}" for task in self._left]
        deadline = time.monotonic() + _LAST_SECONDS
        for thread in threading.enumerate():
            if thread is not threading.main_thread() and not thread.daemon:
                thread.join(max(0.0, deadline - time.monotonic()))
                if thread.is_alive():
                    left.append(f"thread {thread.name}")
        return left

    async def _cancel_all(self) -> None:
        tasks = asyncio.all_tasks() - {cast("asyncio.Task[Any]", asyncio.current_task())}
        for task in tasks:
            task.cancel()
        if tasks:
            _, self._left = await asyncio.wait(tasks, timeout=_LAST_SECONDS)


class Alarm:
    """A thread that ends the process at a given time."""

    def __init__(self) -> None:
        self._at = 0.0
        self._moved = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def set(self) -> bool:
        """Whether the countdown runs."""
        return self._thread is not None

    def start(self, seconds: float) -> None:
        """Start the countdown, or move its end."""
        self._at = time.monotonic() + seconds
        self._moved.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._wait, name="holdfast-alarm", daemon=True)
            self._thread.start()

    def _wait(self) -> None:
        while (left := self._at - time.monotonic()) > 0:
            self._moved.clear()
            self._moved.wait(left)
        # A hanging thread may hold the log's lock.
        last_line = threading.Thread(target=log.error, args=("not stopped in time: the process is ended",), daemon=True)
        last_line.start()
        last_line.join(_LAST_SECONDS)
        end(OVERDUE)


def end(status: int) -> NoReturn:
    """End the process now, after flushing the log and killing the handlers' processes."""
    for child in multiprocessing.active_children():
        child.kill()
    flushed = threading.Thread(target=_flush, daemon=True)
    flushed.start()
    flushed.join(_LAST_SECONDS)
    os._exit(status)


def _flush() -> None:
    logging.shutdown()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
