"""Reaping: every worker takes back jobs with expired leases. Workers of the same kinds take turns."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast._engine.keeper import unwatched
from holdfast._engine.link import LOST, Outage
from holdfast._logs.log import Log
from holdfast._store.inspect import read_worker
from holdfast._store.lease import ClaimAnswer, ReapedJob, ReapFloor, reap_jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast._engine.keeper import Turn
    from holdfast._engine.link import Link
    from holdfast._model.retry import Retry

log = Log(__name__)

MOST_AT_ONCE = 500
# The log names at most this many of the jobs that became dead letters.
MOST_SAID = 20
MOST_WORKERS_SAID = 5
# A pass is recorded in the worker's row if the last recorded one is this many intervals old. Alarms wait for three.
SAID_AFTER = 1.5
REAPED = {ClaimAnswer.pending: "recovered", ClaimAnswer.failed: "failed", ClaimAnswer.cancelled: "cancelled"}
"""The counts of a run, by what became of a job."""


class Turns:
    """When a worker reaps: each interval is the turn of one of the peers, which know their places from heartbeats.

    So a fleet makes as many passes as one worker would. A worker that died is no longer a peer when its leases expire,
    so none of these passes is missing. However many the peers are, each reaps once within `longest` seconds.
    """

    def __init__(self, interval: float, longest: float) -> None:
        self._interval = interval
        self._most = max(1, int(longest / interval)) if interval else 1
        self._place, self._turns = 0, 1
        self._clock = 0.0
        """The difference between the clock of the server and the monotonic clock, in seconds."""
        self.changed = asyncio.Event()
        """Set when the next turn is at another time than `rest` returned before."""

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
        return (self._turns - 1) * self._interval

    def rest(self) -> float:
        """Return the seconds until this worker's next turn."""
        if self._turns == 1:
            return self._interval
        turn = self._place * self._interval - (self._clock + time.monotonic())
        return turn % (self._turns * self._interval)


class Reaper:
    """Makes a bounded pass at each of its turns, starting where the last pass ended."""

    def __init__(  # noqa: PLR0913 - everything that a pass depends on
        self,
        link: Link,
        *,
        worker: int,
        retries: Mapping[str, Retry],
        default: Retry,
        interval: float,
        longest: float = 0.0,
        others: bool = False,
        on_reaped: Callable[[Sequence[ReapedJob]], None] = lambda _: None,
    ) -> None:
        """`others`: reap all kinds, also those that this worker does not serve. `longest`: see `Turns`."""
        self._link = link
        self.worker = worker
        self._retries = retries
        self._default_retry = default
        self._interval = interval
        self._others = others
        self._on_reaped = on_reaped
        self.floor = ReapFloor()
        self.turns = Turns(interval, longest)
        self.runs = 0
        self.counts: Counter[str] = Counter()
        """The jobs so far, by what they became, under the names of a run's counts."""
        self.reaped_at = time.monotonic()
        """When the last pass ended, by the monotonic clock; at first, the time of creation."""

    async def run(self, turn: Turn = unwatched) -> None:
        outage = Outage(log, "reap_jobs failed, trying again")
        while True:
            turn()
            try:
                while len(await self.reap()) == MOST_AT_ONCE:
                    pass
            except Exception as exc:  # noqa: BLE001 - every error is logged, and passes continue
                outage.failed(exc)
                self.floor.drop()
            else:
                outage.over()
            await self._rest(turn)

    async def _rest(self, turn: Turn) -> None:
        """Wait for the next turn."""
        waiting = True
        while waiting:
            self.turns.changed.clear()
            rest = self.turns.rest()
            turn(rest)
            waiting = False
            with suppress(TimeoutError):
                async with asyncio.timeout(rest):
                    waiting = await self.turns.changed.wait()

    async def reap(self, limit: int = MOST_AT_ONCE) -> list[ReapedJob]:
        """Make one pass over at most `limit` jobs and return them. `on_reaped` is called every time, also for none."""
        since = self.floor.since()
        started_at = time.monotonic()
        at, reaped = await self._link.run(
            reap_jobs(
                self._retries,
                default=self._default_retry,
                others=self._others,
                since=since,
                limit=limit,
                worker=self.worker,
                record_every=self._interval * SAID_AFTER,
            )
        )
        # After a full batch, or one with a busy order key, the next pass starts again at its first job.
        again = len(reaped) == limit or any(job.answer is ClaimAnswer.busy for job in reaped)
        until = reaped[0].locked_until if again else at
        self.floor.advance(until, whole=since == "-infinity", took=time.monotonic() - started_at)
        self.runs += 1
        self.reaped_at = time.monotonic()
        if reaped:
            self.counts.update(REAPED[job.answer] for job in reaped if job.answer in REAPED)
            log.info("reaped", extra={"jobs": len(reaped), "stale": max(job.stale for job in reaped).total_seconds()})
        if culprits := [job.id for job in reaped if job.error_code == "crashed_alone"]:
            log.error(
                "jobs ended the process of their worker, running alone",
                extra={"ids": culprits[:MOST_SAID], "jobs": len(culprits)},
            )
        if dead := [job.id for job in reaped if job.answer is ClaimAnswer.failed]:
            log.error(
                "jobs failed: no worker came back from the last attempt of each",
                extra={"ids": dead[:MOST_SAID], "jobs": len(dead)},
            )
        self._on_reaped(reaped)
        with suppress(*LOST, TimeoutError):  # the jobs are already written and reported
            await self._name_vanished(reaped)
        return reaped

    async def _name_vanished(self, reaped: Sequence[ReapedJob]) -> None:
        """Log which workers lost these jobs, and the time of their last heartbeat."""
        jobs = Counter(job.worker for job in reaped)
        for worker, count in jobs.most_common(MOST_WORKERS_SAID):
            lost = await self._link.run(read_worker(worker))
            extra: dict[str, object] = {"lost_worker": lost.name if lost else worker, "jobs": count}
            if lost is not None:
                extra["heartbeat_at"] = lost.heartbeat_at.isoformat(timespec="seconds")
            log.warning("a worker did not renew the leases of its jobs", extra=extra)
