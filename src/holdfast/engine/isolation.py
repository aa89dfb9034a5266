"""Isolation: jobs that were lost with their worker run apart, so that the one that killed it kills no other again."""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from holdfast.engine.dispatch import QUIET_PACE
from holdfast.engine.keeper import unwatched
from holdfast.engine.outage import Outage
from holdfast.logs import Log
from holdfast.store.blocker import read_blockers
from holdfast.store.lease import Held
from holdfast.store.suspect import claim_suspects, isolate_worker, next_suspect

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from holdfast.engine.attempt import Attempt
    from holdfast.engine.claim import Claimer
    from holdfast.engine.dispatch import Dispatcher
    from holdfast.engine.keeper import Turn
    from holdfast.engine.link import Link
    from holdfast.job import Blocker
    from holdfast.lease import Lease
    from holdfast.store.claim import ClaimedJob
    from holdfast.store.statement import Statement

log = Log(__name__)

# Without a notification, suspects are looked for this often, in seconds.
POLL = 5.0
# Wake-ups are for other jobs nearly always: a look that they cause comes so many seconds after the last at least.
SPACING = 0.25
# A worker that has other work to do leaves a suspect this long to one that has none.
PATIENCE = 1.0
# The turn of the one busy worker that stops for suspects, asked for again while it lasts.
TURN = 30.0
# What runs is waited for until it is aborted for running too long, and this much longer; so long is an ending, too.
GRACE = 5.0
# Then suspects run for so long before the other work goes on.
SESSION = 10.0
# Of those that run together, so many are named in the log.
MOST_SAID = 20


