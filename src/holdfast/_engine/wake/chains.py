"""The chains that callers wait for, and the next statements to run. No I/O: the caller has the connection."""

from __future__ import annotations

import random
import re
import time
from typing import TYPE_CHECKING

from holdfast._engine.wake.sleep import RecordedSleep
from holdfast._store.chain import MOST, chain_ends
from holdfast._store.sleeper import watch_chains, watch_horizon

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from holdfast._engine.wake.sleep import Steps
    from holdfast._store.chain import ChainEnd
    from holdfast._store.statement import Statement

# Seconds between two checks of all chains. A listener checks rarely, and renews its record long before it expires.
RENEW = 5.0
# Without notifications, polling starts with short intervals in seconds, which grow.
POLL_FIRST = 0.1
POLL_LAST = 2.0

_ENDED = re.compile(r"ended ([0-9]{1,19})")


class ChainWatch:
    """Watches any number of chains, each until it has ended."""

    def __init__(self, listener: str, on_end: Callable[[int, ChainEnd], None]) -> None:
        """`on_end(chain, end)` is called once for each added chain, unless it is removed before."""
        self.listener = listener
        self.chains: set[int] = set()
        self._on_end = on_end
        self._heard: set[int] = set()
        self.begin(deaf=True)

    def begin(self, *, deaf: bool) -> None:
        """Start again on a new connection: earlier notifications do not count. `deaf`: it receives no notifications."""
        self._deaf = deaf
        self._fresh = set(self.chains)
        """The chains that no record names yet."""
        self._light: set[int] = set()
        """The chains of the light sleep: an older transaction may end them without a notification."""
        self._later: set[int] = set()
        """The chains of the next light sleep."""
        self._recorded = RecordedSleep[str]()
        self._pace = POLL_FIRST
        self._round_at = time.monotonic()

    def add(self, chain: int) -> None:
        if chain not in self.chains:
            self.chains.add(chain)
            self._fresh.add(chain)

    def remove(self, chain: int) -> None:
        self.chains.discard(chain)

    def hear(self, words: str) -> bool:
        """Parse a notification. Return whether it is worth a check: any user can send one, so it proves nothing."""
        found = _ENDED.fullmatch(words)
        watched = found is not None and int(found[1]) in self.chains
        if found is not None and watched:
            self._heard.add(int(found[1]))
        return watched

    def round(self) -> Steps[float]:
        """Check what there is to check. Return how many seconds to rest."""
        now = time.monotonic()
        heard, self._heard = self._heard, set()
        fresh, self._fresh = self._fresh & self.chains, set()
        everyone = now >= self._round_at
        asked = self.chains if everyone else fresh | heard
        if self._deaf:
            self._poll_later(now, fresh=bool(fresh), everyone=everyone)
        else:
            if everyone:
                fresh = yield from self._renew(now, fresh)
            else:
                yield from self._records(fresh)
            asked = asked | (yield from self._look_out(fresh))
        yield from self._look(asked)
        return self._quiet()

    def _renew(self, now: float, fresh: set[int]) -> Steps[set[int]]:
        """Record all chains again. Return those whose end may have been missed meanwhile."""
        chains = set(self.chains)
        unbroken = yield from self._recorded.record(self.listener, self._records(chains))
        self._round_at = now + _jittered(RENEW)
        if unbroken:
            return fresh
        self._light.clear()
        return chains

    def _records(self, chains: Iterable[int]) -> Iterator[Statement[None]]:
        return (watch_chains(self.listener, some) for some in _parts(chains))

    def _look_out(self, fresh: set[int]) -> Steps[set[int]]:
        """Look lightly after new chains. Return the chains to check."""
        self._later |= fresh
        self._light &= self.chains
        if not self._light and (self._later & self.chains):
            self._light, self._later = self._later & self.chains, set()
            yield from self._recorded.sleep_lightly(watch_horizon())
        light = self._light
        if not light or time.monotonic() < self._recorded.look_at:
            return set()
        if (yield from self._recorded.settle()):
            self._light = set()
        return light

    def _look(self, chains: Iterable[int]) -> Steps[None]:
        for some in _parts(self.chains.intersection(chains)):
            ends: dict[int, ChainEnd] = yield chain_ends(some)
            for chain, end in ends.items():
                if chain in self.chains:
                    self.chains.remove(chain)
                    self._on_end(chain, end)

    def _poll_later(self, now: float, *, fresh: bool, everyone: bool) -> None:
        if fresh:
            self._pace = POLL_FIRST
        elif everyone:
            self._pace = min(self._pace * 1.5, POLL_LAST)
        then = now + _jittered(self._pace)
        self._round_at = then if everyone else min(self._round_at, then)

    def _quiet(self) -> float:
        until = self._round_at
        if self._light:
            until = min(until, self._recorded.look_at)
        elif self._later & self.chains:
            until = 0.0
        return max(0.0, until - time.monotonic())


def _jittered(seconds: float) -> float:
    return seconds * random.uniform(0.8, 1.2)  # noqa: S311 - it spreads load, and is not used for security


def _parts(chains: Iterable[int]) -> list[list[int]]:
    ordered = sorted(chains)
    return [ordered[start : start + MOST] for start in range(0, len(ordered), MOST)]
