"""The message of a wait that timed out: which job the chain waits for, and what that job waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast._store.chain import UnfinishedJob


def late(chain: int, seconds: float, job: UnfinishedJob | None = None) -> str:
    """Return the message. `job`: the live job of the chain. Default: None, it is unknown.

    >>> late(7, 30)
    'chain 7 has not ended within 30 s'
    """
    said = f"chain {chain} has not ended within {seconds:g} s"
    return said if job is None else f"{said}: its job {job.id} ({job.kind}, queue {job.queue}) {_reason(job)}"


def _reason(job: UnfinishedJob) -> str:
    if job.status == "processing":
        return f"is running, in attempt {job.attempt}: wait longer, with timeout=…"
    if job.status == "blocked":
        return "is blocked by other chains or by its order key: `holdfast jobs show` names them"
    if not job.served:
        return f"has no live worker that serves it: start one with `holdfast worker APP --queues {job.queue}=10`"
    if job.paused:
        return f"waits in a paused queue: resume it with `holdfast queues resume {job.queue}`"
    if job.later:
        return "is not due yet: wait longer, with timeout=…"
    return "waits for a free slot of a worker: wait longer, with timeout=…, or start more workers"
