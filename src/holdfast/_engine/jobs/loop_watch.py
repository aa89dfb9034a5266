"""The watch over the event loop: it names the task that blocks it, with its stack."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from contextlib import suppress
from typing import Any

from holdfast._logs.log import Log, context

log = Log(__name__)

# The threads of heartbeats look this often, in seconds.
LOOK_SECONDS = 0.5
# The loop is blocked if this many looks in a row find it in the same step. A process that was suspended has few looks.
LOOKS = 4
# A block that lasts is logged after this many seconds, and again after twice as many.
LASTING_SECONDS = 10.0
# The innermost calls that are logged.
CALLS = 12


class LoopWatch:
    """Asks the event loop for an answer, and notes the task that runs while none comes. One for each worker."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._looked_at = 0.0
        self._asked_at = 0.0
        self._answered_at: float | None = 0.0
        self._task: asyncio.Task[Any] | None = None
        self._looks = 0
        self._stack = ""
        self._lasting = LASTING_SECONDS

    def check(self, loop: asyncio.AbstractEventLoop, thread: int, *, busy: bool) -> None:
        """Check the loop, which runs in this `thread`, from another. It is left alone unless it is `busy`."""
        with self._lock:
            now = time.monotonic()
            # With several databases there are as many heartbeats.
            if (not busy and not self._looks) or now - self._looked_at < LOOK_SECONDS / 2:
                return
            self._looked_at = now
            task = asyncio.current_task(loop)
            if self._answered_at is None and task is not None and task is self._task:
                self._still_blocked(task, thread, now)
                return
            if self._looks >= LOOKS and self._task is not None:
                self._report("was", self._task, (self._answered_at or now) - self._asked_at)
            self._task, self._looks, self._lasting = task, 0, LASTING_SECONDS
            self._asked_at, self._answered_at = now, None
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        self._answered_at = time.monotonic()

    def _still_blocked(self, task: asyncio.Task[Any], thread: int, now: float) -> None:
        self._looks += 1
        if self._looks == LOOKS:
            self._stack = _stack_of(thread)
        if self._looks > LOOKS and now - self._asked_at > self._lasting:
            self._lasting *= 2
            self._stack = _stack_of(thread)
            self._report("has been", task, now - self._asked_at)

    def _report(self, is_: str, task: asyncio.Task[Any], seconds: float) -> None:
        fields = _fields_of(task)
        if "kind" not in fields:
            what, hint = f"the task {task.get_name()}", "call what blocks in a thread"
        else:
            job = f"job {fields['job']}" if "job" in fields else "a batch"
            what, hint = f"{job} of kind {fields['kind']}", "make the handler a plain function"
        log.warning("the event loop %s blocked for %.0f s by %s: %s\n%s", is_, seconds, what, hint, self._stack)


if sys.version_info >= (3, 12):

    def _fields_of(task: asyncio.Task[Any]) -> dict[str, Any]:
        """Return the fields of the task's log lines."""
        return {**task.get_context().get(context, {})}

else:

    def _fields_of(task: asyncio.Task[Any]) -> dict[str, Any]:  # noqa: ARG001
        """Return nothing: the context of a task cannot be read from outside."""
        return {}


def _stack_of(thread: int) -> str:
    frame = sys._current_frames().get(thread)  # noqa: SLF001 - the documented way to see another thread's stack
    return "".join(traceback.format_stack(frame)[-CALLS:]).rstrip() if frame is not None else ""
