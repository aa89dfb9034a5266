"""Isolation: jobs whose worker was lost run apart, so that the job that killed it cannot take others with it again."""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from holdfast._engine.jobs.dispatch import QUIET_PACE
from holdfast._engine.jobs.lending import LOOK_SECONDS, SILENT_SECONDS
from holdfast._engine.keeper import unwatched
from holdfast._engine.link import Outage
from holdfast._logs.log import Log
from holdfast._store.chain import read_blockers
from holdfast._store.lease import Held, claim_suspects, isolate_worker, next_suspect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast._engine.jobs.claim import Claimer
    from holdfast._engine.jobs.demand import Demand
    from holdfast._engine.jobs.dispatch import Dispatcher
    from holdfast._engine.jobs.finish import Finisher
    from holdfast._engine.jobs.intake import Intake
    from holdfast._engine.keeper import Turn
    from holdfast._engine.session import Session
    from holdfast._store.claim import ClaimedJob
    from holdfast._store.statement import Statement

log = Log(__name__)

# Without a notification, look for suspects this often, in seconds.
POLL = 5.0
# Most wake-ups are for other jobs: a look caused by a wake-up comes at least this many seconds after the last look.
SPACING = 0.25
# A busy worker leaves a suspect to idle workers for this many seconds.
PATIENCE = 1.0
# One busy worker at a time may stop for suspects. Its permission lasts this many seconds and is renewed meanwhile.
TURN = 30.0
# Seconds to wait for running jobs beyond their maximum runtime, and for their outcomes to be written.
GRACE = 5.0
# Suspects then run for this many seconds before other work continues.
SESSION = 10.0
# The log names at most this many of the jobs that run together.
MOST_NAMED = 20


