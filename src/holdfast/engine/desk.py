"""Where running jobs turn to: to be completed in their handler's own transaction, and to say how far they are."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from holdfast.drivers import run, run_sync
from holdfast.engine.completion import Completion
from holdfast.engine.keeper import unwatched
from holdfast.engine.link import told
from holdfast.errors import HoldfastError, LeaseLost
from holdfast.job import Progress
from holdfast.logs import Log
from holdfast.store.progress import report_progress
from holdfast.store.worker import served_version

if TYPE_CHECKING:
    from holdfast.codec import JsonCodec
    from holdfast.connection import AsyncConnection, SyncConnection
    from holdfast.engine.attempt import Attempt
    from holdfast.engine.keeper import Turn
    from holdfast.engine.link import Link
    from holdfast.store.answer import Answer
    from holdfast.store.lease import Held

# What handlers say meanwhile is written together.
REPORT_SECONDS = 1.0
NOTE_LIMIT = 200

log = Log(__name__)


class Desk:
    """One for all the jobs that a worker has from one database."""

    def __init__(self, link: Link, worker: int, codec: JsonCodec) -> None:
        self._link = link
        self.worker = worker
        self._codec = codec
        self._loop = asyncio.get_running_loop()
        self._reports: dict[Held, Progress] = {}
        self._news = asyncio.Event()
        self._asked: set[str] = set()
        self._served: dict[str, int] = {}

    async def complete(self, attempt: Attempt, conn: AsyncConnection, result: object) -> None:
        completion = self._completion(attempt)
        answer = await run(conn, completion.statement(result))
        self._check(attempt, completion, answer)

    def complete_sync(self, attempt: Attempt, conn: SyncConnection, result: object) -> None:
        completion = self._completion(attempt)
        self._check(attempt, completion, run_sync(conn, completion.statement(result)))

    def report(self, attempt: Attempt, progress: Progress) -> None:
        """Take note of it, from any thread."""
        note = None if progress.note is None else _fit(progress.note)
        self._reports[attempt.held] = Progress(progress.fraction, note)
        self._loop.call_soon_threadsafe(self._news.set)

    def served(self, kind: str) -> int | None:
        """Return the newest payload version of this kind that a live worker takes; None: not known yet, ask again."""
        self._asked.add(kind)
        self._news.set()
        return self._served.pop(kind, None)

    async def run(self, turn: Turn = unwatched) -> None:
        while True:
            turn(math.inf)
            await self._news.wait()
            turn(REPORT_SECONDS)
            self._news.clear()
            reports, self._reports = self._reports, {}
            asked, self._asked = self._asked, set()
            try:
                if reports:
                    await self._link.run(report_progress(self.worker, reports))
                for kind in asked:
                    self._served[kind] = await self._link.run(served_version(kind))
            except Exception as exc:
                # The next report says more than the one that was lost.
                log.warning("report_progress failed", extra={"error": type(exc).__name__}, exc_info=told(exc))
            await asyncio.sleep(REPORT_SECONDS)

    def _completion(self, attempt: Attempt) -> Completion:
        if attempt.completed:
            raise HoldfastError(f"job {attempt.held.id} was completed already, in this attempt")
        claimed = attempt.claimed
        return Completion(
            self.worker,
            attempt.held,
            kind=claimed.kind,
            codec=self._codec,
            headers=claimed.read_headers(),
            returns=attempt.kind.returns,
        )

    def _check(self, attempt: Attempt, completion: Completion, answer: Answer) -> None:
        try:
            completion.check(answer)
        except LeaseLost as exc:
            attempt.signal.abort(exc.reason)
            raise
        attempt.completed = True


def _fit(note: str) -> str:
    return note[:NOTE_LIMIT].replace("\x00", "").encode(errors="replace").decode()