class Isolation:
    """Finds suspects of one database and runs them while nothing else runs in this process.

    First one alone, and as long as they end without harm, twice as many together. If the process dies with several,
    their attempts do not count, and from then on each runs alone.
    """

    def __init__(  # noqa: PLR0913 - what running apart touches
        self,
        link: Link,
        *,
        worker: int,
        dispatcher: Dispatcher,
        claimer: Claimer,
        queues: Callable[[], Sequence[str]],
        leases: Callable[[], Mapping[str, Lease]],
        held: Mapping[Held, Attempt],
        start: Callable[[Sequence[ClaimedJob], Mapping[int, Sequence[Blocker]]], None],
        give_back: Callable[[], None],
        flushed: Callable[[], Awaitable[None]],
    ) -> None:
        """Take `queues()`, those that may start a job now; `start(jobs, blockers)`, which holds and starts them.

        `give_back()` is called for what could not be started. `flushed()` returns when all endings are written.
        """
        self._link = link
        self.worker = worker
        self._dispatcher = dispatcher
        self._claimer = claimer
        self._queues = queues
        self._leases = leases
        self._held = held
        self._start = start
        self._give_back = give_back
        self._flushed = flushed
        self._woken = asyncio.Event()
        self._rested_at = 0.0
        self._begun = False
        self._together = 1
        """How many suspects may run at once, after so many have ended without harm."""

    def wake(self) -> None:
        """Look now: something was lost, or may be due."""
        self._woken.set()

    async def run(self, turn: Turn = unwatched) -> None:
        outage = Outage(log, "claim_suspects failed, trying again")
        if self._begun:
            # A loop that ended may have left a claim behind whose answer it did not see.
            self._claimer.recover_soon()
        self._begun = True
        while True:
            # Suspects take as long as they take.
            turn(math.inf)
            self._woken.clear()
            looked = time.monotonic()
            try:
                rest = await self._look()
                outage.over()
            except Exception as exc:  # noqa: BLE001 - whatever it is, it is said, and looks go on
                self._claimer.recover_soon()
                rest = outage.failed(exc)
            with suppress(TimeoutError):
                async with asyncio.timeout(rest):
                    await self._woken.wait()
                    await asyncio.sleep(looked + SPACING - time.monotonic())

    async def _look(self) -> float:
        """Run suspects if it is time to; return after how many seconds to look again."""
        due_in = await self._link.run(next_suspect(self._queues(), self._leases()))
        if due_in is None or due_in > 0:
            return POLL if due_in is None else min(due_in, POLL)
        if self._dispatcher.idle and self._claimer.asleep:
            # Nothing else is due: nobody is kept waiting.
            return await self._session()
        left = max(PATIENCE + due_in, self._rested_at - time.monotonic())
        if left > 0:
            return min(left, 0.1)
        if not await self._link.run(isolate_worker(self.worker, TURN)):
            return 0.5
        try:
            return await self._session()
        finally:
            await self._link.run(isolate_worker(self.worker, 0))

    async def _session(self) -> float:
        """Run suspects for a while; return after how many seconds to look again."""
        begun = time.monotonic()
        async with self._dispatcher.apart:
            try:
                if await self._quiet():
                    await self.run_apart(time.monotonic() + SESSION)
                    return 0.05
                log.warning("no suspect can run: handlers go on after their time", extra={"worker": self.worker})
                return POLL
            finally:
                self._dispatcher.go_on()
                # As much time for the other work.
                self._rested_at = 2 * time.monotonic() - begun

    async def _quiet(self) -> bool:
        """Wait for what runs, for as long as it may; the turn is ours meanwhile."""
        deadlines = [attempt.deadline for attempt in self._held.values() if attempt.deadline is not None]
        until = max(deadlines, default=time.monotonic()) + GRACE
        # Wake-ups may arrive for jobs that cannot start now.
        self._claimer.wake()
        while not await self._dispatcher.quiet(min(TURN / 3, max(0.0, until - time.monotonic()))):
            if time.monotonic() >= until:
                return False
            await self._link.run(isolate_worker(self.worker, TURN))
        await self._written()
        return True

    async def _written(self) -> None:
        """Wait for the endings of what ran, so that a crash costs them nothing.

        Somebody's open transaction may hold one up for hours, and for that no other job waits.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE):
                await self._flushed()

    async def run_apart(self, until: float, items: int = 1_000_000, seconds: float = 86400.0) -> int:
        """Run suspects while nothing else runs: at most so many, none begun after `until`; return how many.

        Each is waited for at most so long; what has not started by then is given back.
        """
        ran = 0
        while time.monotonic() < until and ran < items:
            most = min(self._together, items - ran)
            jobs = await self._link.run_in_turn(partial(self._claim, most))
            if jobs:
                await self._run(jobs, seconds)
                ran += len(jobs)
                self._together = min(2 * self._together, self._dispatcher.slots.concurrency)
            elif most == 1:
                break
            else:
                # What is left runs alone, and whatever is lost next begins so.
                self._together = 1
        return ran

    def _claim(self, most: int) -> Statement[list[ClaimedJob]]:
        return claim_suspects(self.worker, self._queues(), self._leases(), most)

    async def _run(self, jobs: Sequence[ClaimedJob], seconds: float) -> None:
        waited, worker = [job.id for job in jobs if job.has_blockers], self.worker
        blockers = await self._link.run(read_blockers(waited)) if waited else {}
        if worker != self.worker:
            # Registered anew since the claim, which is another's by its id: only the end of its lease takes it away.
            return
        ids = [job.id for job in jobs[:MOST_SAID]]
        log.warning(
            "jobs run apart: their last worker was lost with them",
            extra={"ids": ids, "jobs": len(jobs), "worker": self.worker},
        )
        self._start(jobs, blockers)
        until = time.monotonic() + seconds
        claims = [Held(job.id, job.token) for job in jobs]
        while True:
            if all(claim not in self._held or self._held[claim].over for claim in claims):
                await self._written()
                return
            if (left := until - time.monotonic()) <= 0:
                self._give_back()
                return
            await self._dispatcher.turn(min(left, QUIET_PACE))
