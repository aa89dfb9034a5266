"""The signal that asks a running handler to stop."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast._model.errors import Aborted

if TYPE_CHECKING:
    from holdfast._model.errors import AbortReason


# One lock for all signals: they fire rarely, and a lock for each would make every job slower.
_FIRING = threading.Lock()


class AbortSignal:
    """Asks a running handler to stop: it fires at most once, with a reason, and can be read from any thread.

    When it fires, an async handler is cancelled. A handler in a thread should check `aborted`, or call
    `raise_if_aborted`, between two steps of its work.
    """

    __slots__ = ("_reason", "_waiters")

    def __init__(self) -> None:
        self._reason: AbortReason | None = None
        self._waiters: list[threading.Event | tuple[asyncio.AbstractEventLoop, asyncio.Event]] | None = None

    def __repr__(self) -> str:
        return f"<AbortSignal {self._reason or 'quiet'}>"

    @property
    def aborted(self) -> bool:
        """Whether it has fired."""
        return self._reason is not None

    @property
    def reason(self) -> AbortReason | None:
        """The reason why it fired; None before that."""
        return self._reason

    def raise_if_aborted(self) -> None:
        """Raise `Aborted` with the reason if it has fired."""
        if self._reason is not None:
            raise Aborted(self._reason)

    async def wait(self) -> AbortReason:
        """Wait until it fires and return the reason."""
        event = asyncio.Event()
        self._add((asyncio.get_running_loop(), event))
        while self._reason is None:
            await event.wait()
        return self._reason

    def wait_in_thread(self, timeout: float | None = None) -> bool:
        """Block a thread until it fires; return whether it has fired. `timeout`: in seconds. Default: no limit."""
        event = threading.Event()
        self._add(event)
        return self.aborted or event.wait(timeout)

    def abort(self, reason: AbortReason) -> bool:
        """Fire, from any thread; return False if it has fired before, and keep that reason."""
        with _FIRING:
            if self._reason is not None:
                return False
            self._reason = reason
        for waiter in self._waiters or ():
            if isinstance(waiter, threading.Event):
                waiter.set()
            else:
                loop, event = waiter
                # A closed event loop has no waiters.
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(event.set)
        return True

    def _add(self, waiter: threading.Event | tuple[asyncio.AbstractEventLoop, asyncio.Event]) -> None:
        with _FIRING:
            self._waiters = [*(self._waiters or ()), waiter]
