"""Leases: renews them, checks claims, stores progress, and takes back jobs whose lease expired."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from holdfast._model.retry import Retry
from holdfast._store.claim import SHARE_OF_TIME, ClaimedJob
from holdfast._store.statement import Row, Statement, many, number_array, statement, text_array, value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from holdfast._model.job import Progress
    from holdfast._model.work import Lease

# A lease whose row was locked during a pass is found again if it ended within this time before the last pass.
REAP_REACH = timedelta(seconds=15)
REAP_WHOLE_SPACING = 60.0


class Held(NamedTuple):
    """The id and token of a claim; with the worker's id they fence every later write."""

    id: int
    token: int


class ClaimAnswer(StrEnum):
    """The state of one claim after it was finished, completed, renewed or reaped."""

    completed = "completed"
    failed = "failed"
    pending = "pending"
    """The job returned to its queue."""
    cancelled = "cancelled"
    """The job was cancelled, by this call or earlier; in a renewal: its worker should stop it."""
    busy = "busy"
    """Nothing was written because another transaction has the row locked. Try again."""
    taken_by_another_worker = "taken_by_another_worker"
    already_completed = "already_completed"
    not_found = "not_found"


def renew_leases(worker: int, held: Mapping[Held, Lease]) -> Statement[dict[Held, ClaimAnswer]]:
    """Renew these leases; return only the claims with a special state.

    `cancelled`: renewed, but asked to stop. `busy`: still held, but its row is locked now. Any other: why it is lost.
    """
    return statement(
        "renew_leases",
        answers_by_claim,
        worker=worker,
        leases=number_array(lease.milliseconds for lease in held.values()),
        **_ids_and_tokens(held),
    )


def check_claims(worker: int, held: Iterable[Held]) -> Statement[dict[Held, ClaimAnswer]]:
    """Return those of this worker's claims that were cancelled or lost, and why. Writes nothing."""
    return statement("check_claims", answers_by_claim, worker=worker, **_ids_and_tokens(held))


def release_strays(worker: int, held: Iterable[Held], identity: UUID | None = None) -> Statement[int]:
    """Release, uncounted, jobs that this worker claimed but does not hold, because the claim's response was lost.

    Run it only while no claim is in progress. Does nothing if the worker's row does not have this `identity`.
    """
    own = None if identity is None else str(identity)
    return statement("release_strays", len, worker=worker, identity=own, **_ids_and_tokens(held))


def report_progress(worker: int, reports: Mapping[Held, Progress]) -> Statement[set[Held]]:
    """Store the progress of these jobs; return those stored. Jobs that are locked or lost are skipped."""
    return statement(
        "report_progress",
        lambda rows: {Held._make(row) for row in rows},
        worker=worker,
        fractions=text_array(str(progress.fraction) for progress in reports.values()),
        notes=text_array(progress.note for progress in reports.values()),
        **_ids_and_tokens(reports),
    )


def answers_by_claim(rows: Sequence[Row]) -> dict[Held, ClaimAnswer]:
    return {Held(job_id, token): ClaimAnswer(answer) for job_id, token, answer in rows}


def _ids_and_tokens(claims: Iterable[Held]) -> dict[str, str]:
    claims = list(claims)
    return {
        "ids": number_array([claim.id for claim in claims]),
        "tokens": number_array([claim.token for claim in claims]),
    }


class ReapedJob(NamedTuple):
    id: int
    kind: str
    worker: int
    """The worker that lost it."""
    token: int
    attempt: int
    locked_until: datetime
    stale: timedelta
    """For how long no worker held the job."""
    error_code: str
    """`crashed_alone`: the worker ran only this job, so this job ended the process."""
    error: str
    answer: ClaimAnswer
    """The new state; `busy`: unchanged, because its order key is in use."""


class DeadWorker(NamedTuple):
    """A worker that sent no heartbeat for a whole lease and had not stopped."""

    id: int
    name: str
    host: str | None
    pid: int | None
    heartbeat_at: str
    """Its last heartbeat, as text."""


