"""Reaping: every worker takes back jobs with expired leases, and releases those that wait for what has ended.

Workers of the same kinds take turns.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from holdfast._engine.keeper import unwatched
from holdfast._engine.link import LOST, Outage
from holdfast._logs.log import Log
from holdfast._store.chain import release_waiters
from holdfast._store.inspect import read_worker
from holdfast._store.lease import ClaimAnswer, DeadWorker, ReapedJob, ReapFloor, reap_jobs, shorten_leases
from holdfast._store.maintenance import set_back_jobs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast._engine.keeper import Turn
    from holdfast._engine.link import Link
    from holdfast._engine.own_row import OwnRow
    from holdfast._model.retry import Retry

log = Log(__name__)

MOST_AT_ONCE = 500
MOST_WAITERS = 500
# Seconds until waiters that were locked are tried again.
RELEASED_AGAIN = 1.1
# The log names at most this many of the jobs that became dead letters.
MOST_NAMED = 20
MOST_WORKERS_NAMED = 5
# After the clock was set back, jobs are changed in batches, and the rest in the next pass.
BATCH = 5_000
MOST_BATCHES = 20
# A pass is recorded in the worker's row if the last recorded one is this many intervals old. Alarms wait for three.
RECORDED_AFTER = 1.5
REAPED = {ClaimAnswer.pending: "recovered", ClaimAnswer.failed: "failed", ClaimAnswer.cancelled: "cancelled"}
"""The counts of a run, by what became of a job."""


class ReapSchedule:
    """When a worker reaps: each interval is the turn of one of the peers, which know their places from heartbeats.

    So a fleet makes as many passes as one worker would. A worker that died is no longer a peer when its leases expire,
    so none of these passes is missing. However many the peers are, each reaps once within `longest` seconds.
    """

    def __init__(self, interval: float, longest: float) -> None:
        self.interval = interval
        """In seconds."""
        self._most = max(1, int(longest / interval)) if interval else 1
        self._place, self._turns = 0, 1
        self._clock = 0.0
        """The difference between the clock of the server and the monotonic clock, in seconds."""
        self.changed = asyncio.Event()
        """Set when the next turn is at another time than `rest` returned before, or the reaper is woken."""
        self.woken = False
        """Whether waiters should be released before the next turn."""

    def wake(self) -> None:
        """Release waiters now: a chain has ended for which many wait."""
        self.woken = True
        self.changed.set()

    def learn(self, place: int, peers: int, at: float) -> None:
        """Take the place among so many peers, from a heartbeat answered just now; `at`: by the server's clock."""
        turns = min(peers, self._most)
        if (place % turns, turns) != (self._place, self._turns):
            self._place, self._turns = place % turns, turns
            self.changed.set()
        self._clock = at - time.monotonic()

    @property
    def others(self) -> float:
        """Seconds of a round that are the turns of others."""
        return (self._turns - 1) * self.interval

    def rest(self) -> float:
        """Return the seconds until this worker's next turn."""
        if self._turns == 1:
            return self.interval
        turn = self._place * self.interval - (self._clock + time.monotonic())
        return turn % (self._turns * self.interval)


class ReapListener(Protocol):
    """Learns what a reaper found: `Transitions` in one-shot mode, `Wakeups` in a worker."""

    def reaped(self, jobs: Sequence[ReapedJob]) -> None:
        """Receive the jobs of each pass, also none."""
        ...

    def died(self, lost: DeadWorker) -> None:
        """Receive a worker that was lost."""
        ...


