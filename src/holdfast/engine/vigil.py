"""Which chains are waited for, and what is to be asked next. No I/O: who drives it has a connection, async or sync."""

from __future__ import annotations

import random
import re
import time
from typing import TYPE_CHECKING, Any

from holdfast.engine.claim import LIGHT_FIRST, LIGHT_FOR, LIGHT_LAST, LIGHT_LATER
from holdfast.store.chain import MOST, chain_ends
from holdfast.store.sleeper import others_ended
from holdfast.store.watcher import RECORD_SECONDS, watch_chains, watch_horizon

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from holdfast.store.chain import ChainEnd
    from holdfast.store.statement import Statement

# Seconds between two looks at everything. A listener looks seldom, and renews its record long before it ends.
RENEW = 5.0
# Without notifications one looks soon at first, and then less and less often.
POLL_FIRST = 0.1
POLL_LAST = 2.0

_ENDED = re.compile(r"ended ([0-9]{1,19})")


class Vigil:
    """Keeps watch over any number of chains, each until it has ended."""

    def __init__(self, listener: str, on_end: Callable[[int, ChainEnd], None]) -> None:
        """`on_end(chain, end)` is called once for each chain that was added, unless it is removed before."""
        self.listener = listener
        self.chains: set[int] = set()
        self._on_end = on_end
        self._heard: set[int] = set()
        self.begin(deaf=True)

    def begin(self, *, deaf: bool) -> None:
        """Start afresh, on a new connection: nothing that was said before counts. `deaf`: it will hear nothing."""
        self._deaf = deaf
        self._fresh = set(self.chains)
        """Those that no record names yet."""
        self._later: set[int] = set()
        self._light: set[int] = set()
        self._horizon = ""
        """Whoever is older than this may end one of the light ones and tell nobody."""
        self._light_at = self._light_since = 0.0
        self._pace = POLL_FIRST
        self._recorded_at = self._round_at = time.monotonic()

    def add(self, chain: int) -> None:
        if chain not in self.chains:
            self.chains.add(chain)
            self._fresh.add(chain)

    def remove(self, chain: int) -> None:
        self.chains.discard(chain)

    def hear(self, words: str) -> bool:
        """Understand a notification; whether it is worth a look. It is never more than that: anybody may send one."""
        found = _ENDED.fullmatch(words)
        watched = found is not None and int(found[1]) in self.chains
        if found is not None and watched:
            self._heard.add(int(found[1]))
        return watched

    def round(self) -> Generator[Statement[Any], Any, float]:
        """Yield what is to be asked, one after the other, and take the answers; return how long all is quiet then."""
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
                yield from self._record(fresh)
            asked = asked | (yield from self._look_out(fresh))
        yield from self._look(asked)
        return self._quiet()

    def _renew(self, now: float, fresh: set[int]) -> Generator[Statement[Any], Any, set[int]]:
        """Record all of them again; return those that somebody may have missed meanwhile."""
        chains = set(self.chains)
        yield from self._record(chains)
        # So late that a record may have ended before the next was there.
        late = time.monotonic() - self._recorded_at > RECORD_SECONDS - 1
        self._recorded_at, self._round_at = now, now + _jittered(RENEW)
        return chains if late else fresh

    def _record(self, chains: Iterable[int]) -> Generator[Statement[Any], Any, None]:
        for some in _parts(chains):
            yield watch_chains(self.listener, some)

    def _look_out(self, fresh: set[int]) -> Generator[Statement[Any], Any, set[int]]:
        """Sleep lightly while somebody's transaction may yet end a chain and tell nobody; return what to look at."""
        self._later |= fresh
        self._light &= self.chains
        if not self._light and (self._later & self.chains):
            self._light, self._later = self._later & self.chains, set()
            # After the record has committed: whoever looks for watchers later finds it.
            self._horizon = yield watch_horizon()
            self._light_at = self._light_since = time.monotonic()
            self._pace = LIGHT_FIRST
        light = self._light
        if not light or time.monotonic() < self._light_at:
            return set()
        if (yield others_ended(self._horizon)):
            # The look that follows is the last that is needed.
            self._light = set()
        else:
            self._light_at = time.monotonic() + self._pace
            tired = time.monotonic() - self._light_since > LIGHT_FOR
            self._pace = LIGHT_LATER if tired else min(self._pace * 1.5, LIGHT_LAST)
        return light

    def _look(self, chains: Iterable[int]) -> Generator[Statement[Any], Any, None]:
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
            until = min(until, self._light_at)
        elif self._later & self.chains:
            until = 0.0
        return max(0.0, until - time.monotonic())


def _jittered(seconds: float) -> float:
    return seconds * random.uniform(0.8, 1.2)  # noqa: S311 - spreads load, guards nothing


def _parts(chains: Iterable[int]) -> list[list[int]]:
    ordered = sorted(chains)
    return [ordered[start : start + MOST] for start in range(0, len(ordered), MOST)]
