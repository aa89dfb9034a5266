"""Searches jobs in scans of bounded size, which return what they found and how far they went.

Run after `limit_time` and `follow_ids`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from holdfast._model.option import KEY_LIMIT, check_text
from holdfast._store.answer import Answer, Id
from holdfast._store.enqueue import EnqueuedJob
from holdfast._store.job import JobStatus, job_info
from holdfast._store.statement import (
    PINNED_PATH,
    Row,
    Statement,
    many,
    nothing,
    number_array,
    one,
    statement,
    text_array,
    time_text,
    value,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence

    from holdfast._store.job import DecodePayload, JobInfo
    from holdfast._store.statement import Parameter


# The statements that search, each with the statuses that its table holds.
_SEARCHES = {
    "search_live_jobs": ("blocked", "pending", "processing"),
    "search_ended_jobs": ("completed", "cancelled"),
    "search_failed_jobs": ("failed",),
}
# Most jobs per action.
MOST_ACTED_ON = 1_000
# Most jobs per page, as each comes with its payload.
MOST_LISTED = 200
# Together 50,000: at most so many jobs are scanned per table in one search.
LOOKS = (500, 4_500, 45_000)
# Above every job id.
AFTER_ALL = 2**63 - 1
# Before and after every job.
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime(9999, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Selects jobs; None matches any value."""

    status: str | None = None
    kind: str | None = None
    queue: str | None = None
    order_key: str | None = None
    tag: str | None = None
    unique_key: str | None = None
    error_code: str | None = None
    created_from: datetime | None = None
    created_until: datetime | None = None
    first: bool = False
    """Only first jobs of chains that have several jobs, wait for other chains, or are waited for."""
    replayed: bool = True
    """False: leave out dead letters that are replayed already."""


class JobLine(Answer):
    """A job in a list."""

    id: Id
    status: JobStatus
    kind: str
    queue: str
    priority: int
    attempt: int
    max_attempts: int | None
    """Null: no limit."""
    created_at: datetime
    available_at: datetime
    finished_at: datetime | None
    worker: Id | None
    order_key: str | None
    unique_key: str | None
    error_code: str | None
    first_due_at: datetime
    """When its first attempt was due; `available_at` is of the last or the next one."""
    running_since: datetime | None
    """Since when it runs; null: it does not."""
    waited_ms: int | None
    """How long all its attempts were due before they started; null: none has."""
    ran_ms: int | None
    """How long its handler ran in all attempts that ended; null: not known."""
    tags: list[str]


class Scan(NamedTuple):
    """The result of scanning one group of tables."""

    jobs: int
    least: int | None
    back_to: datetime | None
    matching: int
    """How many of them match."""
    found: list[JobLine]


class Span(NamedTuple):
    """Ids from `least` up to, but not including, `before`."""

    least: int
    before: int


class Looked(Answer):
    """How far a search looked: at most so many rows at a time, whatever was asked for."""

    jobs: int
    back_to: datetime | None
    """When the oldest job that it looked at was created; null: it looked at none."""
    complete: bool
    """True: nothing further back is left."""


class FoundJobs(NamedTuple):
    """Jobs, newest first, and the id to continue from."""

    jobs: list[JobLine]
    next: int | None
    looked: Looked


class Look(NamedTuple):
    """A statement of a search."""

    statement: Statement[Any]
    optional: bool = False
    """Whether the search may end without it, with what was found before."""


class ActionResult(NamedTuple):
    id: int
    done: bool
    answer: str


class ChainTail(NamedTuple):
    chain_id: int
    id: int
    kind: str
    status: str
    finished_at: datetime | None


def searches(which: Search) -> list[str]:
    """Return the statements that search the tables which may hold such jobs."""
    return [name for name, statuses in _SEARCHES.items() if which.status is None or which.status in statuses]


def follow_ids() -> Statement[None]:
    """Make the searches of this transaction scan by descending id, whatever the planner's statistics are."""
    return statement("follow_ids", nothing)


