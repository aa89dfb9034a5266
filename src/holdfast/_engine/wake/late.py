"""The message of a wait that timed out: which job the chain waits for, and what that job waits for."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast._engine.link import Link
from holdfast._store.chain import unfinished_job

if TYPE_CHECKING:
    from holdfast._store.chain import UnfinishedJob

# A caller that gives up waits this many seconds longer for the reason. Others who give up meanwhile get the same one.
SECONDS = 1.0
_LONGEST_REASON = 300


class LateChains:
    """Finds the job that a late chain waits for. Callers that give up on a chain within a second share one lookup."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._one_at_a_time = asyncio.Lock()
        self._lookups: dict[int, asyncio.Task[UnfinishedJob | None]] = {}

    async def find(self, chain: int) -> UnfinishedJob | None:
        """Return the job; None if the database does not answer within a second."""
        lookup = self._lookups.get(chain)
        if lookup is None:
            lookup = self._lookups[chain] = asyncio.create_task(self._look_up(chain), name="holdfast-late")
            asyncio.get_running_loop().call_later(SECONDS, self._lookups.pop, chain, None)
        # A caller that is cancelled meanwhile does not take the answer from the others.
        return await asyncio.shield(lookup)

    async def _look_up(self, chain: int) -> UnfinishedJob | None:
        # On a connection of its own: that of the watcher may be closing.
        with suppress(Exception):
            async with asyncio.timeout(SECONDS), self._one_at_a_time:
                link = Link(self._url, timeout=SECONDS)
                try:
                    return await link.run(unfinished_job(chain))
                finally:
                    await link.close()
        return None


def late(chain: int, seconds: float, job: UnfinishedJob | None = None) -> str:
    """Return the message. `job`: the live job of the chain. Default: None, it is unknown.

    >>> late(7, 30)
    'chain 7 has not ended within 30 s'
    """
    message = f"chain {chain} has not ended within {seconds:g} s"
    return message if job is None else f"{message}: its job {job.id} ({job.kind}, queue {job.queue}) {_reason(job)}"


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
        return f"{_why_later(job)}wait longer, with timeout=…"
    return "waits for a free slot of a worker: wait longer, with timeout=…, or start more workers"


def _why_later(job: UnfinishedJob) -> str:
    if job.error_code is None:
        return "is not due yet: "
    return f"waits to be tried again after {f'{job.error_code}: {job.error}':.{_LONGEST_REASON}}: correct that, or "
