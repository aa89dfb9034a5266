"""A circuit breaker: after repeated failures an endpoint is not called for a while."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast._relay.message import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Breaker:
    """After `failures` consecutive failures nothing is sent for `rest`; then a single attempt decides."""

    failures: int = 10
    """Consecutive failures before nothing more is sent. Default 10."""
    rest: timedelta = timedelta(seconds=30)
    """Time without calls before the next attempt. Default 30 s."""

    def __post_init__(self) -> None:
        if self.failures < 1 or self.rest <= timedelta(0):
            raise ValueError("a breaker needs at least one failure and a rest longer than nothing")


class Circuit:
    """Closed: all calls pass. Open: none pass. Half open: one call passes, as a probe."""

    def __init__(self, breaker: Breaker, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._breaker = breaker
        self._clock = clock
        self._failures = 0
        self._until: float | None = None
        self._probing = False

    def enter(self) -> None:
        """Raise Unavailable unless an attempt is allowed. Each attempt ends in `succeed`, `fail` or `leave`."""
        if self._until is None:
            return
        left = self._until - self._clock()
        if left > 0 or self._probing:
            raise Unavailable("the endpoint failed too often and is left alone", retry_after=max(left, 1.0))
        self._probing = True

    def succeed(self) -> None:
        self._failures = 0
        self._until = None
        self._probing = False

    def fail(self, *, rest: float | None = None) -> None:
        """Count a failure. With `rest` in seconds, requested by the endpoint, open at once."""
        self._failures += 1
        self._probing = False
        if rest is not None or self._failures >= self._breaker.failures:
            wait = self._breaker.rest.total_seconds() if rest is None else rest
            self._until = max(self._until or 0.0, self._clock() + wait)

    def leave(self) -> None:
        """Count nothing: the attempt ended without information about the endpoint."""
        self._probing = False
