"""Limits on failed logins per address and on concurrent requests per caller."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, OrderedDict
from contextlib import asynccontextmanager
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING, NamedTuple

from holdfast._ops.person import RequestRefused, Role

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from holdfast._ops.person import Person


FAILURES = 10
SECONDS = 60.0
MOST_ADDRESSES = 10_000
_SITE_BITS = 64


class Limited(RequestRefused):
    """Too many failures or concurrent requests. `seconds`: when to retry."""

    def __init__(
        self, seconds: float, code: str = "too_many_failures", message: str = "Too many tries failed."
    ) -> None:
        self.seconds = max(1, math.ceil(seconds))
        super().__init__(429, code, f"{message} Try again in {self.seconds} s.")


class _Window(NamedTuple):
    until: float
    failures: int


class Failures:
    """Counts failures per address in a window that starts with the first. Evicts the oldest addresses."""

    def __init__(
        self,
        *,
        most: int = FAILURES,
        seconds: float = SECONDS,
        addresses: int = MOST_ADDRESSES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = most
        self._seconds = seconds
        self._addresses = addresses
        self._clock = clock
        self._windows: OrderedDict[str, _Window] = OrderedDict()

    def check(self, address: str) -> None:
        """Raise Limited if this address has failed too often recently."""
        window = self._window(_site(address))
        if window.failures >= self._most:
            raise Limited(window.until - self._clock())

    def add(self, address: str) -> None:
        site = _site(address)
        window = self._window(site)
        self._windows[site] = window._replace(failures=window.failures + 1)
        while len(self._windows) > self._addresses:
            self._windows.popitem(last=False)

    def _window(self, site: str) -> _Window:
        window = self._windows.get(site)
        if window is None or window.until <= self._clock():
            self._windows.pop(site, None)
            return _Window(self._clock() + self._seconds, 0)
        return window


def _site(address: str) -> str:
    """Return the network of one customer: for IPv6 the first 64 bits."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address[:100]
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(IPv6Network((int(parsed), _SITE_BITS), strict=False))


WAIT_SECONDS = 5.0
MOST_WAITING = 32
"""The most requests of one caller that wait for a connection."""


class Shares:
    """Fair shares of the database connections.

    One connection is reserved for probes and token lookups, and one more for operators. No caller can use all
    connections of their role, so that others of that role are answered too.
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
        """Wait for a connection slot of this caller. Raise Limited if they have too many requests in progress."""
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
