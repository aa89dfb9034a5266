"""The caller: a person with a role, their token, their limits, and the refusal of a request."""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
import secrets
import time
from collections import Counter, OrderedDict
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast._store.access import record_audit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from holdfast._store.statement import Statement


@dataclass(frozen=True, slots=True)
class Person:
    """A person or a program, as recorded in the audit table."""

    name: str
    role: Role
    credential: str | None = None
    """How they authenticated, e.g. `token:0123456789ab`. Unlike a name, it is never reused."""
    address: str | None = None
    """The client's address."""


def audit_entry(by: Person, action: str, **what: Any) -> Statement[int]:
    """Return the statement that records an action in the audit. For `what`, see `record_audit`."""
    return record_audit(by.name, by.role, action, credential=by.credential, address=by.address, **what)


class Role(StrEnum):
    """The rights of a person: a viewer reads, an operator can also act, a developer can also run the outbox."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    DEVELOPER = "developer"

    def may(self, needed: Role) -> bool:
        """Return whether this role includes the rights of another."""
        return _RANK[self] >= _RANK[needed]


_RANK = {role: rank for rank, role in enumerate(Role)}


class RequestRefused(Exception):  # noqa: N818 - a refusal is an answer, not an error
    """An answer other than 200: its HTTP status, a code for programs, a message for people."""

    def __init__(
        self, status: int, code: str, message: str, *, field: str | None = None, retry_after: int | None = None
    ) -> None:
        """`field`: which one is wrong. `retry_after`: after how many seconds to try again; None: not known."""
        super().__init__(message)
        self.field = field
        self.retry_after = retry_after
        self.status = status
        self.code = code
        self.message = message


FAILURES = 10
SECONDS = 60.0
MOST_ADDRESSES = 10_000
_NETWORK_BITS = 64


class Limited(RequestRefused):
    """Too many failures or concurrent requests. `seconds`: when to retry."""

    def __init__(
        self, seconds: float, code: str = "too_many_failures", message: str = "Too many failed sign-ins."
    ) -> None:
        self.seconds = max(1, math.ceil(seconds))
        super().__init__(429, code, f"{message} Try again in {self.seconds} s.", retry_after=self.seconds)


class _Window(NamedTuple):
    until: float
    failures: int


class Failures:
    """Counts failures per address in a window that starts with the first. Evicts the oldest addresses."""

    def __init__(
        self,
        *,
        limit: int = FAILURES,
        seconds: float = SECONDS,
        addresses: int = MOST_ADDRESSES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit = limit
        self._seconds = seconds
        self._addresses = addresses
        self._clock = clock
        self._windows: OrderedDict[str, _Window] = OrderedDict()

    def check(self, address: str) -> None:
        """Raise Limited if this address has failed too often recently."""
        window = self._window(_network(address))
        if window.failures >= self._limit:
            raise Limited(window.until - self._clock())

    def add(self, address: str) -> None:
        network = _network(address)
        window = self._window(network)
        self._windows[network] = window._replace(failures=window.failures + 1)
        while len(self._windows) > self._addresses:
            self._windows.popitem(last=False)

    def _window(self, network: str) -> _Window:
        window = self._windows.get(network)
        if window is None or window.until <= self._clock():
            self._windows.pop(network, None)
            return _Window(self._clock() + self._seconds, 0)
        return window


def _network(address: str) -> str:
    """Return the network of one customer: for IPv6 the first 64 bits."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address[:100]
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(IPv6Network((int(parsed), _NETWORK_BITS), strict=False))


WAIT_SECONDS = 5.0
MOST_WAITING = 32
"""The most requests of one caller that wait for a connection."""


class Shares:
    """Fair shares of the database connections.

    One connection is reserved for probes and token lookups, and one more for operators. No caller can use all
    connections of their role, so that others of that role are answered too.
    """

    def __init__(self, connections: int) -> None:
        all_callers, viewers = max(1, connections - 1), max(1, connections - 2)
        self._all = asyncio.Semaphore(all_callers)
        self._viewers = asyncio.Semaphore(viewers)
        self._limit = {role: max(1, (viewers if role is Role.VIEWER else all_callers) - 1) for role in Role}
        self._own: dict[tuple[Role, str], asyncio.Semaphore] = {}
        self._asking: Counter[tuple[Role, str]] = Counter()

    @asynccontextmanager
    async def turn(self, by: Person) -> AsyncIterator[None]:
        """Wait for a connection slot of this caller. Raise Limited if they have too many requests in progress."""
        key = (by.role, by.name)
        if self._asking[key] >= self._limit[by.role] + MOST_WAITING:
            raise _too_many()
        self._asking[key] += 1
        own = self._own.setdefault(key, asyncio.Semaphore(self._limit[by.role]))
        lanes = [own, self._viewers, self._all] if by.role is Role.VIEWER else [own, self._all]
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


PREFIX = "hf_"

_TOKEN_SHAPE = re.compile(r"hf_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")


class Token(NamedTuple):
    key: str
    """12 hexadecimal digits, not secret."""
    secret: str
    """32 random bytes as 43 characters."""

    @classmethod
    def new(cls) -> Token:
        return cls(secrets.token_hex(6), secrets.token_urlsafe(32))

    @classmethod
    def read(cls, text: str) -> Token | None:
        """Return the parts of a token, or None if the text is not one."""
        found = _TOKEN_SHAPE.fullmatch(text)
        return None if found is None else cls(found[1], found[2])

    @property
    def text(self) -> str:
        """The whole token, shown once to its owner."""
        return f"{PREFIX}{self.key}_{self.secret}"

    @property
    def digest(self) -> str:
        """The stored hash. The secret is long and random, so a plain SHA-256 is enough."""
        return hashlib.sha256(self.secret.encode()).hexdigest()

    def __repr__(self) -> str:
        return f"Token({self.key})"
