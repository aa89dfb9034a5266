"""Keeps the loops and threads of a worker running: one that fails is logged with its traceback and restarted."""

from __future__ import annotations

import asyncio
import math
import random
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

from holdfast._logs.log import Log
from holdfast._model.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

log = Log(__name__)

Role: TypeAlias = Literal[
    "start",
    "databases file",
    "claimer",
    "isolation",
    "finisher",
    "finisher apart",
    "reaper",
    "progress",
    "heartbeat",
    "heartbeat watch",
    "listener",
    "lending",
    "sink connection",
    "probe",
    "probe turn",
    "runner",
    "relay",
    "partition",
    "hook",
    "process",
]
"""Every loop and thread of a worker. `heartbeat` and `probe` are threads."""

# A loop that ran for this many seconds was healthy: its next failure counts as the first again.
WELL_SECONDS = 60.0
# A loop that fails this many times in a row is broken.
MOST_ENDS = 8
# The pause before a restart, in seconds.
SHORTEST_PAUSE = 0.1
LONGEST_PAUSE = 30.0
BROKEN_STATUS = 4
"""The exit status of a worker process with a broken loop."""


class Turn(Protocol):
    def __call__(self, rest: float = 0.0) -> None:
        """Note an iteration of a loop. `rest`: seconds until the next one may come; inf: it waits for work."""


def unwatched(rest: float = 0.0) -> None:
    """Note nothing: the `Turn` of a loop without a keeper."""


class LoopVitals(NamedTuple):
    """The state of one loop of a worker. Times are in seconds."""

    name: str
    running: bool
    """False: it has failed and waits for its restart."""
    turned: float
    """Seconds since its last iteration."""
    late: float
    """Seconds by which its next iteration is overdue; 0 if it is not."""
    ends: int
    """How many times it has failed."""
    broken: bool
    """Whether it has failed too many times in a row."""


