"""The threads of plain handlers. One that never ends does not keep the program from ending."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Threads:
    """Daemon threads, started as they are needed: those of `concurrent.futures` are waited for at the exit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._started = 0
        self._idle = threading.Semaphore(0)
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()

    def submit(self, function: Callable[..., Any], *given: object) -> Future[Any]:
        """Call it in a thread. Call this only in the event loop's thread."""
        future: Future[Any] = Future()
        self._calls.put((future, partial(function, *given)))
        if not self._idle.acquire(blocking=False) and self._started < self._limit:
            self._started += 1
            threading.Thread(target=self._work, name=f"holdfast_{self._started}", daemon=True).start()
        return future

    def shutdown(self) -> None:
        """Cancel what has not begun, and end the threads without waiting for them."""
        with suppress(queue.Empty):
            while (call := self._calls.get_nowait()) is not None:
                call[0].cancel()
        for _ in range(self._started):
            self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            future, function = call
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except BaseException as exc:  # noqa: BLE001 - passed to the caller
                    future.set_exception(exc)
            # These are not kept until the next call comes.
            del call, future, function
            self._idle.release()