def begin_search(seconds: int) -> Statement[dict[str, str]]:
    """Do the same on a caller's connection, with a timeout per statement; return its settings, for `end_search`."""
    names = ("seqscan", "bitmapscan", "timeout", "path", "plans")
    return statement(
        "begin_search",
        lambda rows: dict(zip(names, rows[0], strict=False)),
        timeout=f"{seconds}s",
        path=PINNED_PATH,
    )


def end_search(settings: Mapping[str, str]) -> Statement[None]:
    """Set the caller's settings again."""
    return statement("end_search", nothing, **settings)


def search_table(name: str, which: Search, span: Span, *, scan: int, limit: int) -> Statement[Scan]:
    """Scan at most `scan` jobs with one of `searches`, newest first, and return at most `limit` of them."""
    return statement(name, _scan, **asdict(which) | scanned(which, span), scan=scan, limit=limit)


def find_jobs(which: Search, *, limit: int, before: int | None = None) -> Generator[Look, Any, FoundJobs]:
    """Search for the newest matching jobs with ids below `before`, at most `limit`, in scans that grow.

    It yields the statements to run one after another. Send what each returns, or None to end with what was found.
    """
    span = Span(0, AFTER_ALL)
    if which.created_from or which.created_until:
        span = yield Look(read_landmarks(which.created_from, which.created_until))
    span = Span(span.least, min(span.before, before or AFTER_ALL))
    found: list[JobLine] = []
    seen, back_to = 0, None
    for look in LOOKS:
        wanted = limit + 1 - len(found)
        looks: list[Scan] = []
        for name in searches(which):
            # Rows below the end of another table's scan are left to the next scan.
            above = Span(max(span.least, _reached(looks, look, wanted)), span.before)
            scan = yield Look(search_table(name, which, above, scan=look, limit=wanted), look != LOOKS[0])
            if scan is None:
                return FoundJobs(found, span.before, Looked(jobs=seen, back_to=back_to, complete=False))
            looks.append(scan)
        reached = _reached(looks, look, wanted)
        # By id: without one snapshot for all tables, a job that ends meanwhile may be found twice.
        jobs = {job.id: job for one in looks for job in one.found if job.id >= reached}
        found += sorted(jobs.values(), key=lambda job: -job.id)
        seen += sum(one.jobs for one in looks)
        back_to = _earliest(back_to, looks)
        if len(found) > limit:
            return FoundJobs(found[:limit], found[limit - 1].id, Looked(jobs=seen, back_to=back_to, complete=False))
        if reached <= span.least:
            return FoundJobs(found, None, Looked(jobs=seen, back_to=back_to, complete=True))
        span = Span(span.least, reached)
    return FoundJobs(found, span.before, Looked(jobs=seen, back_to=back_to, complete=False))


def read_landmarks(created_from: datetime | None, created_until: datetime | None) -> Statement[Span]:
    """Return the range of ids to search for jobs created between these times."""
    return statement("read_landmarks", one(Span), **_times(created_from, created_until))


def read_payloads(jobs: Sequence[JobLine], *, largest: int) -> Statement[dict[int, str]]:
    """Return the payloads of these jobs as JSON text; those larger than `largest` bytes are left out."""
    return statement(
        "read_payloads",
        lambda rows: {id_: text for id_, text in rows if text},
        ids=number_array(job.id for job in jobs),
        ended=text_array(time_text(job.finished_at) for job in jobs),
        largest=largest,
        limit=len(jobs),
    )


def read_found_jobs(jobs: Sequence[JobLine], arguments: DecodePayload) -> Statement[list[JobInfo[object]]]:
    """Return the jobs that a search has found, newest first, without those that were deleted since."""
    return statement(
        "read_found_jobs",
        lambda rows: [job_info(row, lambda text: arguments(text or "null"), arguments) for row in rows],
        ids=number_array(job.id for job in jobs),
        ended=text_array(time_text(job.finished_at) for job in jobs),
        limit=len(jobs),
        payloads=True,
    )


def find_named_jobs(ids: Sequence[int]) -> Statement[dict[int, JobLine]]:
    """Return the jobs with these ids; ids that do not exist are left out."""
    return statement(
        "find_named_jobs",
        lambda rows: {row[0]: JobLine.of(*row) for row in rows},
        ids=number_array(ids),
        limit=len(ids),
    )


