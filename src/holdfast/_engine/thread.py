"""Runs plain functions, each in its own thread."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from holdfast._model.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Callable


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
