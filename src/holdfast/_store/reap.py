"""Reaping: takes back jobs whose lease expired, so that a dead worker's jobs run again."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from holdfast._model.retry import Retry
from holdfast._store.claimed_job import ClaimedJob
from holdfast._store.lease import ClaimAnswer
from holdfast._store.statement import Row, Statement, many, number_array, statement, text_array, value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from holdfast._model.work import Lease


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


def reap_jobs(  # noqa: PLR0913 - one keyword per input of a pass
    retries: Mapping[str, Retry],
    *,
    otherwise: Retry | None = None,
    others: bool = False,
    since: str = "-infinity",
    most: int = 500,
    jitter: timedelta | None = None,
) -> Statement[list[ReapedJob]]:
    """Take back at most `most` expired jobs, oldest first, of the kinds in `retries`; with `others`, of all kinds.

    Other kinds wait as `otherwise` defines. All wait up to `jitter` longer, at random. Default: that of `otherwise`.
    """
    otherwise = otherwise or Retry()
    delays = {kind: retry.delays() for kind, retry in retries.items()} | {"*": otherwise.delays()}
    return statement(
        "reap_jobs",
        _reaped,
        kinds=None if others else text_array(retries),
        delays=json.dumps(delays),
        jitter_ms=(otherwise.jitter if jitter is None else jitter) // timedelta(milliseconds=1),
        since=since,
        most=most,
    )


def _reaped(rows: Sequence[Row]) -> list[ReapedJob]:
    return [ReapedJob._make((*row[:-1], ClaimAnswer(row[-1]))) for row in rows]


def claim_suspects(
    worker: int, queues: Iterable[str], leases: Mapping[str, Lease], most: int = 1
) -> Statement[list[ClaimedJob]]:
    """Claim due suspects of the kinds in `leases`, for a worker that runs nothing else until they end.

    A suspect is a job whose worker was lost. With `most` 1, claim any; with more, only suspects that have not run
    together before. A suspect that loses its worker again runs alone.
    """
    return statement(
        "claim_suspects",
        many(ClaimedJob),
        worker=worker,
        queues=text_array(queues),
        kinds=text_array(leases),
        leases=number_array(lease.milliseconds for lease in leases.values()),
        most=most,
    )


def next_suspect(queues: Iterable[str], kinds: Iterable[str]) -> Statement[float | None]:
    """Return in how many seconds a suspect is due; negative if it is overdue; None if there is none."""
    return statement("next_suspect", value, queues=text_array(queues), kinds=text_array(kinds))


def isolate_worker(worker: int, seconds: float) -> Statement[bool]:
    """Reserve the turn to run suspects, which one busy worker has at a time; False: taken. 0 seconds ends it."""
    return statement("isolate_worker", value, worker=worker, ms=round(seconds * 1000))
