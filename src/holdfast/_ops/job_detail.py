"""The history of a job, and the graph of a chain."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from holdfast._ops import responses
from holdfast._ops.person import RequestRefused
from holdfast._ops.responses import ChainEdge, ChainGraph, ChainNode, JobStory
from holdfast._store.chain import read_blockers, read_chain
from holdfast._store.inspect import list_attempts, list_replays, read_job, read_worker
from holdfast._store.search import list_blocked
from holdfast._store.worker import is_served, list_workers, served_runtime

if TYPE_CHECKING:
    from holdfast._ops.pool import Transaction
    from holdfast._ops.redaction import Redaction, Shown
    from holdfast._store.chain import ChainJob

MOST_NODES = 200
_MOST_ANCESTORS = 20
_SAME = (
    "id", "status", "kind", "queue", "priority", "attempt", "max_attempts", "created_at", "available_at", "order_key",
    "unique_key", "replay_of",
)  # fmt: skip
_PERHAPS = (
    "finished_at", "expires_at", "locked_until", "cancel_requested_at", "next_id", "progress", "progress_note",
)  # fmt: skip


async def read_story(transaction: Transaction, job_id: int, redaction: Redaction) -> JobStory:
    row = await transaction.ask(read_job(job_id))
    if row is None:
        raise RequestRefused(404, "not_found", f"There is no job {job_id}: it never was, was deleted, or has aged out.")
    attempts = await transaction.ask(list_attempts(job_id))
    replays = await transaction.ask(list_replays(job_id))
    blockers = (await transaction.ask(read_blockers([job_id]))).get(job_id, [])
    holder = row.get("locked_by") or row.get("worker_id")
    worker = await transaction.ask(read_worker(holder)) if holder else None
    served = None
    if row["status"] == "pending":
        served = is_served(row["queue"], row["kind"], await transaction.ask(list_workers(latest=0)))
    runtime = await transaction.ask(served_runtime(row["kind"], row["queue"]))
    payload = redaction.apply(row["kind"], row.get("payload"))
    headers = redaction.apply(row["kind"], row.get("headers"))
    result = redaction.apply(row["kind"], row.get("result"))
    told: dict[str, Any] = {name: row[name] for name in _SAME} | {name: row.get(name) for name in _PERHAPS}
    return JobStory(
        **told,
        max_runtime_ms=runtime and runtime.ms,
        max_runtime_default=runtime and runtime.by_default,
        worker=holder,
        worker_name=worker and worker.name,
        chain_id=row["chain_id"] or row["id"],
        payload=payload.value,
        payload_bytes=_size(row.get("payload")),
        headers=headers.value,
        result=result.value,
        redacted=payload.redacted or headers.redacted or result.redacted,
        redacted_parts=_redacted(payload=payload, headers=headers, result=result),
        trace=_trace(row.get("headers")),
        error_code=row["last_error_code"],
        error=row["last_error"],
        served=served,
        attempts=[responses.AttemptLine.model_validate(attempt._asdict()) for attempt in attempts],
        replays=[replay.id for replay in replays],
        blockers=[responses.JobBlocker(chain_id=blocker.chain_id, status=blocker.status) for blocker in blockers],
    )


async def read_graph(transaction: Transaction, chain_id: int, redaction: Redaction) -> ChainGraph:
    jobs = sorted(await transaction.ask(read_chain(chain_id, most=MOST_NODES)))
    if not jobs:
        raise RequestRefused(
            404, "not_found", f"There is no chain {chain_id}: it never was, was deleted, or has aged out."
        )
    nodes = {job.id: _node(job, chain_id) for job in jobs}
    edges = [ChainEdge(source=job.id, target=job.next_id, kind="next") for job in jobs if job.next_id]
    edges += [ChainEdge(source=job.replay_of, target=job.id, kind="replay") for job in jobs if job.replay_of]
    complete = len(jobs) < MOST_NODES
    for job_id, blockers in (await transaction.ask(read_blockers(list(nodes)))).items():
        complete = complete and len(blockers) <= _MOST_ANCESTORS
        for blocker in blockers[:_MOST_ANCESTORS]:
            for job in sorted(await transaction.ask(read_chain(blocker.chain_id, most=1))):
                nodes.setdefault(job.id, _node(job, blocker.chain_id))
                edges.append(ChainEdge(source=job.id, target=job_id, kind="blocks"))
    last = jobs[-1]
    for blocked in await transaction.ask(list_blocked(chain_id)):
        nodes.setdefault(
            blocked.id,
            ChainNode(**blocked._asdict(), finished_at=None, error_code=None, progress=None),
        )
        edges.append(ChainEdge(source=last.id, target=blocked.id, kind="blocks"))
    known = [edge for edge in edges if edge.source in nodes and edge.target in nodes]
    return ChainGraph(
        id=chain_id,
        status=last.status,  # type: ignore[arg-type]
        result=redaction.apply(last.kind, json.loads(last.result)).value if last.result else None,
        nodes=list(nodes.values()),
        edges=known,
        complete=complete,
    )


def _node(job: ChainJob, chain_id: int) -> ChainNode:
    told = job._asdict()
    return ChainNode(chain_id=chain_id, **{name: told[name] for name in ChainNode.model_fields if name != "chain_id"})


def _trace(headers: Any) -> str | None:
    trace = headers.get("traceparent") if isinstance(headers, dict) else None
    return trace if isinstance(trace, str) else None


def _size(payload: Any) -> int:
    """Return the payload's size in bytes as compact JSON."""
    if payload is None:
        return 0
    return len(json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass"))


def _redacted(**parts: Shown) -> list[Any]:
    return [name for name, shown in parts.items() if shown.redacted]
