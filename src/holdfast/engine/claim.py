"""Claiming: free slots are kept full, and nothing more is held than will start soon."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast import drivers
from holdfast.engine.keeper import unwatched
from holdfast.engine.outage import Outage
from holdfast.engine.sleep_record import RENEWED_AFTER, SleepRecord
from holdfast.logs import Log
from holdfast.store.blocker import read_blockers
from holdfast.store.claim import WHOLE, Served, Shards, claim_jobs
from holdfast.store.floor import REACHES, Floors
from holdfast.store.lease import release_strays
from holdfast.store.sleeper import look_ahead, others_ended, wake_sleepers
from holdfast.store.window import Windows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, KeysView, Mapping, Sequence
    from uuid import UUID

    from holdfast.engine.keeper import Turn
    from holdfast.engine.link import Link
    from holdfast.engine.wake import Waker
    from holdfast.job import Blocker
    from holdfast.lease import Lease
    from holdfast.store.claim import Claim, ClaimedJob
    from holdfast.store.lease import Held

log = Log(__name__)

# A light sleeper polls this often at first, in seconds, and after a while no oftener than the last.
LIGHT_FIRST = 0.005
LIGHT_LAST = 0.25
LIGHT_FOR = 10.0
LIGHT_LATER = 1.5
# After work, look again after so many seconds, then when twice as much has passed, and so on for this long.
LINGER_FIRST = 0.004
LINGER_FOR = 0.04


class Claimer:
    """Claims for one worker from one database."""

    def __init__(  # noqa: PLR0913 - what a claim depends on
        self,
        link: Link,
        *,
        worker: int,
        identity: UUID | None = None,
        leases: Mapping[str, Lease],
        queue_leases: Callable[[], Mapping[str, Lease]] = dict,
        queues: Iterable[str],
        most: int,
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
        """`wanted()` says how many of each queue, `most` in one claim; `hold(jobs, blockers)` takes what was claimed.

        `queues` and `leases`, those of the kinds, are what the worker registered; `queue_leases()` are those of queues
        that have one of their own. `on_claim(jobs, seconds)` hears of every claim, also of one that found nothing.
        """
        self._link = link
        self.worker = worker
        self._identity = identity
        self._leases = leases
        self._queue_leases = queue_leases
        self._served = Served(queues, leases)
        self._most = most
        self._start = ""
        """The queue that has the first turn in the next claim."""
        self._wanted = wanted
        self._hold = hold
        self._held = held
        self._stopping = False
        self._begun = False
        self._turn: Turn = unwatched
        self._listener = listener
        self._idle_min = idle_min
        self._idle_max = idle_max
        self._jitter = jitter
        self._shards = shards
        self._on_claim = on_claim
        self.floors = Floors()
        self._windows = Windows()
        self._room = asyncio.Event()
        self._woken = asyncio.Event()
        self._wakes = 0
        self._next_due: float | None = None
        """When the next job is due that the last claim could see, by the monotonic clock."""
        self._found_at = -LINGER_FOR
        self._asleep_for: KeysView[str] | None = None
        self._record = SleepRecord(link, leases)
        self._filled: list[str] = []
        self._more = False
        """The last claim left something that is due."""
        self._late = False
        """Somebody may have committed late, and no look since has reached below the floors for what that left."""
        self._astray = False
        """Something may be claimed that nobody knows of."""
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

    @property
    def asleep(self) -> bool:
        """Whether it found nothing due, and waits to be woken."""
        return self._asleep_for is not None

    def recover_soon(self) -> None:
        """Give back what somebody else claimed for this worker without getting an answer."""
        self._astray = True
        self.wake()

    def stop(self) -> None:
        """End after the claim that is under way: what it takes must not be forgotten."""
        self._stopping = True
        self._room.set()
        self._woken.set()

    async def run(self, turn: Turn = unwatched) -> None:
        outage = Outage(log, "claim_jobs failed, trying again")
        idle, slept = self._idle_min, False
        # A loop that ended may have left a claim behind whose answer it did not see.
        self._astray = self._astray or self._begun
        self._begun, self._turn = True, turn
        while not self._stopping:
            turn()
            try:
                if outage.failures or self._astray:
                    await self._recover()
                # A sleep begins with a look, so that one that follows another needs no look before.
                if (not slept and (await self._claim_wanted() or await self._linger())) or await self._sleep(idle):
                    await self._record.remove(self.worker)
                    idle, slept = self._idle_min, False
                else:
                    idle, slept = min(idle * 2, self._idle_max), True
                outage.over()
            except Exception as exc:  # noqa: BLE001 - whatever it is, it is said, and claims go on
                self._record.doubt()
                slept = False
                await asyncio.sleep(outage.failed(exc))

    async def _recover(self) -> None:
        """Give back what a claim took whose answer never came; and forget the floors: it may be another server now."""
        self.floors.drop()
        # What is held is read when the link is free: a claim that has just been answered is known then.
        await self._link.run_with(
            lambda conn: drivers.run(conn, release_strays(self.worker, self._held, self._identity))
        )
        self._astray = False

    async def _claim_wanted(self) -> bool:
        """Claim as long as there is room; False when nothing more is due."""
        self._room.clear()
        if not (wanted := self._wanted()):
            if not self._stopping:
                await self._record.remove(self.worker)
                self._turn(math.inf)
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
            wanted = {name: count for name, count in self._wanted().items() if name in left_to_see}
            if wanted:
                if not await self.claim(wanted, most=left):
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

    async def claim(self, wanted: Mapping[str, int], *, most: int | None = None) -> bool:
        """Claim once; whether it is worth while to look again at once."""
        self._woken.clear()
        self._filled = []
        self._next_due = None
        self._more = False
        most = self._most if most is None else min(most, self._most)
        leases, own = self._leases, self._queue_leases()
        if own.keys().isdisjoint(wanted):
            claim = await self._claim(wanted, leases, most)
            return bool(claim.jobs) or claim.again
        # A call has one lease for each kind, so a queue with a lease of its own is claimed by itself.
        parts: dict[Lease | None, dict[str, int]] = {}
        for queue in sorted(wanted, key=lambda queue: (queue < self._start, queue)):
            parts.setdefault(own.get(queue), {})[queue] = wanted[queue]
        found = False
        for lease, part in parts.items():
            if most > 0:
                claim = await self._claim(part, dict.fromkeys(leases, lease) if lease else leases, most)
                most -= len(claim.jobs)
                found = found or bool(claim.jobs) or claim.again
        return found

    async def _claim(self, wanted: Mapping[str, int], leases: Mapping[str, Lease], most: int) -> Claim:
        reach = self.floors.reach()
        begun = time.monotonic()
        claim = await self._link.run_in_turn(
            lambda: claim_jobs(
                self.worker,
                wanted,
                leases,
                most=most,
                start=self._start,
                served=self._served,
                floors=self.floors,
                reach=reach,
                shards=self._shards,
                windows=self._windows,
            )
        )
        # The id that it was made under: a worker registers anew on this link, so before or after.
        worker = self.worker
        self.claims += 1
        self.jobs += len(claim.jobs)
        self._more = self._more or claim.again
        self._late = self._late and reach != REACHES[-1]
        self.floors.advance(claim.jobs, reach=reach, took=claim.looking, begins=claim.begins, promoted=claim.promoted)
        pause = self._windows.learn(claim)
        self._on_claim(claim.jobs, time.monotonic() - begun)
        if claim.next_due is not None:
            due = time.monotonic() + claim.next_due
            self._next_due = due if self._next_due is None else min(due, self._next_due)
        taken = Counter(job.queue for job in claim.jobs)
        if len(claim.jobs) >= most:
            # It ended for want of room: whose turn did not come is first the next time.
            self._start = f"{claim.jobs[-1].queue}\0"
            self._filled += wanted
        else:
            self._filled += [queue for queue, count in wanted.items() if taken[queue] >= count]
        if pause:
            # Others have what is due: it is not worth while to look again before they can have ended.
            await asyncio.sleep(pause)
        if claim.jobs:
            self._found_at = time.monotonic()
            waited = [job.id for job in claim.jobs if job.has_blockers]
            blockers = await self._link.run(read_blockers(waited)) if waited else {}
            if worker == self.worker:
                self._hold(claim.jobs, blockers)
            else:
                log.warning(
                    "a claim under an id that is no longer this worker's is left alone",
                    extra={"worker": worker, "jobs": len(claim.jobs)},
                )
        return claim

    async def _linger(self) -> bool:
        """Poll for a moment after work before lying down: a sleeper costs every enqueue a notification."""
        if (passed := time.monotonic() - self._found_at) > LINGER_FOR:
            return False
        await self._rest(max(LINGER_FIRST, passed))
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
            return await self._rest(self._jittered(idle)) or (bool(now := self._wanted()) and await self.claim(now))
        until = time.monotonic() + min(self._jittered(idle), RENEWED_AFTER)
        found = False
        if not self._record.stands(self.worker, wanted, until):
            found = await self._lie_down(wanted, until)
        found = found or await self._sleep_soundly(until)
        if found or self._stopping:
            await self._record.remove(self.worker)
        if self._filled:
            # We were woken for more than we can run: wake the next.
            await self._link.run(wake_sleepers(self._filled, self._leases))
        return found

    async def _lie_down(self, wanted: Mapping[str, int], until: float) -> bool:
        """Record the sleep, and sleep lightly until everybody sees the record; True when there was work."""
        # A horizon costs a transaction id.
        if await self._record.write(self.worker, wanted):
            return False
        # In this order: the record has committed; then the horizon; then, past the horizon, the last look.
        horizon = await self._link.run(look_ahead(self.worker, self._served.unless_all(wanted)))
        due = math.inf if horizon.next_due is None else time.monotonic() + horizon.next_due.total_seconds()
        return await self._sleep_lightly(horizon.xmax, min(until, due), (self.worker, wanted))

    async def _sleep_lightly(self, xmax: str, until: float, recorded: tuple[int, Iterable[str]]) -> bool:
        """Poll while somebody's transaction may yet commit a job and wake nobody; True when there was work."""
        pace, since = LIGHT_FIRST, time.monotonic()
        while time.monotonic() < until:
            if await self._link.run(others_ended(xmax)):
                self._record.was_seen(*recorded)
                break
            await self._rest(min(pace, until - time.monotonic()))
            if (wanted := self._wanted()) and await self.claim(wanted):
                return True
            tired = time.monotonic() - since > LIGHT_FOR
            pace = LIGHT_LATER if tired else min(pace * 1.5, LIGHT_LAST)
            self._late = True
        return False

    async def _sleep_soundly(self, until: float) -> bool:
        """Sleep until then, and look when woken or when the next job is due; True when there is more work than that.

        The record of sleep stands while a few jobs run: everybody sees it, and whoever enqueues the next one notifies.
        """
        wakes = self._wakes
        if not (wanted := self._wanted()) or await self.claim(wanted):
            return True
        while not self._stopping:
            # A wake-up since may be for a job that is due before we would look again.
            if wakes == self._wakes:
                await self._rest(min(until, self._look_at()) - time.monotonic())
                if wakes == self._wakes and time.monotonic() >= until:
                    return False
            # What was committed just now may have been enqueued long ago, below the floors.
            self._late = self._late or wakes != self._wakes
            wakes, found_at = self._wakes, self._found_at
            if not (wanted := self._wanted()) or (await self.claim(wanted) and not self._may_sleep_on(found_at)):
                return True
            if self._astray or not self._record.is_of(self.worker):
                return False
        return False

    def _look_at(self) -> float:
        """Return when to look again though nobody wakes us, by the monotonic clock."""
        return min(
            math.inf if self._next_due is None else self._next_due, self.floors.widest_due if self._late else math.inf
        )

    def _may_sleep_on(self, found_at: float) -> bool:
        """Tell whether the last claim took all that is due and left room, and no other brought jobs just before."""
        return (
            not self._more
            and not self._filled
            and self._record.is_within(self._wanted())
            and self._found_at - found_at > LINGER_FOR
        )

    async def _rest(self, seconds: float) -> bool:
        if seconds <= 0 or self._stopping:
            return self._woken.is_set()
        self._turn(seconds)
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            return False
        return True

    def _jittered(self, seconds: float) -> float:
        return seconds + random.uniform(0, self._jitter)  # noqa: S311 - spreads load, guards nothing
