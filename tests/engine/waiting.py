"""Waiting for a state, with a bound."""

from __future__ import annotations

import asyncio
import inspect
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


async def until(
    condition: Callable[[], object | Awaitable[object]], seconds: float = 15, *, every: float = 0.005
) -> None:
    """Return when the condition holds; fail when it does not within the time."""
    deadline = time.monotonic() + seconds
    while True:
        held = condition()
        if await held if inspect.isawaitable(held) else held:
            return
        assert time.monotonic() < deadline, f"not within {seconds} s: {inspect.getsource(condition).strip()}"
        await asyncio.sleep(every)


async def after(seconds: float, started: float | None = None) -> None:
    """Let so much time pass, to show what does not happen meanwhile."""
    await asyncio.sleep(seconds - (0 if started is None else time.monotonic() - started))
