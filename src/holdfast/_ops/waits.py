"""Why a job does not run now: one answer, the same on the pages, in the API, in `holdfast jobs show` and in `top`."""

from __future__ import annotations

import shlex
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast._ops.responses.job import JobWait
from holdfast._ops.wording import counted, plain, stamp
from holdfast._store.chain import read_blockers
from holdfast._store.inspect import read_waiting
from holdfast._store.limit import read_limit_wait
from holdfast._store.search import last_of_chains
from holdfast._store.worker import is_served, list_workers, served_version

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast._ops.pool import Transaction
    from holdfast._store.inspect import WaitingRow
    from holdfast._store.step import StepLine
    from holdfast._store.worker import WorkerLine

_SHOWN_CHAINS = 3


async def read_waits(transaction: Transaction, row: dict[str, Any], steps: Sequence[StepLine]) -> list[JobWait]:
    """Return all reasons, the first one is the most important. Empty: it runs on a live worker, or has ended.

    `row`: of the job, as `read_job` returns it.
    """
    run = transaction.run
    if row["status"] == "processing":
        workers = await run(list_workers(latest=0))
        return [*_held(row, workers)]
    waiting = await run(read_waiting(row["id"])) if row["status"] in ("pending", "blocked") else None
    if waiting is None:
        return []
    found = [*_parked(row, waiting, steps)]
    if waiting.blockers is not None:
        found += await _blocked(transaction, row["id"], waiting.blockers)
    if row.get("limit_key") and (limit := await run(read_limit_wait(row["id"]))) is not None:
        command = f"holdfast limits set {shlex.quote(limit.name)} --concurrency N"
        found.append(JobWait(code="limit", text=f"It waits for a limit: {limit.text}.", command=command))
    if row["status"] == "pending":
        workers = await run(list_workers(latest=0))
        reads = max(1, await run(served_version(row["kind"])))
        found += _unserved(row, reads, served=is_served(row["queue"], row["kind"], workers))
    if not found:
        text = f"It is due, and starts when a worker has a free slot of the queue {plain(row['queue'], 200)}."
        found.append(JobWait(code="turn", text=text))
    return found


def _held(row: dict[str, Any], workers: Sequence[WorkerLine]) -> Iterator[JobWait]:
    holder = next((worker for worker in workers if worker.id == row["locked_by"]), None)
    if holder is not None and holder.state == "live":
        return
    who = f"a worker that has ended, {row['locked_by']}"
    if holder is not None:
        who = f"the worker {plain(holder.name, 200)}, without a heartbeat since {stamp(holder.heartbeat_at)}"
    text = f"It is held by {who}. Another worker takes it after its lease ends at {_stamp(row['locked_until'])}."
    yield JobWait(code="silent_worker", text=text, command="holdfast worker")


def _parked(row: dict[str, Any], waiting: WaitingRow, steps: Sequence[StepLine]) -> Iterator[JobWait]:
    queue = plain(row["queue"], 200)
    if waiting.paused:
        by = f" by {plain(waiting.paused_by, 100)}" if waiting.paused_by else ""
        reason = f" ({plain(waiting.paused_reason, 200)})" if waiting.paused_reason else ""
        at = f" since {stamp(waiting.paused_at)}" if waiting.paused_at else ""
        command = f"holdfast queues resume {shlex.quote(row['queue'])}"
        yield JobWait(code="paused", text=f"The queue {queue} is paused{at}{by}{reason}.", command=command)
    if waiting.stopped_by is not None:
        key = row["order_key"]
        yield JobWait(
            code="order_stopped",
            text=f"Its order key {plain(key, 200)} is stopped by the dead letter {waiting.stopped_by}: retry that one, "
            "or resume the key without it.",
            command=f"holdfast jobs resume-key {shlex.quote(key)}",
            jobs=[waiting.stopped_by],
        )
    elif waiting.behind is not None:
        text = f"It waits for job {waiting.behind}, which comes before it in the order key."
        yield JobWait(code="order_key", text=text, jobs=[waiting.behind])
    if row.get("suspect") is not None:
        alone = "alone" if row["suspect"] else "with no other job but those of its last worker"
        text = f"Its worker was lost while it ran: it runs apart, {alone}, until it ends in another way."
        yield JobWait(code="isolated", text=text)
    waits = [
        step
        for step in steps
        if step.state in ("waits", "gathers") or (step.state == "sleep" and step.due == waiting.due_at)
    ]
    for step in waits:
        until = "" if step.due is None else f", at most until {stamp(step.due)}"
        if step.state == "sleep":
            text = f"It sleeps, {step.name!r}, since {stamp(step.at)}, until {_stamp(step.due)}."
        elif step.state == "gathers":
            text = f"It waits for the jobs of {step.name!r} since {stamp(step.at)}."
        else:
            text = f"It waits for the message {step.name!r} since {stamp(step.at)}{until}."
        yield JobWait(code="step", text=text)
    if waiting.due_at is not None and not waits:
        yield JobWait(code="not_due", text=f"It is due at {stamp(waiting.due_at)}.")


async def _blocked(transaction: Transaction, job_id: int, left: int) -> list[JobWait]:
    """Return the chains that it waits for, each with the job that it stands at."""
    blockers = (await transaction.run(read_blockers([job_id], gathered=True))).get(job_id, [])
    open_ = [blocker.chain_id for blocker in blockers if blocker.status is None][:_SHOWN_CHAINS]
    tails = await transaction.run(last_of_chains(open_))
    at = [
        f"chain {chain} at job {tails[chain].id}, {plain(tails[chain].kind, 100)}, {tails[chain].status}"
        for chain in open_
        if chain in tails
    ]
    text = f"It waits for the end of {counted(left, 'chain')}{': ' if at else ''}{'; '.join(at)}."
    jobs = [tail.id for chain in open_ if (tail := tails.get(chain)) is not None]
    return [JobWait(code="blockers", text=text, jobs=jobs, chains=open_)]


def _unserved(row: dict[str, Any], reads: int, *, served: bool) -> Iterator[JobWait]:
    if not served:
        text = f"No live worker takes {plain(row['kind'], 200)} from the queue {plain(row['queue'], 200)}."
        yield JobWait(code="unserved", text=text, command="holdfast worker")
    elif (version := row.get("payload_version") or 1) > reads:
        text = (
            f"Its payload has version {version}, and live workers read {plain(row['kind'], 200)} up to version {reads}."
        )
        yield JobWait(code="payload_unread", text=text, command="holdfast worker")


def _stamp(time: Any) -> str:
    return stamp(datetime.fromisoformat(time)) if isinstance(time, str) else stamp(time)
