"""What a command that runs handlers needs of its process: a log, signals, an event loop, and an end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from holdfast import logs
from holdfast.logs import Log

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Coroutine
    from types import FrameType

    from holdfast.settings import Settings

T = TypeVar("T")

log = Log(__name__)

SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Beyond the shutdown timeout, a process that was told to stop has this long: to abort handlers, to write how their jobs
# ended, to close. Whatever hangs then is left, and the process ends.
GRACE_SECONDS = 10.0
# The exit status of a process that was ended because it had not stopped in time.
OVERDUE = 3
# Tasks and threads that handlers left behind have this long to end after everything else has.
_LAST_SECONDS = 1.0
# The threads for handlers that call `asyncio.to_thread`, beyond one for each slot.
_SPARE_THREADS = 22


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--log-format", choices=logs.FORMATS, help="default: HOLDFAST_LOG_FORMAT, else auto")
    parser.add_argument("--log-level", choices=logs.LEVELS, help="default: HOLDFAST_LOG_LEVEL, else info")


def start_log(arguments: argparse.Namespace, settings: Settings) -> None:
    """Log to standard error, and begin with what is odd about the settings."""
    chosen = cast("logs.Format", arguments.log_format or settings.log_format)
    logs.configure(chosen, arguments.log_level or settings.log_level)
    for note in settings.notes:
        log.warning("settings: %s", note)


def on_signals(told: Callable[[], object]) -> None:
    """Call this for each SIGINT and SIGTERM, on the running loop."""
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, told)


class Process:
    """Runs one coroutine in an event loop of its own, and ends within its time after a signal, whatever handlers do.

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
        """Run to the end. What handlers have left behind is cancelled then, and waited for briefly."""
        loop = self._runner.get_loop()
        loop.set_default_executor(self._threads)
        try:
            return self._runner.run(main)
        finally:
            loop.run_until_complete(self._cancel_all())

    def on_signals(
        self, gently: Callable[[], object], at_once: Callable[[], object], *, supervised: bool = False
    ) -> None:
        """Call these on the running loop: `gently` for the first SIGINT or SIGTERM, `at_once` for the second.

        The process's time runs from the first on, and a third signal has its usual effect. A process that is
        `supervised` stops gently however many it gets, since whoever signals a group signals its supervisor too, which
        passes on what it gets: SIGQUIT is its word for at once.
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
            # The loop is woken by this. Python calls the other between two instructions, also while a handler blocks
            # the loop; one that waits for a lock is interrupted for it, unlike with the loop's own signal handlers.
            loop.add_signal_handler(number, int)
            signal.signal(number, signalled)

    def end_within(self, seconds: float) -> None:
        """End the process after so many seconds and the grace, if it has not ended by then."""
        self._alarm.ring_in(seconds + GRACE_SECONDS)

    def leave(self, status: int) -> None:
        """Return if nothing is left that could keep Python from ending, else end the process here."""
        if left := self._left_behind():
            log.warning("ended although handlers left something running: %s", ", ".join(left[:10]))
            end(status)
        self._runner.close()

    def fail(self) -> None:
        """Let Python end with an error that the caller has yet to report."""
        if self._left_behind():
            self.end_within(0.0)
        else:
            self._runner.close()

    def _left_behind(self) -> list[str]:
        self._threads.shutdown(wait=False, cancel_futures=True)
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
    """A thread that ends the process at a time."""

    def __init__(self) -> None:
        self._at = 0.0
        self._moved = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def set(self) -> bool:
        """Whether the time runs."""
        return self._thread is not None

    def ring_in(self, seconds: float) -> None:
        """Set the time, or move it."""
        self._at = time.monotonic() + seconds
        self._moved.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._wait, name="holdfast-alarm", daemon=True)
            self._thread.start()

    def _wait(self) -> None:
        while (left := self._at - time.monotonic()) > 0:
            self._moved.clear()
            self._moved.wait(left)
        # A thread that is stuck may hold the lock of the log.
        said = threading.Thread(target=log.error, args=("not stopped in time: the process is ended",), daemon=True)
        said.start()
        said.join(_LAST_SECONDS)
        end(OVERDUE)


def end(status: int) -> NoReturn:
    """End the process now, with its log written and its handlers' processes killed."""
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
