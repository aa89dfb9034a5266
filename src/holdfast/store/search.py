"""Searching jobs, within a bounded look: what was found, and how far it looked.

Ask after `limit_time` and `follow_ids`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from holdfast.store.statement import Row, Statement, number_array, statements, text_array

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast.store.statement import Parameter

HOMES = {
    "search_live_jobs": ("blocked", "pending", "processing"),
    "search_ended_jobs": ("completed", "cancelled"),
    "search_failed_jobs": ("failed",),
}
# Jobs, by one action.
MOST_ACTED_ON = 1_000
# Beyond any job.
AFTER_ALL = 2**63 - 1
_EVER = datetime(1970, 1, 1, tzinfo=UTC)
_NEVER = datetime(9999, 1, 1, tzinfo=UTC)
_FIELDS = ("status", "kind", "queue", "order_key", "unique_key", "error_code")


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Which jobs; None is any."""

    status: str | None = None
    kind: str | None = None
    queue: str | None = None
    order_key: str | None = None
    unique_key: str | None = None
    error_code: str | None = None
    created_from: datetime | None = None
    created_until: datetime | None = None
    first: bool = False
    """Only the first jobs of chains that have more than one, or wait for others, or are waited for."""
    replayed: bool = True
    """False: no dead letters that run again already."""


class FoundJob(NamedTuple):
    id: int
    status: str
    kind: str
    queue: str
    priority: int
    attempt: int
    max_attempts: int
    created_at: datetime
    available_at: datetime
    finished_at: datetime | None
    worker: int | None
    order_key: str | None
    unique_key: str | None
    error_code: str | None


class Look(NamedTuple):
    """What a look into one home of jobs saw."""

    jobs: int
    least: int | None
    back_to: datetime | None
    found: list[FoundJob]


class Span(NamedTuple):
    """Ids from `least` to below `before`."""

    least: int
    before: int


class DeadLetterGroup(NamedTuple):
    kind: str
    queue: str
    error_code: str
    error: str | None
    jobs: int
    first_at: datetime
    last_at: datetime
    newest: int


class DeadLetterLook(NamedTuple):
    jobs: int
    back_to: datetime | None
    groups: list[DeadLetterGroup]


class ChainEnd(NamedTuple):
    chain_id: int
    id: int
    kind: str
    status: str
    finished_at: datetime | None


class BlockedJob(NamedTuple):
    id: int
    kind: str
    queue: str
    status: str
    attempt: int
    created_at: datetime
    chain_id: int


class LastError(NamedTuple):
    text: str | None
    at: datetime


class Acted(NamedTuple):
    """What came of an action on one job."""

    id: int
    done: bool
    answer: str


def homes_of(which: Search) -> list[str]:
    """Return the homes that may hold such jobs."""
    return [home for home, held in HOMES.items() if which.status is None or which.status in held]


def follow_ids() -> Statement[None]:
    """Let the searches of this transaction walk down the ids, whatever the statistics say."""
    return Statement(statements()["follow_ids"], {}, lambda _: None)


def search_home(home: str, which: Search, span: Span, *, look: int, most: int) -> Statement[Look]:
    """Look at so many jobs of one home, newest first."""
    params: dict[str, Parameter] = {
        **_any(which, _FIELDS),
        **_times(which.created_from, which.created_until),
        "first": which.first,
        "before": span.before,
        "least": span.least,
        "look": look,
        "most": most,
        "most_again": most,
    }
    return Statement(statements()[home], params | _of_home(home, which), _look)


def read_landmarks(created_from: datetime | None, created_until: datetime | None) -> Statement[Span]:
    """Answer between which ids to look for jobs that were created within these times."""
    times = _times(created_from, created_until)
    return Statement(statements()["read_landmarks"], times, lambda rows: Span._make(rows[0]))


def group_dead_letters(which: Search, span: Span, *, look: int, most: int) -> Statement[DeadLetterLook]:
    """Answer with the newest dead letters, by kind and reason, but those that run again."""
    params: dict[str, Parameter] = {
        **_any(which, ("kind", "queue")),
        **_times(which.created_from, which.created_until),
        "kept_from": (which.created_from or _EVER).isoformat(),
        "before": span.before,
        "least": span.least,
        "look": look,
        "most": most,
        "most_again": most,
    }

    def read(rows: Sequence[Row]) -> DeadLetterLook:
        groups = [DeadLetterGroup._make(row[2:]) for row in rows if row[2] is not None]
        return DeadLetterLook(rows[0][0], rows[0][1], groups)

    return Statement(statements()["group_dead_letters"], params, read)