def find_replays(made: Mapping[int, int]) -> Statement[list[EnqueuedJob]]:
    """Return the jobs that a retry made, with what they retry. `made`: the dead letter of each."""
    return find_named_jobs(list(made)).then(
        lambda found: [EnqueuedJob(job.id, job.kind, job.queue, made[job.id]) for job in found.values()]
    )


def read_clock() -> Statement[datetime]:
    """Return the time at which this transaction began."""
    return statement("read_clock", value)


def last_of_chains(chains: Iterable[int]) -> Statement[dict[int, ChainTail]]:
    return statement(
        "last_of_chains", lambda rows: {row[0]: ChainTail._make(row) for row in rows}, chains=number_array(chains)
    )


def list_blocked(chain: int, limit: int = 100) -> Statement[list[tuple[int, JobLine]]]:
    """Return the live jobs that wait for a chain, each with the id of its own chain."""
    return statement(
        "list_blocked", lambda rows: [(row[0], JobLine.of(*row[1:])) for row in rows], chain=chain, limit=limit
    )


def act_on_jobs(
    action: str, jobs: Mapping[int, datetime | None], due: datetime | None = None, *, again: bool = False
) -> Statement[list[ActionResult]]:
    """Run an action on these jobs (`retry`, `cancel`, `delete` or `reschedule`); return the result of each.

    Needs READ COMMITTED. `jobs`: when each ended; None: unknown, and then a dead letter is searched for. `again`: retry
    even if a replay is live or has completed. Default: False.
    """
    ended = [time.isoformat() for time in jobs.values() if time is not None]
    return statement(
        "act_on_jobs",
        many(ActionResult),
        action=action,
        ids=number_array(jobs),
        ended=text_array(ended) if len(ended) == len(jobs) else None,
        due=time_text(due),
        again=again,
    )


def _times(created_from: datetime | None, created_until: datetime | None) -> dict[str, Parameter]:
    return {
        "created_from": (created_from or _EARLIEST).isoformat(),
        "created_until": (created_until or _LATEST).isoformat(),
    }


def scanned(which: Search, span: Span) -> dict[str, Parameter]:
    """Return the parameters that bound a scan by id and by time."""
    times = _times(which.created_from, which.created_until)
    # No job ends before it is created, so older days are not read.
    return {**times, "kept_from": times["created_from"], "before": span.before, "least": span.least}


def _reached(looks: Sequence[Scan], look: int, limit: int) -> int:
    """Return the id down to which every table was scanned completely; 0 for a table without more rows."""
    ends = [0]
    for scan in looks:
        if len(scan.found) == limit:  # more may follow below the last one
            ends.append(scan.found[-1].id)
        elif scan.jobs == look and scan.least is not None:
            ends.append(scan.least)
    return max(ends)


def _earliest(known: datetime | None, looks: Sequence[Scan]) -> datetime | None:
    times = [time for time in (known, *(scan.back_to for scan in looks)) if time is not None]
    return min(times, default=None)


def _scan(rows: Sequence[Row]) -> Scan:
    jobs, least, back_to, matching = rows[0][:4]
    return Scan(jobs, least, back_to, matching, [JobLine.of(*row[4:]) for row in rows if row[4] is not None])


Cancellation: TypeAlias = Literal["cancelled", "requested", "not_found"]


def cancel_job(job_id: int) -> Statement[Cancellation]:
    """Cancel a job: returns `cancelled` if it had not started, `requested` if it runs or waits in an order key."""
    return statement("cancel_job", value, id=job_id)


def replay_job(job_id: int, *, again: bool = False) -> Statement[int | None]:
    """Enqueue a dead letter as a new job that refers to it; return its id, None if the dead letter does not exist.

    Raises `AlreadyReplayed` while such a job is live, and when the last one completed, unless `again`.
    """
    return statement("replay_job", value, id=job_id, again=again)


def resume_order_key(key: str) -> Statement[bool]:
    """Unblock an order key that a failed job blocked; return False if none did."""
    check_text("order_key", key, KEY_LIMIT)
    return statement("resume_order_key", value, key=key)
