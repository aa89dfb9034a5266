"""Workers without an engine: each call is one statement of the store on a connection of its own."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast._drivers import run_sync
from holdfast._logs.failure import Failure
from holdfast._model.new_job import Envelope, NewJob
from holdfast._model.outcome import Cancelled, Completed, Failed, Outcome, Released, Rescheduled, Retried
from holdfast._model.retry import Retry
from holdfast._model.work import Lease
from holdfast._store.claim import WHOLE, Shards, claim_jobs
from holdfast._store.enqueue import enqueue_jobs
from holdfast._store.finish import Ending, finish_jobs
from holdfast._store.lease import ClaimAnswer, Held, ReapedJob, claim_suspects, reap_jobs, renew_leases
from holdfast._store.worker import register_worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import psycopg

    from holdfast._store.claim import ClaimedJob, Floors

    Connect = Callable[..., psycopg.Connection[Any]]

EVERYTHING = 315_360_000.0
FAILURE = Failure("Broken", "it broke")
AT_ONCE = Retry(1000, base=timedelta(0), jitter=timedelta(0))

COMPLETED = Completed()
RETRIED = Retried(timedelta(0), FAILURE)
RESCHEDULED = Rescheduled(timedelta(0))
RELEASED = Released()
FAILED = Failed(FAILURE)
CANCELLED = Cancelled()


def job(kind: str = "k", payload: str = "{}", **options: Any) -> NewJob[Any]:
    return NewJob[Any](Envelope(kind), payload).options(**options)


def enqueue(conn: psycopg.Connection[Any], *jobs: NewJob[Any]) -> list[int]:
    return [handle.id for handle in run_sync(conn, enqueue_jobs(jobs))]


def fill(conn: psycopg.Connection[Any], jobs: int, *, kind: str = "k", queue: str = "default", **columns: str) -> None:
    """Insert many jobs that became due one after another during the last ten minutes; `columns` are expressions."""
    given = {
        "kind": f"'{kind}'",
        "queue": f"'{queue}'",
        "created_at": "now()",
        "available_at": f"now() - interval '10 minutes' + n * interval '10 minutes' / {jobs + 1}",
        "payload": "'{}'",
        "shard": "n & 63",
        **columns,
    }
    conn.execute(
        f"INSERT INTO holdfast.job ({','.join(given)}) SELECT {','.join(given.values())} "
        f"FROM generate_series(1, {jobs}) AS n".encode()
    )


def number(conn: psycopg.Connection[Any], query: str, *params: Any) -> Any:
    row = conn.execute(query.encode(), params).fetchone()
    assert row is not None
    return row[0]


def statuses(conn: psycopg.Connection[Any]) -> dict[int, str]:
    """Return the status of every job, live or ended."""
    return dict(
        conn.execute(
            "SELECT id, status::text FROM holdfast.job UNION ALL SELECT id, status::text FROM holdfast.job_history "
            "UNION ALL SELECT id, status::text FROM holdfast.job_failed"
        ).fetchall()
    )


class Worker:
    def __init__(self, conn: psycopg.Connection[Any], *kinds: str, queues: Iterable[str] = ("default",)) -> None:
        self.conn = conn
        self.leases: dict[str, Lease] = dict.fromkeys(kinds or ("k",), Lease())
        self.queues = list(queues)
        self.id = run_sync(conn, register_worker("tester", queues=self.queues, kinds=self.leases))

    def claim(
        self,
        slots: int | Mapping[str, int] = 100,
        *,
        floors: Floors | None = None,
        reach: float = EVERYTHING,
        shards: Shards = WHOLE,
    ) -> list[ClaimedJob]:
        wanted = dict.fromkeys(self.queues, slots) if isinstance(slots, int) else slots
        for _ in range(100):
            statement = claim_jobs(self.id, wanted, self.leases, floors=floors, reach=reach, shards=shards)
            claim = run_sync(self.conn, statement)
            if claim.jobs or not claim.again:
                return claim.jobs or self.claim_alone()
        raise AssertionError("asked to come again for ever")

    def claim_alone(self) -> list[ClaimedJob]:
        """Take every job that was lost with its worker, as so many idle workers would."""
        taken: list[ClaimedJob] = []
        while suspects := self.claim_suspects():
            taken += suspects
        return taken

    def claim_suspects(self, limit: int = 1) -> list[ClaimedJob]:
        """Take jobs that were lost with their worker, as a worker with nothing else to do would."""
        return run_sync(self.conn, claim_suspects(self.id, self.queues, self.leases, limit))

    def end(
        self, jobs: Sequence[ClaimedJob], outcome: Outcome = COMPLETED, *, careful: bool = False
    ) -> dict[int, ClaimAnswer]:
        """Finish all these jobs the same way; the answers by id. The short way answers only what was not done."""
        answers: dict[int, ClaimAnswer] = (
            {job.id: ClaimAnswer.completed for job in jobs} if isinstance(outcome, Completed) else {}
        )
        statement = finish_jobs(self.id, [Ending(job, outcome) for job in jobs], careful=careful)
        return answers | {held.id: answer for held, answer in run_sync(self.conn, statement).items()}

    def renew(self, jobs: Iterable[ClaimedJob], lease: Lease | None = None) -> dict[int, ClaimAnswer]:
        held = {Held(job.id, job.token): lease or Lease() for job in jobs}
        return {claim.id: answer for claim, answer in run_sync(self.conn, renew_leases(self.id, held)).items()}

    def reap(self, retry: Retry = AT_ONCE, *, limit: int = 500, since: str = "-infinity") -> list[ReapedJob]:
        retries = dict.fromkeys(self.leases, retry)
        return run_sync(self.conn, reap_jobs(retries, limit=limit, since=since, jitter=timedelta(0))).jobs


def expire_leases(
    conn: psycopg.Connection[Any], jobs: Iterable[ClaimedJob] | None = None, *, seconds: float = 1
) -> None:
    """Let the leases of these jobs, or of all, have ended so long ago."""
    conn.execute(
        "UPDATE holdfast.job SET locked_until = clock_timestamp() - %(seconds)s * interval '1 second' "
        "WHERE status = 'processing' AND (%(ids)s::bigint[] IS NULL OR id = ANY (%(ids)s))",
        {"ids": None if jobs is None else [job.id for job in jobs], "seconds": seconds},
    )


def pass_time(conn: psycopg.Connection[Any], seconds: float) -> None:
    """Let waiting jobs be due that much earlier."""
    conn.execute(
        "UPDATE holdfast.job SET available_at = available_at - %s * interval '1 second' WHERE status <> 'processing'",
        [seconds],
    )
    # The session would look for parked jobs from where they stood before: see 30_limits.
    conn.execute("SELECT set_config('holdfast.limit_' || n, '', false) FROM generate_series(0, 63) AS n")


def drain(worker: Worker, *, rounds: int = 50) -> list[int]:
    """Complete everything that can be claimed, letting time pass between rounds; return the ids in their order."""
    done: list[int] = []
    for _ in range(rounds):
        pass_time(worker.conn, 3600)
        jobs = worker.claim()
        if not jobs:
            return done
        worker.end(jobs)
        done += [job.id for job in jobs]
    raise AssertionError(f"still busy after {rounds} rounds: {statuses(worker.conn)}")
