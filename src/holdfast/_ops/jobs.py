"""Search for jobs, the history of one job, and the graph of a chain."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast._ops.caller import RequestRefused
from holdfast._ops.responses.job import ChainEdge, ChainGraph, ChainNode, JobBlocker, JobGroup, JobStory
from holdfast._ops.waits import read_waits
from holdfast._store.archive import JOB_FAMILIES, exports_with_id
from holdfast._store.chain import read_blockers
from holdfast._store.inspect import list_attempts, list_replays, read_job, read_key_stop, read_worker
from holdfast._store.job import read_chain, read_group
from holdfast._store.search import (
    LOOKS,
    FoundJobs,
    Looked,
    Search,
    Span,
    find_jobs,
    follow_ids,
    list_blocked,
    read_landmarks,
    read_payloads,
    search_table,
    searches,
)
from holdfast._store.step import read_journal, step_lines
from holdfast._store.worker import served_runtime

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast._ops.pool import Transaction
    from holdfast._ops.redaction import Redaction
    from holdfast._ops.requests import JobFilter
    from holdfast._store.inspect import AttemptLine
    from holdfast._store.job import JobInfo
    from holdfast._store.search import JobLine


# A text search ends after this many seconds, skips payloads above this many bytes, and reads pages of this many jobs.
TEXT_SECONDS = 2.0
LARGEST_SEARCHED = 262_144
_PAGE = 200


async def find(
    transaction: Transaction,
    which: Search,
    *,
    limit: int,
    before: int | None = None,
) -> FoundJobs:
    """Return the newest matching jobs, at most `limit`, with ids below `before`.

    If a longer scan times out, the result of the shorter ones is returned.
    """
    await transaction.run(follow_ids())
    search = find_jobs(which, limit=limit, before=before)
    look = next(search)
    while True:
        run = transaction.try_to_run if look.optional else transaction.run
        try:
            look = search.send(await run(look.statement))
        except StopIteration as ended:
            found: FoundJobs = ended.value
            return found


class CountedJobs(NamedTuple):
    """How many jobs match, and the newest of them."""

    jobs: int
    sample: list[JobLine]
    looked: Looked


async def count(transaction: Transaction, which: Search, *, sample: int) -> CountedJobs:
    """Count the matching jobs of one status among the newest 50,000 of it, or fewer if a scan times out."""
    await transaction.run(follow_ids())
    span = await transaction.run(read_landmarks(which.created_from, which.created_until))
    [name] = searches(which)
    matching, seen, back_to = 0, 0, None
    newest: list[JobLine] = []
    for look in LOOKS:
        scan = search_table(name, which, span, scan=look, limit=max(1, sample - len(newest)))
        one = await transaction.try_to_run(scan)
        if one is None:
            break
        matching, seen, back_to = matching + one.matching, seen + one.jobs, one.back_to or back_to
        newest += one.found
        if one.jobs < look or one.least is None:
            return CountedJobs(matching, newest[:sample], Looked(jobs=seen, back_to=back_to, complete=True))
        span = Span(span.least, one.least)
    return CountedJobs(matching, newest[:sample], Looked(jobs=seen, back_to=back_to, complete=False))


async def find_text(
    transaction: Transaction, which: Search, shows: Callable[[str, str], bool], *, limit: int, before: int | None = None
) -> FoundJobs:
    """Return the newest jobs for whose payload `shows(kind, payload)` is true.

    The extent of the scan does not depend on hidden values, so the answer reveals nothing about them.
    """
    ends = time.monotonic() + TEXT_SECONDS
    found: list[JobLine] = []
    seen, back_to = 0, None
    while True:
        page = await find(transaction, which, limit=_PAGE, before=before)
        payloads = await transaction.try_to_run(read_payloads(page.jobs, largest=LARGEST_SEARCHED)) if page.jobs else {}
        if payloads is None:
            if not seen:
                raise RequestRefused(
                    503, "too_slow", "The database took too long to answer: ask for less, or again later."
                )
            return FoundJobs(found, before, Looked(jobs=seen, back_to=back_to, complete=False))
        found += await asyncio.to_thread(_showing, page.jobs, payloads, shows)
        full = len(page.jobs) == _PAGE
        seen += _PAGE if full else page.looked.jobs
        back_to = page.jobs[-1].created_at if full else page.looked.back_to or back_to
        if len(found) > limit:
            return FoundJobs(found[:limit], found[limit - 1].id, Looked(jobs=seen, back_to=back_to, complete=False))
        before = page.next
        if before is None or not full or time.monotonic() > ends:
            return FoundJobs(found, before, Looked(jobs=seen, back_to=back_to, complete=before is None))


async def find_asked(  # noqa: PLR0913 - one keyword per bound
    transaction: Transaction,
    which: Search,
    text: str | None,
    redaction: Redaction,
    *,
    limit: int,
    before: int | None = None,
) -> FoundJobs:
    """Return the newest matching jobs. With a `text`, only those whose redacted payload contains it."""
    if text is None:
        return await find(transaction, which, limit=limit, before=before)
    return await find_text(
        transaction, which, lambda kind, payload: redaction.shows(kind, payload, text), limit=limit, before=before
    )


def search_of(asked: JobFilter) -> Search:
    return Search(**asked.model_dump(include=set(type(asked).model_fields) & set(Search.__dataclass_fields__)))


def _showing(jobs: list[JobLine], payloads: Mapping[int, str], shows: Callable[[str, str], bool]) -> list[JobLine]:
    return [job for job in jobs if job.id in payloads and shows(job.kind, payloads[job.id])]


MOST_NODES = 200
_MOST_ANCESTORS = 20
_MOST_BLOCKERS = 10_000


async def read_story(transaction: Transaction, job_id: int, redaction: Redaction) -> JobStory:
    row = await transaction.run(read_job(job_id))
    if row is None:
        raise await _gone(transaction, f"job {job_id}", job_id)
    attempts = await transaction.run(list_attempts(job_id))
    replays = await transaction.run(list_replays(job_id))
    blockers = (await transaction.run(read_blockers([job_id], gathered=True, most=_MOST_BLOCKERS))).get(job_id, [])
    group = await transaction.run(read_group(job_id)) if blockers else None
    holder = row.get("locked_by") or row.get("worker_id")
    worker = await transaction.run(read_worker(holder)) if holder else None
    runtime = await transaction.run(served_runtime(row["kind"], row["queue"]))
    steps = await transaction.run(read_journal(job_id)) if row["steps"] is True else step_lines(row["steps"])
    stop = None
    if row["status"] == "failed" and row["order_key"]:
        stop = await transaction.run(read_key_stop(job_id, row["order_key"]))
    return _story(
        row,
        redaction,
        max_runtime_ms=runtime and runtime.ms,
        max_runtime_default=runtime and runtime.by_default,
        worker_name=worker and worker.name,
        app_version=worker and worker.app_version,
        waits=await read_waits(transaction, row, steps),
        key_stop=stop,
        attempts=attempts,
        steps=steps,
        replays=[replay.id for replay in replays],
        blockers=[JobBlocker(chain_id=blocker.chain_id, status=blocker.status) for blocker in blockers],
        group=None if group is None else JobGroup(**group._asdict()),
    )


async def read_archived(
    transaction: Transaction, row: dict[str, Any], attempts: list[AttemptLine], redaction: Redaction
) -> JobStory:
    """Return a job whose row comes from the archive. Fields of live jobs are left out."""
    replays = await transaction.run(list_replays(row["id"]))
    worker = await transaction.run(read_worker(row["worker_id"])) if row["worker_id"] else None
    return _story(
        row,
        redaction,
        worker_name=worker and worker.name,
        app_version=worker and worker.app_version,
        attempts=attempts,
        steps=step_lines(row.get("steps")),
        replays=[replay.id for replay in replays],
        blockers=[],
        group=None,
        waits=[],
    )


async def _gone(transaction: Transaction, what: str, job_id: int) -> RequestRefused:
    """Return why a job, or a chain with its first job, is not in the database."""
    files = await transaction.run(exports_with_id(JOB_FAMILIES, job_id, limit=1))
    if files:
        ask = f"GET /api/v1/archive/jobs/{job_id}"
        message = f"{what.capitalize()} is no longer in the database. It may be in the archive: ask {ask}."
        return RequestRefused(404, "archived", message)
    return RequestRefused(404, "not_found", f"There is no {what}: it never was, was deleted, or has aged out.")


def _story(row: dict[str, Any], redaction: Redaction, **more: Any) -> JobStory:
    shown = {part: redaction.apply(row["kind"], row.get(part)) for part in ("payload", "headers", "result")}
    redacted = [part for part, one in shown.items() if one.redacted]
    fields: dict[str, Any] = {name: row.get(name) for name in JobStory.model_fields}
    fields |= {part: one.value for part, one in shown.items()}
    fields |= {
        "worker": row.get("locked_by") or row.get("worker_id"),
        "first_due_at": row.get("first_due_at") or row["available_at"],
        "running_since": row.get("claimed_at"),
        "chain_id": row["chain_id"] or row["id"],
        "tags": row.get("tags") or [],
        "payload_bytes": _size(row.get("payload")),
        "redacted": bool(redacted),
        "redacted_parts": redacted,
        "trace": _trace(row.get("headers")),
        "error_code": row["last_error_code"],
        "error": row["last_error"],
    }
    return JobStory(**fields | more)


async def read_graph(transaction: Transaction, chain_id: int, redaction: Redaction) -> ChainGraph:
    jobs = await transaction.run(read_chain(chain_id, limit=MOST_NODES))
    if not jobs:
        # A chain has the id of its first job.
        raise await _gone(transaction, f"chain {chain_id}", chain_id)
    nodes = {job.id: _node(job, job.chain_id, job.progress and job.progress.fraction) for job in jobs}
    edges = [ChainEdge(source=job.id, target=job.next_id, kind="next") for job in jobs if job.next_id]
    edges += [ChainEdge(source=job.replay_of, target=job.id, kind="replay") for job in jobs if job.replay_of]
    complete = len(jobs) < MOST_NODES
    named = await transaction.run(read_blockers(list(nodes), gathered=True, most=_MOST_BLOCKERS))
    for job_id, blockers in named.items():
        complete = complete and len(blockers) <= _MOST_ANCESTORS
        for blocker in blockers[:_MOST_ANCESTORS]:
            for job in await transaction.run(read_chain(blocker.chain_id, limit=1)):
                nodes.setdefault(job.id, _node(job, blocker.chain_id, job.progress and job.progress.fraction))
                edges.append(ChainEdge(source=job.id, target=job_id, kind="blocks"))
    last = jobs[-1]
    for own_chain, blocked in await transaction.run(list_blocked(chain_id)):
        nodes.setdefault(blocked.id, _node(blocked, own_chain))
        edges.append(ChainEdge(source=last.id, target=blocked.id, kind="blocks"))
    known = [edge for edge in edges if edge.source in nodes and edge.target in nodes]
    return ChainGraph(
        id=chain_id,
        status=last.status,
        result=redaction.apply(last.kind, json.loads(last.stored_result)).value if last.stored_result else None,
        nodes=list(nodes.values()),
        edges=known,
        complete=complete,
    )


def _node(job: JobInfo[Any] | JobLine, chain_id: int, progress: float | None = None) -> ChainNode:
    same = set(ChainNode.model_fields) - {"chain_id", "progress"}
    return ChainNode(chain_id=chain_id, progress=progress, **{name: getattr(job, name) for name in same})


def _trace(headers: Any) -> str | None:
    trace = headers.get("traceparent") if isinstance(headers, dict) else None
    return trace if isinstance(trace, str) else None


def _size(payload: Any) -> int:
    """Return the payload's size in bytes as compact JSON."""
    if payload is None:
        return 0
    return len(json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass"))
