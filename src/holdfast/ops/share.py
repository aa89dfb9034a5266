"""How many questions one caller may ask at once, and what is kept free for others."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from holdfast.ops.limit import Limited
from holdfast.ops.role import Role

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.ops.person import Person

WAIT_SECONDS = 5.0
MOST_WAITING = 32
"""Requests of one caller that wait for their turn."""


class Shares:
    """Turns at the database.

    Of the connections one is left to probes and to looking up tokens, and one more to operators. No caller has all
    turns of their role, so that others of that role are answered too.
    """

    def __init__(self, connections: int) -> None:
        everybody, viewers = max(1, connections - 1), max(1, connections - 2)
        self._everybody = asyncio.Semaphore(everybody)
        self._viewers = asyncio.Semaphore(viewers)
        self._most = {role: max(1, (viewers if role is Role.VIEWER else everybody) - 1) for role in Role}
        self._own: dict[tuple[Role, str], asyncio.Semaphore] = {}
        self._asking: Counter[tuple[Role, str]] = Counter()

    @asynccontextmanager
    async def turn(self, by: Person) -> AsyncIterator[None]:
        """Wait for a turn of this caller; refuse when they have too many requests under way."""
        key = (by.role, by.name)
        if self._asking[key] >= self._most[by.role] + MOST_WAITING:
            raise _too_many()
        self._asking[key] += 1
        own = self._own.setdefault(key, asyncio.Semaphore(self._most[by.role]))
        lanes = [own, self._viewers, self._everybody] if by.role is Role.VIEWER else [own, self._everybody]
        taken: list[asyncio.Semaphore] = []
        try:
            try:
                async with asyncio.timeout(WAIT_SECONDS):
                    for lane in lanes:
                        await lane.acquire()
                        taken.append(lane)
            except TimeoutError:
                raise _too_many() from None
            yield
        finally:
            for lane in taken:
                lane.release()
            self._asking[key] -= 1
            if not self._asking[key]:
                del self._asking[key], self._own[key]


def _too_many() -> Limited:
    return Limited(1, "too_many_at_once", "You have too many requests under way: wait for their answers.")