class ReaperPass(NamedTuple):
    at: datetime
    """When it began, by the server's clock."""
    set_back: bool
    """Whether the last heartbeat of a worker lies ahead: see `shorten_leases`."""
    died: list[DeadWorker]
    """Each worker is found once, by one reaper of the fleet."""
    jobs: list[ReapedJob]


def reap_jobs(  # noqa: PLR0913 - one keyword per input of a pass
    retries: Mapping[str, Retry],
    *,
    default: Retry | None = None,
    others: bool = False,
    since: str = "-infinity",
    limit: int = 500,
    jitter: timedelta | None = None,
    worker: int = 0,
    record_every: float = 0.0,
) -> Statement[ReaperPass]:
    """Take back at most `limit` expired jobs, oldest first, of the kinds in `retries`; with `others`, of all kinds.

    Other kinds wait as `default` defines. All wait up to `jitter` longer, at random, by default that of `default`.
    The row of `worker` gets the time of this pass if the last one in it is `record_every` seconds ago.
    """
    default = default or Retry()
    delays = {kind: retry.delays() for kind, retry in retries.items()} | {"*": default.delays()}
    return statement(
        "reap_jobs",
        _pass,
        kinds=None if others else text_array(retries),
        delays=json.dumps(delays),
        jitter_ms=(default.jitter if jitter is None else jitter) // timedelta(milliseconds=1),
        since=since,
        limit=limit,
        worker=worker,
        seconds=float(record_every),
    )


def _pass(rows: Sequence[Row]) -> ReaperPass:
    jobs = [ReapedJob._make((*row[3:-1], ClaimAnswer(row[-1]))) for row in rows if row[3] is not None]
    at, set_back, died, *_ = rows[0]
    return ReaperPass(at, bool(set_back), [DeadWorker._make(worker) for worker in json.loads(died or "[]")], jobs)


def shorten_leases() -> Statement[int]:
    """After the server's clock was set back, end leases that were taken before one lease from now.

    Return the number of workers that had not sent a heartbeat since.
    """
    return statement("shorten_leases", value)


def claim_suspects(
    worker: int, queues: Iterable[str], leases: Mapping[str, Lease], limit: int = 1
) -> Statement[list[ClaimedJob]]:
    """Claim due suspects of the kinds in `leases`, for a worker that runs nothing else until they end.

    A suspect is a job whose worker was lost. With `limit` 1, claim any; with more, only suspects that have not run
    together before. A suspect that loses its worker again runs alone.
    """
    return statement(
        "claim_suspects",
        many(ClaimedJob),
        worker=worker,
        queues=text_array(queues),
        kinds=text_array(leases),
        leases=number_array(lease.milliseconds for lease in leases.values()),
        limit=limit,
    )


def next_suspect(queues: Iterable[str], kinds: Iterable[str]) -> Statement[float | None]:
    """Return in how many seconds a suspect is due; negative if it is overdue; None if there is none."""
    return statement("next_suspect", value, queues=text_array(queues), kinds=text_array(kinds))


def isolate_worker(worker: int, seconds: float) -> Statement[bool]:
    """Reserve the turn to run suspects, which one busy worker has at a time; False: taken. 0 seconds ends it."""
    return statement("isolate_worker", value, worker=worker, ms=round(seconds * 1000))


class ReapFloor:
    """The floor of the reaper: leases end in order of time, so a pass starts a little before the end of the last."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: datetime | None = None
        self._due = 0.0

    def since(self) -> str:
        """Return the end of lease from which the next pass scans."""
        if self._since is None or self._clock() >= self._due:
            return "-infinity"
        return (self._since - REAP_REACH).isoformat()

    def advance(self, until: datetime, *, whole: bool, took: float) -> None:
        """Record a pass that saw every lease ended before `until`. `whole`: it scanned from the first lease."""
        self._since = until
        if whole:
            self._due = self._clock() + max(took / SHARE_OF_TIME, REAP_WHOLE_SPACING)

    def drop(self) -> None:
        self._since = None
        self._due = 0.0