def read_payloads(jobs: Sequence[FoundJob], *, largest: int) -> Statement[dict[int, str]]:
    """Answer with the payloads of these jobs, as JSON text; those of more bytes than `largest` are left out."""
    ended = text_array(None if job.finished_at is None else job.finished_at.isoformat() for job in jobs)
    params: dict[str, Parameter] = {
        "ids": number_array(job.id for job in jobs),
        "ended": ended,
        "largest": largest,
        "most": len(jobs),
    }
    return Statement(statements()["read_payloads"], params, lambda rows: {id_: text for id_, text in rows if text})


def read_last_error() -> Statement[LastError | None]:
    """Answer with the error of the latest dead letter. Ask after `follow_ids`."""
    return Statement(statements()["read_last_error"], {}, lambda rows: LastError._make(rows[0]) if rows else None)


def find_named_jobs(ids: Sequence[int]) -> Statement[dict[int, FoundJob]]:
    """Answer with these jobs, as far as they are there."""
    return Statement(
        statements()["find_named_jobs"],
        {"ids": number_array(ids), "most": len(ids)},
        lambda rows: {row[0]: FoundJob._make(row) for row in rows},
    )


def read_clock() -> Statement[datetime]:
    """Answer with the time at which this transaction began."""
    return Statement(statements()["read_clock"], {}, lambda rows: rows[0][0])


def last_of_chains(chains: Iterable[int]) -> Statement[dict[int, ChainEnd]]:
    return Statement(
        statements()["last_of_chains"],
        {"chains": number_array(chains)},
        lambda rows: {row[0]: ChainEnd._make(row) for row in rows},
    )


def list_blocked(chain: int, most: int = 100) -> Statement[list[BlockedJob]]:
    """Answer with the live jobs that come after a chain."""
    return Statement(
        statements()["list_blocked"],
        {"chain": chain, "most": most},
        lambda rows: [BlockedJob._make(row) for row in rows],
    )


def act_on_jobs(
    action: str, jobs: Mapping[int, datetime | None], due: datetime | None = None, *, again: bool = False
) -> Statement[list[Acted]]:
    """`retry`, `cancel`, `delete` or `reschedule` these; answer what came of each. READ COMMITTED.

    `again`: a retry makes another replay although one lives or has completed. To each belongs when it ended: None where
    that is not known, and then a dead letter is looked for.
    """
    ended = [time.isoformat() for time in jobs.values() if time is not None]
    params: dict[str, Parameter] = {
        "action": action,
        "ids": number_array(jobs),
        "ended": text_array(ended) if len(ended) == len(jobs) else None,
        "due": None if due is None else due.isoformat(),
        "again": again,
    }
    return Statement(statements()["act_on_jobs"], params, lambda rows: [Acted._make(row) for row in rows])


def _any(which: Search, names: Iterable[str]) -> dict[str, Parameter]:
    params: dict[str, Parameter] = {}
    for name in names:
        value = getattr(which, name)
        params |= {f"any_{name}": value is None, name: value}
    return params


def _times(created_from: datetime | None, created_until: datetime | None) -> dict[str, Parameter]:
    return {"created_from": (created_from or _EVER).isoformat(), "created_until": (created_until or _NEVER).isoformat()}


def _of_home(home: str, which: Search) -> dict[str, Parameter]:
    if home == "search_live_jobs":
        return {}
    # Nothing ends before it is created: older days need not be opened.
    kept: dict[str, Parameter] = {"kept_from": (which.created_from or _EVER).isoformat()}
    return kept | {"any_replayed": which.replayed} if home == "search_failed_jobs" else kept


def _look(rows: Sequence[Row]) -> Look:
    jobs, least, back_to = rows[0][:3]
    return Look(jobs, least, back_to, [FoundJob._make(row[3:]) for row in rows if row[3] is not None])
