"""The store's claim and finish on one connection, as a worker calls them: with floors, one call per batch."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from bench.load import KIND
from holdfast.drivers import run_sync
from holdfast.lease import Lease
from holdfast.outcome import Completed
from holdfast.store.claim import Claim, claim_jobs
from holdfast.store.finish import Ending, finish_jobs
from holdfast.store.floor import Floors
from holdfast.store.worker import register_worker

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import psycopg

    from holdfast.store.claim import ClaimedJob
    from holdfast.store.statement import Statement

_COMPLETED = Completed(None)


class Worker:
    def __init__(
        self, conn: psycopg.Connection[Any], *, kinds: Sequence[str] = (KIND,), lease: Lease | None = None
    ) -> None:
        self.conn = conn
        self.floors = Floors()
        self.leases = dict.fromkeys(kinds, lease or Lease())
        self.id = run_sync(conn, register_worker("bench", queues=["default"], kinds=kinds))

    def statement(self, most: int, reach: float) -> Statement[Claim]:
        return claim_jobs(self.id, {"default": most}, self.leases, floors=self.floors, reach=reach)

    def claim(self, most: int = 500) -> Claim:
        reach = self.floors.reach()
        begun = time.perf_counter()
        claim = run_sync(self.conn, self.statement(most, reach))
        self.floors.advance(claim.jobs, reach=reach, took=time.perf_counter() - begun)
        return claim

    def finish(self, jobs: Sequence[ClaimedJob]) -> None:
        self.write(completed(jobs))

    def write(self, endings: Sequence[Ending]) -> None:
        answers = run_sync(self.conn, finish_jobs(self.id, endings))
        assert set(answers.values()) <= {"completed"}, f"a completion was refused: {answers}"

    def drain(self) -> int:
        """Claim and finish until nothing is due."""
        done = 0
        while (claim := self.claim()).jobs or claim.again:
            if claim.jobs:
                self.finish(claim.jobs)
                done += len(claim.jobs)
        return done


def completed(jobs: Iterable[ClaimedJob]) -> list[Ending]:
    """Return what the attempts would have left behind, one by one, before they are written together."""
    return [Ending(job, _COMPLETED) for job in jobs]
