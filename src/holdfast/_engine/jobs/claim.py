"""Claiming: the claimer keeps free slots full and holds no more jobs than will start soon."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast import _drivers as drivers
from holdfast._engine.jobs.due import DueJobs
from holdfast._engine.jobs.named import NamedJobs
from holdfast._engine.keeper import unwatched
from holdfast._engine.link import Outage
from holdfast._engine.wake.sleep import RENEWED_AFTER, RecordedSleep, follow
from holdfast._logs.log import Log
from holdfast._store.chain import read_blockers
from holdfast._store.claim import REACHES
from holdfast._store.lease import release_strays
from holdfast._store.sleeper import end_sleep, look_ahead, record_sleep, wake_sleepers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast._engine.jobs.demand import Demand
    from holdfast._engine.jobs.dispatch import Dispatcher
    from holdfast._engine.jobs.intake import Intake
    from holdfast._engine.keeper import Turn
    from holdfast._engine.report.transition import Transitions
    from holdfast._engine.session import Session
    from holdfast._model.settings import Settings
    from holdfast._model.work import Lease
    from holdfast._store.claim import Claim, ClaimedJob

log = Log(__name__)

# After many jobs, poll at intervals of LINGER_FIRST seconds, for LINGER_FOR seconds in all.
LINGER_FIRST = 0.002
LINGER_FOR = 0.04


class Claimer:
    """Claims jobs for one worker from one database."""

    def __init__(
        self, session: Session, settings: Settings, demand: Demand, intake: Intake, transitions: Transitions
    ) -> None:
        self._session = session
        self._link = session.links.claim
        self._row = session.row
        self._control = session.control
        self._leases = session.control.leases
        self._start = ""
        """The queue that is served first in the next claim."""
        self._demand = demand
        self._intake = intake
        self._transitions = transitions
        self._has_run = False
        self._turn: Turn = unwatched
        self._idle_min = settings.idle_min.total_seconds()
        self._idle_max = settings.idle_max.total_seconds()
        self._jitter = settings.jitter.total_seconds()
        self._due = DueJobs(session, settings, demand.slots)
        self.floors = self._due.floors
        self._named = NamedJobs(session, demand, self._due.shards)
        self._room = demand.room
        self._woken = demand.woken
        self._wakes = 0
        self._next_due: float | None = None
        """When the next job that the last claim saw is due, by the monotonic clock."""
        self._found_at = -LINGER_FOR
        self._recorded = RecordedSleep[tuple[int, frozenset[str]]]()
        """The sleep under the record of this worker and the queues it sleeps for."""
        self._filled: list[str] = []
        self._more = False
        """Whether the last claim left due jobs."""
        self._late = False
        """Whether a transaction may have committed late and no claim since has looked below the floors for its jobs."""
        self._may_own_unheld_jobs = False
        """Whether a job may be claimed for this worker that is not held."""
        self._openings = self._link.openings
        """How many connections the link had opened when the worker registered or last gave jobs back."""
        self.jobs = 0
        """Jobs claimed so far."""

    @property
    def claims(self) -> int:
        """The number of claims so far."""
        return self._session.claims

    def wake(self, text: str = "") -> bool:
        """Wake up and look: a job may be due now or later. Return True if `text` names one that is claimed alone."""
        if self.asleep and self._recorded.seen is not None and self._named.note(text):
            return True
        self._wakes += 1
        self._woken.set()
        return False

    @property
    def asleep(self) -> bool:
        """Whether nothing was due and the claimer waits for a wake-up."""
        return self._demand.asleep_for is not None

    def recover_soon(self) -> None:
        """Give back jobs that another loop claimed for this worker without receiving the answer."""
        self._may_own_unheld_jobs = True
        self.wake()

    def stop(self) -> None:
        """End after the claim under way: the jobs it takes must not be lost."""
        self._room.set()
        self._woken.set()

    async def run(self, turn: Turn = unwatched) -> None:
        outage = Outage(log, "claim_jobs failed, trying again")
        idle, slept = self._idle_min, False
        # A previous run of this loop may have left a claim whose answer it did not receive.
        self._may_own_unheld_jobs = self._may_own_unheld_jobs or self._has_run
        self._has_run, self._turn = True, turn
        while not self._session.stopping:
            turn()
            try:
                if (
                    outage.failures
                    or self._may_own_unheld_jobs
                    or not self._link.connected
                    or self._openings != self._link.openings
                ):
                    await self._recover()
                # A sleep starts with a claim, so a second sleep in a row needs no claim before it.
                if (not slept and (await self._claim_wanted() or await self._linger())) or await self._sleep(idle):
                    await self._delete_sleep_record()
                    idle, slept = self._idle_min, False
                else:
                    idle, slept = min(idle * 2, self._idle_max), True
                outage.over()
            except Exception as exc:  # noqa: BLE001 - every error is logged, and claiming continues
                self._recorded.doubt()
                slept = False
                await asyncio.sleep(outage.failed(exc))

    async def _recover(self) -> None:
        """Give back jobs of a claim whose answer was lost, and drop the floors: the server may be another one now."""
        self.floors.drop()
        # Read `held` once the link is free: a claim that was just answered is in it by then.
        await self._link.run_with(
            lambda conn: drivers.run(conn, release_strays(self._row.id, self._session.held, self._row.identity))
        )
        self._may_own_unheld_jobs, self._openings = False, self._link.openings

    async def _claim_wanted(self) -> bool:
        """Claim once, or wait for a free slot if nothing is wanted. Return False when nothing more is due."""
        self._room.clear()
        if not (wanted := self._demand.wanted()):
            if not self._session.stopping:
                await self._delete_sleep_record()
                self._turn(math.inf)
                await self._room.wait()
            return True
        if not await self.claim(wanted):
            return False
        # While many come, what the claim did not leave is better awaited than asked for at once.
        return self._more or bool(self._filled) or not self._named.many

    async def claim_due(self, items: int, until: float, dispatcher: Dispatcher) -> bool:
        """Claim at most `items` due jobs of all queues, none after `until` (monotonic clock).

        Return True when more than that many may be due.
        """
        first, left_to_see = self.jobs, set(dispatcher.slots.queues)
        while left_to_see and (seconds := until - time.monotonic()) > 0:
            if (left := items - self.jobs + first) <= 0:
                return True
            wanted = {name: count for name, count in self._demand.wanted().items() if name in left_to_see}
            if wanted:
                if not await self.claim(wanted, limit=left):
                    left_to_see -= wanted.keys()
            elif not self._demand.full and dispatcher.stalled(seconds, left_to_see - self._control.paused):
                # Each of them is paused or rests for longer.
                return False
            else:
                await self._wait_for_room(seconds)
        return False

    async def _wait_for_room(self, seconds: float) -> None:
        """Wait until more jobs may be wanted, at most `seconds`."""
        self._room.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._room.wait()

    async def _claim_if_wanted(self) -> bool:
        return bool(wanted := self._demand.wanted()) and await self.claim(wanted)

    async def claim(self, wanted: Mapping[str, int], *, limit: int | None = None) -> bool:
        """Claim once. Return whether another claim right away may find more."""
        self._woken.clear()
        self._filled = []
        self._next_due = None
        self._more = False
        limit = self._demand.limit if limit is None else min(limit, self._demand.limit)
        leases, own = self._leases, self._control.queue_leases
        if own.keys().isdisjoint(wanted):
            claim = await self._claim(wanted, leases, limit)
            return bool(claim.jobs) or claim.again
        # A call takes one lease per kind, so a queue with its own lease needs a separate claim.
        parts: dict[Lease | None, dict[str, int]] = {}
        for queue in sorted(wanted, key=lambda queue: (queue < self._start, queue)):
            parts.setdefault(own.get(queue), {})[queue] = wanted[queue]
        found = False
        for lease, part in parts.items():
            if limit > 0:
                claim = await self._claim(part, dict.fromkeys(leases, lease) if lease else leases, limit)
                limit -= len(claim.jobs)
                found = found or bool(claim.jobs) or claim.again
        return found

    async def _claim(self, wanted: Mapping[str, int], leases: Mapping[str, Lease], limit: int) -> Claim:
        # Read before a plain claim and after a whole one: registering again uses this link between the two.
        worker, started_at, pause = self._row.id, time.monotonic(), 0.0
        claim = None if self.asleep else await self._due.claim_plain(wanted, leases, limit=limit)
        if claim is None:
            reach = self.floors.reach()
            claim, pause = await self._due.claim(wanted, leases, limit=limit, start=self._start, reach=reach)
            worker = self._row.id
            self._late = self._late and reach != REACHES[-1]
        self._session.claims += 1
        self._more = self._more or claim.again
        self._transitions.looked(claim.jobs, time.monotonic() - started_at)
        if claim.next_due is not None:
            due = time.monotonic() + claim.next_due
            self._next_due = due if self._next_due is None else min(due, self._next_due)
        taken = Counter(job.queue for job in claim.jobs)
        if len(claim.jobs) >= limit:
            # The claim reached its limit: the queues that were not served come first next time.
            self._start = f"{claim.jobs[-1].queue}\0"
            self._filled += wanted
        else:
            self._filled += [queue for queue, count in wanted.items() if taken[queue] >= count]
        if len({(job.queue, job.priority) for job in claim.jobs}) > len(taken):
            self._demand.overtaken()
        if pause:
            # Other workers hold the due jobs: another claim is useless before their jobs can have ended.
            await asyncio.sleep(pause)
        if claim.jobs:
            self._found_at = time.monotonic()
            await self._hold(claim.jobs, worker)
        return claim

    async def _hold(self, jobs: Sequence[ClaimedJob], worker: int) -> None:
        """Hold the jobs that were claimed under this id."""
        self.jobs += len(jobs)
        self._named.count(len(jobs))
        waited = [job.id for job in jobs if job.has_blockers]
        blockers = await self._link.run(read_blockers(waited)) if waited else {}
        if worker == self._row.id:
            self._intake.hold(jobs, blockers)
        else:
            log.warning(
                "a claim under an id that is no longer this worker's is left alone",
                extra={"worker": worker, "jobs": len(jobs)},
            )

    async def _claim_named(self) -> bool:
        """Claim the jobs that notifications named. Return whether that was all there was to do."""
        self._woken.clear()
        started_at = time.monotonic()
        jobs, all_done = await self._named.claim()
        self._session.claims += 1
        self._transitions.looked(jobs, time.monotonic() - started_at)
        self.floors.note(jobs)
        await self._hold(jobs, self._row.id)
        return all_done

    async def _linger(self) -> bool:
        """Poll briefly after many jobs: a recorded sleeper makes every enqueue send a notification."""
        if not self._named.many or time.monotonic() - self._found_at > LINGER_FOR:
            return False
        await self._rest(LINGER_FIRST)
        return True

    async def _sleep(self, idle: float) -> bool:
        """Sleep until a wake-up, until the next job is due, or for the idle time. Return whether there was work."""
        if not (wanted := self._demand.wanted()):
            return True
        self._demand.asleep_for = wanted.keys()
        try:
            return await self._asleep(wanted, idle)
        finally:
            self._demand.asleep_for = None

    async def _asleep(self, wanted: Mapping[str, int], idle: float) -> bool:
        if not self._session.listening.is_set():
            return await self._rest(self._jittered(idle)) or await self._claim_if_wanted()
        until = time.monotonic() + min(self._jittered(idle), RENEWED_AFTER)
        found = False
        if not self._recorded.stands((self._row.id, frozenset(wanted)), until):
            found = await self._record_sleep(wanted, until)
        found = found or await self._wait_for_notification(until)
        if found or self._session.stopping:
            await self._delete_sleep_record()
        if self._filled:
            # This worker cannot run all jobs that it was woken for: wake the next sleeper.
            await self._link.run(wake_sleepers(self._filled, self._leases))
        return found

    async def _record_sleep(self, wanted: Mapping[str, int], until: float) -> bool:
        """Record the sleep, and poll until all other transactions see the record. Return True when there was work."""
        record = record_sleep(self._row.id, wanted, self._leases)
        # Reading a horizon costs a transaction id.
        horizon = look_ahead(self._row.id, self._due.served.unless_all(wanted))
        limits = await follow(
            self._link, self._recorded.fall_asleep((self._row.id, frozenset(wanted)), record, horizon)
        )
        if limits is not None and limits.next_due is not None:
            self._next_due = time.monotonic() + limits.next_due.total_seconds()
        return await self._sleep_lightly(until)

    async def _sleep_lightly(self, until: float) -> bool:
        """Poll while an older transaction may still commit a job without a notification. Return True on work."""
        while time.monotonic() < until and not await follow(self._link, self._recorded.settle()):
            look_at = min(self._recorded.look_at, math.inf if self._next_due is None else self._next_due)
            await self._rest(min(look_at, until) - time.monotonic())
            if await self._claim_if_wanted():
                return True
            self._late = True
        return False

    async def _delete_sleep_record(self) -> None:
        """Delete the record: a busy worker needs no notifications."""
        if self._recorded.end():
            await self._link.run(end_sleep(self._row.id))

    async def _wait_for_notification(self, until: float) -> bool:
        """Sleep until `until`; claim when woken or when the next job is due. Return True when more work is left.

        The sleep record stays while a few jobs run: all transactions see it, so the next enqueue sends a notification.
        """
        wakes = self._wakes
        if not (wanted := self._demand.wanted()) or await self.claim(wanted):
            return True
        while not self._session.stopping:
            # A wake-up in between may be for a job that is due before the next planned claim.
            if wakes == self._wakes and not self._named:
                await self._rest(min(until, self._look_at()) - time.monotonic())
                if wakes == self._wakes and not self._named and time.monotonic() >= until:
                    return False
            if wakes == self._wakes and self._named and await self._claim_named():
                if self._may_sleep_on():
                    continue
                return True
            # A job that was committed just now may have been enqueued long ago, below the floors.
            self._late = self._late or wakes != self._wakes
            wakes = self._wakes
            if not (wanted := self._demand.wanted()) or (await self.claim(wanted) and not self._may_sleep_on()):
                return True
            if self._may_own_unheld_jobs or (seen := self._recorded.seen) is None or seen[0] != self._row.id:
                return False
        return False

    def _look_at(self) -> float:
        """Return when to claim again without a wake-up, by the monotonic clock."""
        return min(
            math.inf if self._next_due is None else self._next_due, self.floors.widest_due if self._late else math.inf
        )

    def _may_sleep_on(self) -> bool:
        """Return whether few jobs come, and the last claim took all with slots left in every queue of the record."""
        if self._more or self._filled or self._named.many or (seen := self._recorded.seen) is None:
            return False
        return seen[1] <= self._demand.wanted().keys()

    async def _rest(self, seconds: float) -> bool:
        if seconds <= 0 or self._session.stopping:
            return self._woken.is_set()
        self._turn(seconds)
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            return False
        return True

    def _jittered(self, seconds: float) -> float:
        return seconds + random.uniform(0, self._jitter)  # noqa: S311 - it spreads load, and is not used for security
