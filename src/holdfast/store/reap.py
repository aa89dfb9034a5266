"""Reaping: expired leases are taken away, so that a dead worker's jobs run again."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from holdfast.retry import Retry
from holdfast.store.answer import Answer
from holdfast.store.statement import Row, Statement, statements, text_array

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime


class ReapedJob(NamedTuple):
    id: int
    kind: str
    worker: int
    """The one that lost it."""
    token: int
    attempt: int
    locked_until: datetime
    stale: timedelta
    """For how long nobody held the job."""
    error_code: str
    """`crashed_alone`: it was all that its worker ran, so it was this job that ended the process."""
    error: str
    answer: Answer
    """What it became; `busy`: nothing yet, its order key is in use."""


def reap_jobs(  # noqa: PLR0913 - what a pass depends on
    retries: Mapping[str, Retry],
    *,
    otherwise: Retry | None = None,
    others: bool = False,
    since: str = "-infinity",
    most: int = 500,
    jitter: timedelta | None = None,
) -> Statement[list[ReapedJob]]:
    """Take away at most `most` leases, oldest first, of the kinds in `retries`; with `others`, of all others too.

    Those wait as `otherwise` says, and all wait for as much more, at random, as its jitter.
    """
    otherwise = otherwise or Retry()
    delays = {kind: retry.delays() for kind, retry in retries.items()} | {"*": otherwise.delays()}
    return Statement(
        statements()["reap_jobs"],
        {
            "kinds": None if others else text_array(retries),
            "delays": json.dumps(delays),
            "jitter_ms": (otherwise.jitter if jitter is None else jitter) // timedelta(milliseconds=1),
            "since": since,
            "most": most,
        },
        _reaped,
    )


def _reaped(rows: Sequence[Row]) -> list[ReapedJob]:
    return [ReapedJob._make((*row[:-1], Answer(row[-1]))) for row in rows]
