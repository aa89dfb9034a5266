"""Searches jobs in scans of bounded size, which return what they found and how far they went.

Run after `limit_time` and `follow_ids`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from holdfast._store.statement import Row, Statement, number_array, statements, text_array

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast._store.statement import Parameter


HOMES = {
    "search_live_jobs": ("blocked", "pending", "processing"),
    "search_ended_jobs": ("completed", "cancelled"),
    "search_failed_jobs": ("failed",),
}
# Most jobs per action.
MOST_ACTED_ON = 1_000
# Above every job id.
AFTER_ALL = 2**63 - 1
_EVER = datetime(1970, 1, 1, tzinfo=UTC)
_NEVER = datetime(9999, 1, 1, tzinfo=UTC)
_FIELDS = ("status", "kind", "queue", "order_key", "unique_key", "error_code")


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Selects jobs; None matches any value."""

    status: str | None = None
    kind: str | None = None
    queue: str | None = None
    order_key: str | None = None
    unique_key: str | None = None
    error_code: str | None = None
    created_from: datetime | None = None
    created_until: datetime | None = None
    first: bool = False
    """Only first jobs of chains that have several jobs, wait for other chains, or are waited for."""
    replayed: bool = True
    """False: leave out dead letters that are replayed already."""


class FoundJob(NamedTuple):
    id: int
    status: str
    kind: str
    queue: str
    priority: int
    attempt: int
    max_attempts: int | None
    created_at: datetime
    available_at: datetime
    finished_at: datetime | None
    worker: int | None
    order_key: str | None
    unique_key: str | None
    error_code: str | None


class Scan(NamedTuple):
    """The result of scanning one group of tables."""

    jobs: int
    least: int | None
    back_to: datetime | None
    found: list[FoundJob]


class Span(NamedTuple):
    """Ids from `least` up to, but not including, `before`."""

    least: int
    before: int


class DeadLetterGroupRow(NamedTuple):
    kind: str
    queue: str
    error_code: str
    error: str | None
    jobs: int
    first_at: datetime
    last_at: datetime
    newest: int


class DeadLetterScan(NamedTuple):
    jobs: int
    back_to: datetime | None
    groups: list[DeadLetterGroupRow]


class ChainTail(NamedTuple):
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
    """The result of an action on one job."""

    id: int
    done: bool
    answer: str


def homes_of(which: Search) -> list[str]:
    """Return the statements that search the tables which may hold such jobs."""
    return [home for home, held in HOMES.items() if which.status is None or which.status in held]


def follow_ids() -> Statement[None]:
    """Make the searches of this transaction scan by descending id, whatever the planner's statistics are."""
    return Statement(statements()["follow_ids"], {}, lambda _: None)


def search_home(home: str, which: Search, span: Span, *, look: int, most: int) -> Statement[Scan]:
    """Scan at most `look` jobs with one statement of `HOMES`, newest first, and return at most `most` of them."""
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
    """Return the range of ids to search for jobs created between these times."""
    times = _times(created_from, created_until)
    return Statement(statements()["read_landmarks"], times, lambda rows: Span._make(rows[0]))


def group_dead_letters(which: Search, span: Span, *, look: int, most: int) -> Statement[DeadLetterScan]:
    """Return the newest dead letters grouped by kind and error, without those that are being replayed."""
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

    def read(rows: Sequence[Row]) -> DeadLetterScan:
        groups = [DeadLetterGroupRow._make(row[2:]) for row in rows if row[2] is not None]
        return DeadLetterScan(rows[0][0], rows[0][1], groups)

    return Statement(statements()["group_dead_letters"], params, read)


def read_payloads(jobs: Sequence[FoundJob], *, largest: int) -> Statement[dict[int, str]]:
    """Return the payloads of these jobs as JSON text; those larger than `largest` bytes are left out."""
    ended = text_array(None if job.finished_at is None else job.finished_at.isoformat() for job in jobs)
    params: dict[str, Parameter] = {
        "ids": number_array(job.id for job in jobs),
        "ended": ended,
        "largest": largest,
        "most": len(jobs),
    }
    return Statement(statements()["read_payloads"], params, lambda rows: {id_: text for id_, text in rows if text})


def read_last_error() -> Statement[LastError | None]:
    """Return the error of the latest dead letter. Run after `follow_ids`."""
    return Statement(statements()["read_last_error"], {}, lambda rows: LastError._make(rows[0]) if rows else None)


def find_named_jobs(ids: Sequence[int]) -> Statement[dict[int, FoundJob]]:
    """Return the jobs with these ids; ids that do not exist are left out."""
    return Statement(
        statements()["find_named_jobs"],
        {"ids": number_array(ids), "most": len(ids)},
        lambda rows: {row[0]: FoundJob._make(row) for row in rows},
    )


def read_clock() -> Statement[datetime]:
    """Return the time at which this transaction began."""
    return Statement(statements()["read_clock"], {}, lambda rows: rows[0][0])


def last_of_chains(chains: Iterable[int]) -> Statement[dict[int, ChainTail]]:
    return Statement(
        statements()["last_of_chains"],
        {"chains": number_array(chains)},
        lambda rows: {row[0]: ChainTail._make(row) for row in rows},
    )


def list_blocked(chain: int, most: int = 100) -> Statement[list[BlockedJob]]:
    """Return the live jobs that wait for a chain."""
    return Statement(
        statements()["list_blocked"],
        {"chain": chain, "most": most},
        lambda rows: [BlockedJob._make(row) for row in rows],
    )


def act_on_jobs(
    action: str, jobs: Mapping[int, datetime | None], due: datetime | None = None, *, again: bool = False
) -> Statement[list[Acted]]:
    """Run an action on these jobs (`retry`, `cancel`, `delete` or `reschedule`); return the result of each.

    Needs READ COMMITTED. `jobs`: when each ended; None: unknown, and then a dead letter is searched for. `again`: retry
    even if a replay is live or has completed. Default: False.
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
    # No job ends before it is created, so older days are not read.
    kept: dict[str, Parameter] = {"kept_from": (which.created_from or _EVER).isoformat()}
    return kept | {"any_replayed": which.replayed} if home == "search_failed_jobs" else kept


def _look(rows: Sequence[Row]) -> Scan:
    jobs, least, back_to = rows[0][:3]
    return Scan(jobs, least, back_to, [FoundJob._make(row[3:]) for row in rows if row[3] is not None])


Cancellation: TypeAlias = Literal["cancelled", "requested", "not_found"]


def cancel_job(job_id: int) -> Statement[Cancellation]:
    """Cancel a job: returns `cancelled` if it had not started, `requested` if it runs or waits in an order key."""
    return Statement(statements()["cancel_job"], {"id": job_id}, _only)


def replay_job(job_id: int, *, again: bool = False) -> Statement[int | None]:
    """Enqueue a dead letter as a new job that refers to it; return its id, None if the dead letter does not exist.

    Raises `AlreadyReplayed` while such a job is live, and when the last one completed, unless `again`.
    """
    return Statement(statements()["replay_job"], {"id": job_id, "again": again}, _only)


def resume_order_key(key: str) -> Statement[bool]:
    """Unblock an order key; return False if it was not blocked."""
    return Statement(statements()["resume_order_key"], {"key": key}, _only)


def _only(rows: Sequence[Row]) -> Any:
    return rows[0][0]
