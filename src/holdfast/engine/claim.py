"""Claiming: free slots are kept full, and nothing more is held than will start soon."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.engine.outage import Outage
from holdfast.store.blocker import read_blockers
from holdfast.store.claim import WHOLE, Shards, claim_jobs
from holdfast.store.floor import REACHES, Floors
from holdfast.store.lease import release_strays
from holdfast.store.sleeper import RECORD_SECONDS, lie_down, look_ahead, others_ended, rise, wake_sleepers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, KeysView, Mapping, Sequence

    from holdfast.engine.link import Link
    from holdfast.engine.wake import Waker
    from holdfast.job import Blocker
    from holdfast.lease import Lease
    from holdfast.store.claim import ClaimedJob
    from holdfast.store.lease import Held
    from holdfast.store.sleeper import Horizon

log = logging.getLogger(__name__)

# A light sleeper polls this often at first, in seconds, and after a while no oftener than the last.
LIGHT_FIRST = 0.005
LIGHT_LAST = 0.25
LIGHT_FOR = 10.0
LIGHT_LATER = 1.5
# After work, look again this often, in seconds, for this long.
LINGER_PACE = 0.004
LINGER_FOR = 0.04


class Claimer:
    """Claims for one worker from one database."""

    def __init__(  # noqa: PLR0913 - what a claim depends on
        self,
        link: Link,
        *,
        worker: int,
        leases: Callable[[], Mapping[str, Lease]],
        queue_leases: Callable[[], Mapping[str, Lease]] = dict,
        wanted: Callable[[], Mapping[str, int]],
        hold: Callable[[Sequence[ClaimedJob], Mapping[int, Sequence[Blocker]]], None],
        held: Mapping[Held, object],
        listener: Waker | None,
        idle_min: float,
        idle_max: float,
        jitter: float,
        shards: Shards = WHOLE,
        on_claim: Callable[[Sequence[ClaimedJob], float], None] = lambda _jobs, _seconds: None,
    ) -> None:
        """`wanted()` says how many of each queue; `hold(jobs, blockers)` takes what was claimed.

        `leases()` are those of the kinds, `queue_leases()` those of queues that have one of their own. `on_claim(jobs,
        seconds)` hears of every claim, also of one that found nothing.
        """
        self._link = link
        self._worker = worker
        self._leases = leases
        self._queue_leases = queue_leases
        self._wanted = wanted
        self._hold = hold
        self._held = held
        self._stopping = False
        self._listener = listener
        self._idle_min = idle_min
        self._idle_max = idle_max
        self._jitter = jitter
        self._shards = shards
        self._on_claim = on_claim
        self.floors = Floors()
        self._room = asyncio.Event()
        self._woken = asyncio.Event()
        self._wakes = 0
        self._found_at = -LINGER_FOR
        self._asleep_for: KeysView[str] | None = None
        self._filled: list[str] = []
        self._late = False
        """Somebody's transaction ended late, and no look since has reached below the floors for what it left."""
        self.claims = 0
        self.jobs = 0
        """Claimed so far."""

    def room(self) -> None:
        """Something ended: more may be wanted, of a queue that was full when we lay down."""
        self._room.set()
        if self._asleep_for is not None and not self._wanted().keys() <= self._asleep_for:
            self._woken.set()

    def wake(self) -> None:
        """Something may be due, now or later."""
        self._wakes += 1
        self._woken.set()

    def stop(self) -> None:
        """End after the claim that is under way: what it takes must not be forgotten."""
        self._stopping = True
        self._room.set()
        self._woken.set()

    async def run(self) -> None:
        outage = Outage(log, "claim_jobs failed, trying again")
        idle = self._idle_min
        while not self._stopping:
            try:
                if outage.failures:
                    await self._recover()
                if await self._claim_wanted() or await self._linger() or await self._sleep(idle):
                    idle = self._idle_min
                else:
                    idle = min(idle * 2, self._idle_max)
                outage.over()
            except Exception as exc:  # noqa: BLE001 - whatever it is, it is said, and claims go on
                await asyncio.sleep(outage.failed(exc))

    async def _recover(self) -> None:
        """Give back what a claim took whose answer never came; and forget the floors: it may be another server now."""
        self.floors.drop()
        await self._link.run(release_strays(self._worker, self._held))

    async def _claim_wanted(self) -> bool:
        """Claim as long as there is room; False when nothing more is due."""
        self._room.clear()
        if not (wanted := self._wanted()):
            if not self._stopping:
                await self._room.wait()
            return True
        return await self.claim(wanted)

    async def claim_due(
        self, items: int, until: float, queues: Iterable[str], *, stalled: Callable[[float, set[str]], bool]
    ) -> bool:
        """Claim what is due in these queues: at most `items` jobs, nothing after `until` by the monotonic clock.

        Return whether more may be due than that many. `stalled(seconds, queues)`: none of these will be wanted so soon.
        """
        first, left_to_see = self.jobs, set(queues)
        while left_to_see and (seconds := until - time.monotonic()) > 0:
            if (left := items - self.jobs + first) <= 0:
                return True
            wanted = _at_most(left, {name: count for name, count in self._wanted().items() if name in left_to_see})
            if wanted:
                if not await self.claim(wanted):
                    left_to_see -= wanted.keys()
            elif stalled(seconds, left_to_see):
                return False
            else:
                await self._wait_for_room(seconds)
        return False

    async def _wait_for_room(self, seconds: float) -> None:
        """Wait until more may be wanted, or for so long."""
        self._room.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._room.wait()

    async def claim(self, wanted: Mapping[str, int]) -> bool:
        """Claim once; whether it is worth while to look again at once."""
        self._woken.clear()
        self._filled = []
        leases, own = self._leases(), self._queue_leases()
        if own.keys().isdisjoint(wanted):
            return await self._claim(wanted, leases)
        # A call has one lease for each kind, so a queue with a lease of its own is claimed by itself.
        parts: dict[Lease | None, dict[str, int]] = {}
        for queue, count in wanted.items():
            parts.setdefault(own.get(queue), {})[queue] = count
        return any([await self._claim(part, dict.fromkeys(leases, it) if it else leases) for it, part in parts.items()])

    async def _claim(self, wanted: Mapping[str, int], leases: Mapping[str, Lease]) -> bool:
        reach = self.floors.reach()
        begun = time.monotonic()
        statement = claim_jobs(self._worker, wanted, leases, floors=self.floors, reach=reach, shards=self._shards)
        claim = await self._link.run(statement)
        self.claims += 1
        self.jobs += len(claim.jobs)
        self._late = self._late and reach != REACHES[-1]
        took = time.monotonic() - begun
        self.floors.advance(claim.jobs, reach=reach, took=took)
        self._on_claim(claim.jobs, took)
        taken = Counter(job.queue for job in claim.jobs)
        self._filled += [queue for queue, count in wanted.items() if taken[queue] >= count]
        if claim.jobs:
            self._found_at = time.monotonic()
            waited = [job.id for job in claim.jobs if job.has_blockers]
            self._hold(claim.jobs, await self._link.run(read_blockers(waited)) if waited else {})
        return bool(claim.jobs) or claim.again

    async def _linger(self) -> bool:
        """Poll for a moment after work before lying down: a sleeper costs every enqueue a notification."""
        if time.monotonic() - self._found_at > LINGER_FOR:
            return False
        await self._rest(LINGER_PACE)
        return True

    async def _sleep(self, idle: float) -> bool:
        """Sleep until woken, until the next job is due, or for the idle time; tell whether there was work."""
        if not (wanted := self._wanted()):
            return True
        self._asleep_for = wanted.keys()
        try:
            return await self._asleep(wanted, idle)
        finally:
            self._asleep_for = None

    async def _asleep(self, wanted: Mapping[str, int], idle: float) -> bool:
        if self._listener is None or not self._listener.listening.is_set():
            return await self._rest(self._jittered(idle))
        kinds = list(self._leases())
        await self._link.run(lie_down(self._worker, wanted, kinds))
        # In this order: the record has committed; then the horizon; then, past the horizon, the last look.
        horizon = await self._link.run(look_ahead(wanted, kinds))
        until = time.monotonic() + min(self._jittered(idle), RECORD_SECONDS)
        found = await self._sleep_lightly(horizon.xmax, min(until, _due(horizon)))
        found = found or await self._sleep_soundly(wanted, kinds, until)
        await self._link.run(rise(self._worker))
        if self._filled:
            # We were woken for more than we can run: wake the next.
            await self._link.run(wake_sleepers(self._filled, kinds))
        return found

    async def _sleep_lightly(self, xmax: str, until: float) -> bool:
        """Poll while somebody's transaction may yet commit a job and wake nobody; True when there was work."""
        pace, since = LIGHT_FIRST, time.monotonic()
        while time.monotonic() < until and not await self._link.run(others_ended(xmax)):
            await self._rest(min(pace, until - time.monotonic()))
            if (wanted := self._wanted()) and await self.claim(wanted):
                return True
            tired = time.monotonic() - since > LIGHT_FOR
            pace = LIGHT_LATER if tired else min(pace * 1.5, LIGHT_LAST)
            self._late = True
        return False

    async def _sleep_soundly(self, wanted: Mapping[str, int], kinds: Sequence[str], until: float) -> bool:
        """Sleep until woken, until the next job is due, or until then; True when there was work."""
        wakes = self._wakes
        due = _due(await self._link.run(look_ahead(wanted, kinds)))
        if not (wanted := self._wanted()) or await self.claim(wanted):
            return True
        # Who was woken since may have been woken for a job that is due before we would look again.
        if wakes == self._wakes:
            if self._late:
                until = min(until, self.floors.widest_due)
            await self._rest(min(until, due) - time.monotonic())
        return bool(wanted := self._wanted()) and await self.claim(wanted)

    async def _rest(self, seconds: float) -> bool:
        if seconds <= 0 or self._stopping:
            return self._woken.is_set()
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            return False
        return True

    def _jittered(self, seconds: float) -> float:
        return seconds + random.uniform(0, self._jitter)  # noqa: S311 - spreads load, guards nothing


def _due(horizon: Horizon) -> float:
    """When the next job is due, by the monotonic clock."""
    return math.inf if horizon.next_due is None else time.monotonic() + horizon.next_due.total_seconds()


def _at_most(jobs: int, wanted: Mapping[str, int]) -> dict[str, int]:
    """Cut what is wanted down to so many jobs in all."""
    cut = {}
    for queue, count in wanted.items():
        if jobs > 0:
            cut[queue] = min(count, jobs)
            jobs -= cut[queue]
    return cut