class Isolation:
    """Finds suspects of one database and runs them while nothing else runs in this process.

    It starts with one suspect and doubles the number after each group that ends without a crash. If the process dies
    with several, their attempts do not count, and each of them runs alone from then on.
    """

    def __init__(  # noqa: PLR0913 - everything that isolation uses
        self,
        session: Session,
        *,
        dispatcher: Dispatcher,
        demand: Demand,
        claimer: Claimer,
        intake: Intake,
        finisher: Finisher,
        idle_max: float,
    ) -> None:
        """`idle_max`: the longest pause when idle, in seconds."""
        self._session = session
        self._link = session.links.claim
        self._row = session.row
        self._held = session.held
        self._dispatcher = dispatcher
        self._demand = demand
        self._claimer = claimer
        self._intake = intake
        self._finisher = finisher
        self._longest = max(POLL, 2 * idle_max)
        self._rest = POLL
        self._woken = asyncio.Event()
        self._rested_at = 0.0
        self._has_run = False
        self._together = 1
        """How many suspects may run together; doubled after each group that ended without a crash."""

    def wake(self) -> None:
        """Look now: a job was lost, or may be due."""
        self._rest = POLL
        self._woken.set()

    async def run(self, turn: Turn = unwatched) -> None:
        outage = Outage(log, "claim_suspects failed, trying again")
        if self._has_run:
            # A previous run of this loop may have left a claim whose answer it did not receive.
            self._claimer.recover_soon()
        self._has_run = True
        while True:
            # The runtime of suspects is not known in advance.
            turn(math.inf)
            self._woken.clear()
            looked = time.monotonic()
            try:
                rest = await self._run_suspects_if_due()
                outage.over()
            except Exception as exc:  # noqa: BLE001 - every error is logged, and the loop continues
                self._claimer.recover_soon()
                rest = outage.failed(exc)
            with suppress(TimeoutError):
                async with asyncio.timeout(rest):
                    await self._woken.wait()
                    await asyncio.sleep(looked + SPACING - time.monotonic())

    async def _run_suspects_if_due(self) -> float:
        """Run suspects if it is time to. Return the number of seconds until the next look."""
        due_in = await self._link.run(next_suspect(self._demand.openings(), self._session.control.leases))
        if due_in is None or due_in > 0:
            return self._pause_without_suspects() if due_in is None else min(due_in, POLL)
        if self._dispatcher.idle and self._claimer.asleep:
            # Nothing else is due, so no other job has to wait.
            return await self._run_apart_for_a_while()
        left = max(PATIENCE + due_in, self._rested_at - time.monotonic())
        if left > 0:
            return min(left, 0.1)
        if not await self._link.run(isolate_worker(self._row.id, TURN)):
            return 0.5
        try:
            return await self._run_apart_for_a_while()
        finally:
            await self._link.run(isolate_worker(self._row.id, 0))

    def _pause_without_suspects(self) -> float:
        """Return the time until the next look where there is no suspect: longer each time, until the next wake-up."""
        rest, self._rest = self._rest, min(2 * self._rest, self._longest)
        return rest

    async def _run_apart_for_a_while(self) -> float:
        """Run suspects for a while. Return the number of seconds until the next look."""
        started_at = time.monotonic()
        async with self._dispatcher.apart:
            watch = asyncio.create_task(self._end_silence())
            try:
                if await self._wait_for_running_jobs():
                    await self.run_apart(time.monotonic() + SESSION)
                    return 0.05
                log.warning("no suspect can run: handlers go on after their time", extra={"worker": self._row.id})
                return POLL
            finally:
                watch.cancel()
                self._dispatcher.reopen()
                # Other work then gets as much time as the suspects had.
                self._rested_at = 2 * time.monotonic() - started_at

    async def _end_silence(self) -> None:
        """Give up a statement that gets no answer: the jobs of other databases wait for the end of this session."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._session.sharing.several and self._link.silent(SILENT_SECONDS):
                self._link.give_up()

    async def _wait_for_running_jobs(self) -> bool:
        """Wait for running jobs up to their deadlines, and renew the permission meanwhile. False: some still run."""
        deadlines = [attempt.deadline for attempt in self._held.values() if attempt.deadline is not None]
        until = max(deadlines, default=time.monotonic()) + GRACE
        # Let the claimer remove its sleep record: jobs that it would be woken for cannot start now.
        self._claimer.wake()
        while not await self._dispatcher.wait_until_idle(min(TURN / 3, max(0.0, until - time.monotonic()))):
            if time.monotonic() >= until:
                return False
            await self._link.run(isolate_worker(self._row.id, TURN))
        await self._wait_for_outcomes()
        return True

    async def _wait_for_outcomes(self) -> None:
        """Wait until outcomes are written, so that a crash does not lose them.

        An open transaction may block one for hours; other jobs do not wait for that.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE):
                await self._finisher.flushed()

    async def run_apart(self, until: float, items: int = 1_000_000, seconds: float = 86400.0) -> int:
        """Run at most `items` suspects while nothing else runs, start none after `until`; return how many ran.

        Each is waited for at most `seconds`, default a day. Those that have not started by then are given back.
        """
        ran = 0
        # Once the worker has recorded its end, suspects would not be given back.
        while not self._session.stopping and time.monotonic() < until and ran < items:
            limit = min(self._together, items - ran)
            jobs = await self._link.run_in_turn(partial(self._claim, limit))
            if jobs:
                await self._run(jobs, seconds)
                ran += len(jobs)
                self._together = min(2 * self._together, self._dispatcher.slots.concurrency)
            elif limit == 1:
                break
            else:
                # The remaining suspects must run alone, and the next lost jobs start with one again.
                self._together = 1
        return ran

    def _claim(self, limit: int) -> Statement[list[ClaimedJob]]:
        return claim_suspects(self._row.id, self._demand.openings(), self._session.control.leases, limit)

    async def _run(self, jobs: Sequence[ClaimedJob], seconds: float) -> None:
        waited, worker = [job.id for job in jobs if job.has_blockers], self._row.id
        blockers = await self._link.run(read_blockers(waited)) if waited else {}
        if worker != self._row.id:
            # The worker has registered again since, so the claim is under another worker's id: its lease must expire.
            return
        ids = [job.id for job in jobs[:MOST_NAMED]]
        log.warning(
            "jobs run apart: their last worker was lost with them",
            extra={"ids": ids, "jobs": len(jobs), "worker": self._row.id},
        )
        self._intake.hold_apart(jobs, blockers)
        until = time.monotonic() + seconds
        claims = [Held(job.id, job.token) for job in jobs]
        while True:
            if all(claim not in self._held or self._held[claim].over for claim in claims):
                await self._wait_for_outcomes()
                return
            if (left := until - time.monotonic()) <= 0:
                self._intake.give_back_waiting()
                return
            await self._dispatcher.turn(min(left, QUIET_PACE))
