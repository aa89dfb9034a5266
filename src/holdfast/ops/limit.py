"""How often an address may fail to say who it is."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING, NamedTuple

from holdfast.ops.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

FAILURES = 10
SECONDS = 60.0
MOST_ADDRESSES = 10_000
_SITE_BITS = 64


class Limited(Refused):
    """Too many failures, or requests at once; `seconds` until the next try."""

    def __init__(
        self, seconds: float, code: str = "too_many_failures", message: str = "Too many tries failed."
    ) -> None:
        self.seconds = max(1, math.ceil(seconds))
        super().__init__(429, code, f"{message} Try again in {self.seconds} s.")


class _Window(NamedTuple):
    until: float
    failures: int


class Failures:
    """Counts failures for each address in a window that begins with the first; forgets the oldest of too many."""

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
        """Refuse when this address has failed too often of late."""
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
    """Return what one customer of a provider has: of IPv6 the first 64 bits."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address[:100]
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(IPv6Network((int(parsed), _SITE_BITS), strict=False))
