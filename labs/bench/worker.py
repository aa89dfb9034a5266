"""The store's claim and finish on one connection, as a worker calls them: with floors, one call per batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast._drivers import run_sync
from holdfast._model.outcome import Completed
from holdfast._model.work import Lease
from holdfast._store.claim import WINDOWS, Floors, Served, Windows, claim_jobs
from holdfast._store.finish import Ending, finish_jobs
from holdfast._store.plain import claim_plain
from holdfast._store.sleeper import look_ahead
from holdfast._store.worker import register_worker
from labs.bench.load import KIND

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import psycopg

    from holdfast._store.claim import Claim, ClaimedJob
    from holdfast._store.sleeper import Horizon
    from holdfast._store.statement import Statement

_COMPLETED = Completed(None)


class Worker:
    def __init__(
        self,
        conn: psycopg.Connection[Any],
        *,
        kinds: Sequence[str] = (KIND,),
        queues: Sequence[str] = ("default",),
        lease: Lease | None = None,
    ) -> None:
        """Serve the kinds: those of the first queue, the second and so on, in turn."""
        self.conn = conn
        self.queues = queues
        self.floors = Floors()
        self.windows = Windows()
        self.leases = dict.fromkeys(kinds, lease or Lease())
        self._served = Served(queues, self.leases)
        self.id = run_sync(conn, register_worker("bench", queues=queues, kinds=kinds))

    def statement(self, limit: int, reach: float) -> Statement[Claim]:
        slots = dict.fromkeys(self.queues, limit)
        return claim_jobs(
            self.id,
            slots,
            self.leases,
            limit=limit,
            served=self._served,
            floors=self.floors,
            reach=reach,
            windows=self.windows,
        )

    def plain(self, limit: int) -> Statement[list[ClaimedJob]] | None:
        """Return the plain claim that follows a full one, on a connection with `pin_plans`."""
        windows = self.windows.asked_by_plain()
        return claim_plain(self.id, self.queues[0], limit, served=self._served, floors=self.floors, windows=windows)

    def learn_plain(self, jobs: Sequence[ClaimedJob]) -> None:
        if self.windows.asked_by_plain()[0] in {0, WINDOWS}:
            self.floors.pass_by(jobs)
        else:
            self.windows.move()

    def look_ahead(self) -> Statement[Horizon]:
        return look_ahead(self.id)

    def claim(self, limit: int = 500) -> Claim:
        reach = self.floors.reach()
        claim = run_sync(self.conn, self.statement(limit, reach))
        self.learn(claim, reach)
        return claim

    def learn(self, claim: Claim, reach: float) -> float:
        """Return how long to wait before the next claim, in seconds."""
        self.floors.advance(
            claim.jobs, reach=reach, took=claim.looking, begins=claim.begins, turns=claim.turns, promoted=claim.promoted
        )
        return self.windows.learn(claim)

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
    return [Ending(job, _COMPLETED, number % 100 / 1000) for number, job in enumerate(jobs)]
