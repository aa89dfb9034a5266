"""Reaping: every worker takes back jobs with expired leases, of the kinds that it serves."""

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
from holdfast._store.lease import ClaimAnswer, ReapedJob, ReapFloor, reap_jobs, record_reaping

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


class Reaper:
    """Makes a bounded pass every interval, starting where the last pass ended."""

    def __init__(  # noqa: PLR0913 - everything that a pass depends on
        self,
        link: Link,
        *,
        worker: int,
        retries: Mapping[str, Retry],
        default: Retry,
        interval: float,
        others: bool = False,
        on_reaped: Callable[[Sequence[ReapedJob]], None] = lambda _: None,
    ) -> None:
        self._link = link
        self.worker = worker
        self._retries = retries
        self._default_retry = default
        self._interval = interval
        self._others = others
        self._on_reaped = on_reaped
        self.floor = ReapFloor()
        self.runs = 0
        self.recovered = 0
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
            turn(self._interval)
            await asyncio.sleep(self._interval)

    async def reap(self, limit: int = MOST_AT_ONCE) -> list[ReapedJob]:
        """Make one pass over at most `limit` jobs and return them. `on_reaped` is called every time, also for none."""
        since = self.floor.since()
        started_at = time.monotonic()
        reaped = await self._link.run(
            reap_jobs(self._retries, default=self._default_retry, others=self._others, since=since, limit=limit)
        )
        now = await self._link.run(record_reaping(self.worker, int(self._interval * SAID_AFTER * 1000)))
        # After a full batch, or one with a busy order key, the next pass starts again at its first job.
        again = len(reaped) == limit or any(job.answer is ClaimAnswer.busy for job in reaped)
        until = reaped[0].locked_until if again else now
        self.floor.advance(until, whole=since == "-infinity", took=time.monotonic() - started_at)
        self.runs += 1
        self.reaped_at = time.monotonic()
        if reaped:
            self.recovered += len(reaped)
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