class Kept:
    """One loop or thread of a worker."""

    def __init__(self, role: Role, detail: str, *, once: bool = False) -> None:
        self.role = role
        self.name: str = f"{role} {detail}" if detail else role
        self.once = once
        self.running = False
        self.stopping: bool = False
        self.ends = 0
        self.in_a_row = 0
        self.turned: float = time.monotonic()
        self.struck: BaseException | None = None
        self._due = math.inf
        self._over = asyncio.Event()
        self._stopped = threading.Event()
        self.task: asyncio.Task[None] | None = None
        self.thread: threading.Thread | None = None
        self.wake: Callable[[], None] = lambda: None
        """Interrupts the rest of a thread."""
        self.on_end: Callable[[], None] = lambda: None
        """Called when it has ended for good."""

    def turn(self, rest: float = 0.0) -> None:
        """Note an iteration; see `Turn`."""
        now = time.monotonic()
        self.turned, self._due = now, now + rest
        if self.struck is not None and self.task is None:
            error, self.struck = self.struck, None
            raise error

    def strike(self, error: BaseException) -> None:
        """Make it fail with this error: a loop at once, a thread at its next iteration. For tests of failures."""
        self.struck = error
        if self.task is not None:
            self.task.cancel()
        self.wake()

    def stop(self) -> None:
        """Do not restart it when it ends."""
        self.stopping = True
        self._stopped.set()

    def cancel(self) -> None:
        """End it for good. Call only in the event loop's thread."""
        self.stop()
        if self.task is not None:
            self.task.cancel()
        if self.task is None or self.task.done():
            self._over.set()

    @property
    def done(self) -> bool:
        """Whether it has ended for good."""
        return self._over.is_set()

    async def wait(self, seconds: float | None = None) -> bool:
        """Wait until it has ended for good. Return False if that takes longer than `seconds`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._over.wait()
        return self._over.is_set()

    def end(self) -> None:
        self._over.set()
        self.on_end()

    def pause(self, seconds: float) -> None:
        """Block a thread before its restart, until `stop` is called or `seconds` have passed."""
        self._stopped.wait(seconds)

    @property
    def vitals(self) -> LoopVitals:
        now = time.monotonic()
        return LoopVitals(
            self.name,
            self.running,
            now - self.turned,
            max(0.0, now - self._due),
            self.ends,
            self.in_a_row >= MOST_ENDS,
        )


class Keeper:
    """Starts the loops and threads of a worker. An exception in one of them is logged, and it is restarted."""

    def __init__(self, worker: str = "", broken: asyncio.Event | None = None, **extra: str) -> None:
        """`broken`: set when a loop fails repeatedly. It is still restarted, with growing pauses.

        `extra`: fields of its log lines, in addition to the worker.
        """
        self._extra = {name: value for name, value in {"worker": worker, **extra}.items() if value}
        self._broken = broken
        self._loop: asyncio.AbstractEventLoop | None = None
        self._kept: list[Kept] = []

    @property
    def loops(self) -> list[Kept]:
        return list(self._kept)

    @property
    def vitals(self) -> list[LoopVitals]:
        """The state of each loop. Safe to read from any thread."""
        return [kept.vitals for kept in self.loops]

    def start(
        self, role: Role, run: Callable[[Turn], Coroutine[Any, Any, None]], *, detail: str = "", once: bool = False
    ) -> Kept:
        """Run this in a task, and restart it when it raises. If it returns, it has ended for good.

        `once`: do not restart it, because the caller does.
        """
        self._loop = asyncio.get_running_loop()
        kept = Kept(role, detail, once=once)
        self._kept.append(kept)
        self._begin(kept, run)
        return kept

    def start_thread(self, role: Role, run: Callable[[Turn], None]) -> Kept:
        """Run this in a thread, and restart it when it ends before `Kept.stop` was called."""
        kept = Kept(role, "")
        self._kept.append(kept)
        self._loop = loop = asyncio.get_running_loop()
        kept.thread = threading.Thread(
            target=self._keep_thread, args=(kept, run, loop), name=f"holdfast-{role}", daemon=True
        )
        kept.running = True
        kept.thread.start()
        return kept

    async def stop(self, seconds: float | None = None) -> None:
        """End all loops for good and wait for each at most `seconds`. Threads end through their own `Kept.stop`."""
        loops = [kept for kept in self._kept if kept.thread is None]
        for kept in loops:
            kept.cancel()
        await asyncio.gather(*(kept.wait(seconds) for kept in loops))

    def _begin(self, kept: Kept, run: Callable[[Turn], Coroutine[Any, Any, None]]) -> None:
        if kept.stopping:
            self._end(kept)
            return
        kept.running, kept.struck = True, None
        kept.task = asyncio.create_task(self._keep(kept, run), name=f"holdfast-{kept.name}")
        kept.task.add_done_callback(lambda task: self._ended(kept, run, task))

    async def _keep(self, kept: Kept, run: Callable[[Turn], Coroutine[Any, Any, None]]) -> None:
        task = asyncio.current_task()
        while True:
            started_at = time.monotonic()
            error: BaseException
            kept.running = True
            try:
                await run(kept.turn)
            except asyncio.CancelledError as exc:
                struck, kept.struck = kept.struck, None
                if struck is not None and task is not None:
                    task.uncancel()
                if kept.stopping or (task is not None and task.cancelling()):
                    raise
                error = struck or exc
            except GeneratorExit:
                raise
            except BaseException as exc:  # noqa: BLE001 - every error is logged, and the loop is restarted
                error = exc
            else:
                kept.stop()
                return
            finally:
                kept.running = False
            rest = self._note(kept, error, started_at)
            if kept.once:
                return
            await asyncio.sleep(rest)

    def _ended(self, kept: Kept, run: Callable[[Turn], Coroutine[Any, Any, None]], task: asyncio.Task[None]) -> None:
        """Handle the end of the task itself: it was stopped, or code that does not own it has cancelled it."""
        kept.running = False
        struck, kept.struck = kept.struck, None
        ended = asyncio.CancelledError("cancelled from outside") if task.cancelled() else task.exception()
        error = struck or ended
        if kept.stopping or error is None:
            self._end(kept)
            return
        rest = self._note(kept, error, kept.turned)
        if kept.once:
            self._end(kept)
        else:
            task.get_loop().call_later(rest, self._begin, kept, run)

    def _keep_thread(self, kept: Kept, run: Callable[[Turn], None], loop: asyncio.AbstractEventLoop) -> None:
        while not kept.stopping:
            started_at = time.monotonic()
            error: BaseException | None = None
            kept.running = True
            try:
                run(kept.turn)
            except BaseException as exc:  # noqa: BLE001 - every error is logged, and the thread is restarted
                error = exc
            kept.running = False
            if not kept.stopping:
                kept.pause(self._note(kept, error, started_at))
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self._end, kept)

    def _end(self, kept: Kept) -> None:
        kept.end()
        with suppress(ValueError):
            self._kept.remove(kept)

    def _note(self, kept: Kept, error: BaseException | None, started_at: float) -> float:
        """Log an unexpected end, and return how many seconds to wait before the restart."""
        kept.ends += 1
        kept.in_a_row = 1 if time.monotonic() - started_at > WELL_SECONDS else kept.in_a_row + 1
        rest = backoff(kept.in_a_row)
        extra = {**self._extra, "loop": kept.name, "ends": kept.ends, "error": type(error).__name__}
        if kept.once:
            log.error("a loop of the worker ended", extra=extra, exc_info=error)
            return rest
        log.error("a loop of the worker ended, and is started again", extra={**extra, "again_in": rest}, exc_info=error)
        if kept.in_a_row == MOST_ENDS:
            log.critical("a loop of the worker cannot go on", extra=extra)
            if self._broken is not None and self._loop is not None:
                with suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(self._broken.set)
        return rest


def backoff(deaths: int) -> float:
    """Return how many seconds to wait after the nth failure in a row: 0.1 to 30, jittered."""
    longest = min(LONGEST_PAUSE, 2 * SHORTEST_PAUSE * 2.0 ** min(deaths - 1, 20))
    return random.uniform(longest / 2, longest)  # noqa: S311 - it spreads load, and is not used for security


async def in_thread(function: Callable[[], Any], *, name: str) -> Any:
    """Run a plain function in a daemon thread and return its result. Cancelling does not stop the thread."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if ended.cancelled():
            return
        if error is None:
            ended.set_result(result)
        else:
            ended.set_exception(error)

    def run() -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = function()
        except BaseException as exc:  # noqa: BLE001 - any exception is passed to the caller
            # A future rejects StopIteration, and SystemExit would end the event loop.
            error = exc if isinstance(exc, Exception) and not isinstance(exc, StopIteration) else _Raised(exc)
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name=f"holdfast-runner-{name}", daemon=True).start()
    return await ended


class _Raised(HoldfastError):  # noqa: N818 - the name states what happened
    """A runner raised an exception that ends programs, such as SystemExit."""

    def __init__(self, exc: BaseException) -> None:
        super().__init__(f"{type(exc).__name__}: {exc}")
        self.code = type(exc).__name__
