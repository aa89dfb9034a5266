"""A worker for one story at a time that can be made to die before or after any statement, and leave all to a reaper."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar, cast

import psycopg

from holdfast import _drivers as drivers
from holdfast._engine.attempt import Attempt
from holdfast._engine.jobs import steps
from holdfast._engine.jobs.complete import Completer
from holdfast._engine.jobs.recorder import Recorder
from holdfast._engine.jobs.run_handlers import Handlers
from holdfast._engine.link import Links
from holdfast._engine.own_row import OwnRow
from holdfast._engine.session import Session
from holdfast._model.codec import JsonCodec
from holdfast._model.errors import AbortReason
from holdfast._model.work import Lease
from holdfast._store.finish import Ending
from holdfast._store.statement import statements
from tests.kit.workers import AT_ONCE, Worker, expire_leases

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast import Kind
    from holdfast._model.outcome import Outcome
    from holdfast._store.claim import ClaimedJob
    from holdfast._store.statement import Statement

T = TypeVar("T")


class Died(BaseException):
    """The process is gone: nothing after this has an effect."""


class Crew:
    """Runs one story to its end, and replays it if it became a dead letter.

    The worker dies at the statements with these numbers, before they run, or, if true, after.
    """

    def __init__(self, url: str, kind: Kind[..., Any], crashes: Mapping[int, bool], *, child: Kind[..., Any]) -> None:
        """`child`: the kind of the jobs that the story gathers."""
        self.url = url
        self.kinds = {kind.name: kind, child.name: child}
        self.statements: list[str] = []
        """The statements of all attempts, in their order."""
        self._crashes = crashes
        self._attempt: Attempt | None = None
        self._dead = False

    @property
    def died(self) -> bool:
        return any(at < len(self.statements) for at in self._crashes)

    async def run(self) -> None:
        """Claim and run until the job has left; time passes at once, and the reaper comes at once."""
        with psycopg.connect(self.url, autocommit=True) as conn:
            for _ in range(200):
                worker = Worker(conn, *self.kinds)
                expire_leases(conn)
                worker.reap(AT_ONCE)
                conn.execute("UPDATE holdfast.step SET due = clock_timestamp() WHERE due > clock_timestamp()")
                conn.execute("UPDATE holdfast.job SET available_at = now(), later = NULL WHERE status = 'pending'")
                jobs = worker.claim(1)
                if not jobs and not conn.execute("SELECT FROM holdfast.job").fetchall():
                    dead = conn.execute("SELECT max(id) FROM holdfast.job_failed WHERE kind = 'story'").fetchone()
                    if conn.execute("SELECT FROM holdfast.job_history WHERE kind = 'story'").fetchall() or dead is None:
                        return
                    conn.execute("SELECT holdfast.replay_job(%s)", dead)
                for job in jobs:
                    outcome = await self._run(worker, job)
                    if outcome is not None:
                        self._finish(worker, job, outcome)
        raise AssertionError("the story does not end")

    def _finish(self, worker: Worker, job: ClaimedJob, outcome: Outcome) -> None:
        ending = Ending(job, outcome)
        if self._dies("finish"):
            return
        worker.end([ending.claimed], outcome, careful=True)
        self._dies("finish", after=True)

    async def _run(self, worker: Worker, job: ClaimedJob) -> Outcome | None:
        """Return the outcome of one attempt; None: the worker died."""
        async with await psycopg.AsyncConnection.connect(self.url, autocommit=True) as conn:
            lock = asyncio.Lock()

            async def ask(statement: Statement[T]) -> T:
                async with lock:
                    return await self._through(conn, statement)

            row = OwnRow()
            row.id = worker.id
            session = Session(Links("", name="", timeout=0.0), row)
            recorder = Recorder(ask, row)
            completer = Completer(session, JsonCodec(), recorder)
            attempt = self._attempt = Attempt(job, self.kinds[job.kind], Lease(), completer)
            self._dead = False
            handlers = Handlers(codec=JsonCodec(), executors=None, middlewares=[], worker="", retry=AT_ONCE)  # type: ignore[arg-type]
            attempt.task = asyncio.create_task(handlers.outcome(attempt))  # type: ignore[arg-type]
            usual, steps.run = steps.run, self._through  # type: ignore[attr-defined]
            try:
                outcome = await cast("asyncio.Task[Any]", attempt.task)
            finally:
                steps.run = usual  # type: ignore[attr-defined]
            attempt.over = True
            if recorder._writer is not None and recorder._writer.done():
                recorder._writer.exception()  # it died, too
            return None if self._dead else outcome

    async def _through(self, conn: Any, statement: Statement[T]) -> T:
        name = next(name for name, sql in statements().items() if sql == statement.sql)
        if self._dead:
            raise Died
        if self._dies(name):
            raise Died
        answer = await drivers.run(conn, statement)
        if self._dies(name, after=True):
            raise Died
        return answer

    def _dies(self, name: str, *, after: bool = False) -> bool:
        """Count a statement, and return whether the worker dies here."""
        if not after:
            self.statements.append(name)
        if self._crashes.get(len(self.statements) - 1) is not after:
            return False
        self._dead = True
        if self._attempt is not None:
            self._attempt.signal.abort(AbortReason.error)
        return True