class Reaper:
    """Makes a bounded pass at each of its turns, starting where the last pass ended."""

    def __init__(  # noqa: PLR0913 - everything that a pass depends on
        self,
        link: Link,
        row: OwnRow,
        schedule: ReapSchedule,
        listener: ReapListener,
        *,
        retries: Mapping[str, Retry],
        default: Retry,
        others: bool = False,
    ) -> None:
        """`others`: reap all kinds, also those that this worker does not serve."""
        self._link = link
        self._row = row
        self.schedule = schedule
        self._listener = listener
        self._retries = retries
        self._default_retry = default
        self._others = others
        self.floor = ReapFloor()
        self.runs = 0
        self.reaped_at = time.monotonic()
        """When the last pass ended, by the monotonic clock; at first, the time of creation."""

    async def run(self, turn: Turn = unwatched) -> None:
        outage = Outage(log, "reap_jobs failed, trying again")
        its_turn, again = True, False
        while True:
            turn()
            self.schedule.woken = False
            try:
                while its_turn and len(await self.reap()) == MOST_AT_ONCE:
                    pass
                again = await self.release(math.inf, turn)
            except Exception as exc:  # noqa: BLE001 - every error is logged, and passes continue
                outage.failed(exc)
                self.floor.drop()
            else:
                outage.over()
            its_turn = await self._rest(turn, again=again)

    async def _rest(self, turn: Turn, *, again: bool) -> bool:
        """Wait for the next turn and return True; False when woken before it, or to release waiters `again`."""
        waiting, soon = True, False
        while waiting and not self.schedule.woken:
            self.schedule.changed.clear()
            rest = self.schedule.rest()
            soon = again and rest > RELEASED_AGAIN
            turn(rest)
            waiting = False
            with suppress(TimeoutError):
                async with asyncio.timeout(RELEASED_AGAIN if soon else rest):
                    waiting = await self.schedule.changed.wait()
        return not waiting and not soon

    async def release(self, until: float, turn: Turn = unwatched) -> bool:
        """Release the waiters of chains that had too many for one statement, in portions, none after `until`.

        Return whether there were any: those that were locked meanwhile are left for a second.
        """
        found = False
        while time.monotonic() < until and await self._link.run(release_waiters(limit=MOST_WAITERS)) > 0:
            found = True
            turn()
        return found

    async def reap(self, limit: int = MOST_AT_ONCE) -> list[ReapedJob]:
        """Make one pass over at most `limit` jobs and return them. The listener gets them, too, also none."""
        since = self.floor.since()
        started_at = time.monotonic()
        at, set_back, died, reaped = await self._link.run(
            reap_jobs(
                self._retries,
                default=self._default_retry,
                others=self._others,
                since=since,
                limit=limit,
                worker=self._row.id,
                record_every=self.schedule.interval * RECORDED_AFTER,
            )
        )
        if set_back:
            await self._set_back()
        full = len(reaped) == limit
        # These hold up nothing: a pass over all leases finds them again.
        refused = [job for job in reaped if job.error_code == "refused"]
        reaped = [job for job in reaped if job.error_code != "refused"]
        # After a full batch, or one with a busy order key, the next pass starts again at its first job.
        again = (full and bool(reaped)) or any(job.answer is ClaimAnswer.busy for job in reaped)
        until = reaped[0].locked_until if again else at
        self.floor.advance(until, whole=since == "-infinity", took=time.monotonic() - started_at)
        self.runs += 1
        self.reaped_at = time.monotonic()
        for job in refused[:MOST_NAMED]:
            log.error("an expired job cannot be taken back", extra={"id": job.id, "kind": job.kind, "why": job.error})
        if reaped:
            log.info("reaped", extra={"jobs": len(reaped), "stale": max(job.stale for job in reaped).total_seconds()})
        if culprits := [job.id for job in reaped if job.error_code == "crashed_alone"]:
            log.error(
                "jobs ended the process of their worker, running alone",
                extra={"ids": culprits[:MOST_NAMED], "jobs": len(culprits)},
            )
        if dead := [job.id for job in reaped if job.answer is ClaimAnswer.failed]:
            log.error(
                "jobs failed: no worker came back from the last attempt of each",
                extra={"ids": dead[:MOST_NAMED], "jobs": len(dead)},
            )
        self._listener.reaped(reaped)
        for worker in died:
            log.warning(
                "a worker died: it sent no heartbeat for a whole lease, and had not stopped",
                extra={"lost_worker": worker.name, "host": worker.host, "heartbeat_at": worker.heartbeat_at},
            )
            self._listener.died(worker)
        with suppress(*LOST, TimeoutError):  # the jobs are already written and reported
            await self._name_vanished(reaped)
        return reaped

    async def _set_back(self) -> None:
        """Shorten leases that were taken before the clock was set back, and let jobs be due that it made due later."""
        workers, jobs, since = await self._link.run(shorten_leases()), 0, 0
        for _ in range(MOST_BATCHES):
            batch = await self._link.run(set_back_jobs(since=since, limit=BATCH))
            jobs += batch.rows
            if batch.until is None:
                break
            since = batch.until
        if workers or jobs:
            log.warning("the clock was set back", extra={"leases_shortened_of": workers, "jobs_due_now": jobs})

    async def _name_vanished(self, reaped: Sequence[ReapedJob]) -> None:
        """Log which workers lost these jobs, and the time of their last heartbeat."""
        jobs = Counter(job.worker for job in reaped)
        for worker, count in jobs.most_common(MOST_WORKERS_NAMED):
            lost = await self._link.run(read_worker(worker))
            extra: dict[str, object] = {"lost_worker": lost.name if lost else worker, "jobs": count}
            if lost is not None:
                extra["heartbeat_at"] = lost.heartbeat_at.isoformat(timespec="seconds")
            log.warning("a worker did not renew the leases of its jobs", extra=extra)
