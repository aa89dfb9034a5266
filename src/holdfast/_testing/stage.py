"""A worker for tests: one job at a time, on one connection, with the claims, handlers and finishes of a real one."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import re
import time
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from holdfast._engine.attempt import Attempt
from holdfast._engine.jobs.complete import Completer
from holdfast._engine.jobs.run_handlers import Handlers
from holdfast._engine.link import Links
from holdfast._engine.own_row import OwnRow
from holdfast._engine.session import Session
from holdfast._model.errors import AbortReason, UnknownKind
from holdfast._model.kind import Kind, retries_of
from holdfast._model.new_job import OMITTED, NewJob
from holdfast._model.outcome import Completed
from holdfast._model.settings import SettingsError, read_retry
from holdfast._model.work import Lease
from holdfast._store.chain import read_blockers, release_waiters
from holdfast._store.claim import claim_jobs
from holdfast._store.enqueue import enqueue_job
from holdfast._store.finish import finish_jobs
from holdfast._store.inspect import read_job
from holdfast._store.lease import ClaimAnswer, claim_suspects, reap_jobs
from holdfast._store.statement import Statement
from holdfast._store.testing import catch_up, due_queues, lend_job, return_job, suspended_stories
from holdfast._store.worker import read_identity, register_worker, stop_worker
from holdfast._testing.recording import StageRecorder
from holdfast._testing.results import Drained, Ran, error_of, ran_of

if TYPE_CHECKING:
    from types import TracebackType

    from holdfast._app.app import Holdfast
    from holdfast._engine.jobs.executor import Executors
    from holdfast._engine.jobs.recorder import RunStatement
    from holdfast._model.handle import Handle
    from holdfast._model.job import Job
    from holdfast._model.outcome import Outcome
    from holdfast._store.claim import ClaimedJob
    from holdfast._store.lease import ReapedJob
    from holdfast._testing.drive import Call
    from holdfast._testing.events import EventFeed

T = TypeVar("T")

NAME = "holdfast.testing"
# A handler that is aborted has this many seconds to stop.
ABORT_GRACE = 1.0

_PLACEHOLDER = re.compile(r"%\((\w+)\)s")


class Stage:
    """`async with` registers it as a worker, and enters the application's lifespan unless a state was given."""

    def __init__(self, app: Holdfast, run: RunStatement, call: Call, *, state: Any = OMITTED) -> None:
        app.import_modules()
        self._app = app
        self._run = run
        self._call = call
        self._state = state
        self._stack = AsyncExitStack()
        self._row = OwnRow()
        self._kinds = {name: kind for name, kind in app.kinds.items() if isinstance(kind, Kind)}
        self._leases = {name: kind.work.lease or Lease() for name, kind in self._kinds.items()}
        self._retry = read_retry(os.environ)
        self._handlers = Handlers(
            codec=app.codec,
            executors=cast("Executors", PlainFunctions(call)),
            middlewares=app.middlewares,
            worker=NAME,
            retry=self._retry,
        )

    async def __aenter__(self) -> Self:
        queues = dict.fromkeys(kind.envelope.queue for kind in self._kinds.values())
        self._row.id = await self._run(register_worker(NAME, queues=queues, kinds=self._kinds))
        schema = await self._run(read_identity())
        database = ""  # the kit works on a connection, so the application need not name a database
        with suppress(SettingsError):
            database = next(iter(self._app.databases))
        session = Session(Links("", name=database, timeout=0.0), self._row, schema=schema)
        self.recorder = StageRecorder(self._run, self._row, self._call)
        self._completer = Completer(session, self._app.codec, self.recorder)
        if self._state is OMITTED and self._app.lifespan is not None:
            self._handlers.state = await self._stack.enter_async_context(self._app.lifespan(self._app))
        else:
            self._handlers.state = None if self._state is OMITTED else self._state
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()
        if exc is None:
            await self._run(stop_worker(self._row.id, "stopped"))

    async def drain(
        self, *, limit: int, seconds: float, raise_errors: bool, events: EventFeed | None = None, until: str = ""
    ) -> Drained:
        """Run due jobs, also those of `events`, until none is due, or until a story waits at this step."""
        end = time.monotonic() + seconds
        ran = await self._reap()
        while queues := await self._due_with(events):
            if len(ran) >= limit:
                raise AssertionError(f"{limit} attempts were made and more is due: does a job enqueue itself for ever?")
            if time.monotonic() >= end:
                raise AssertionError(f"{seconds:g} seconds have passed, {len(ran)} attempts were made, and more is due")
            if (job := await self._claim_one(queues)) is None:
                break
            ran.append(await self._attempt(job, end - time.monotonic(), raise_errors=raise_errors))
            if until and any(story.step == until for story in await self._run(suspended_stories())):
                break
        return Drained(tuple(ran))

    async def _due_with(self, events: EventFeed | None) -> list[str]:
        """Return the queues that have due jobs. If there is none, make jobs of the events that were not read yet."""
        queues = await self._due()
        if not queues and events is not None and await events.make_jobs(self._run):
            return await self._due()
        return queues

    async def run_job(self, job: NewJob[Any] | Handle[Any], *, seconds: float, raise_errors: bool) -> Ran:
        """Run only this job, due or not."""
        if isinstance(job, NewJob):
            self._check_kind(job.kind)
            job = await self._run(enqueue_job(job))
        claimed = await self._claim_this(job.id)
        return await self._attempt(claimed, seconds, raise_errors=raise_errors)

    async def _attempt(self, job: ClaimedJob, seconds: float, *, raise_errors: bool) -> Ran:
        """Run the handler of a claimed job and write its outcome."""
        blockers = (await self._run(read_blockers([job.id]))).get(job.id, ()) if job.has_blockers else ()
        job = job._replace(created=None)  # the kit moves this time, and an idempotency key must not change
        attempt = Attempt(job, self._kinds[job.kind], self._leases[job.kind], self._completer, tuple(blockers))
        outcome = await self._outcome(attempt, seconds)
        raised: BaseException | None = getattr(outcome, "exception", None)
        answer: ClaimAnswer | None = None
        try:
            answer = await self._finish(attempt, outcome)
        except Exception as exc:
            if raised is None or not raise_errors:
                raise
            raised.add_note(f"And the ending of job {job.id} could not be written: {exc}")
        if answer is None:
            # Raised outside the except block, so that it keeps its own causes.
            raise cast("BaseException", raised)
        if attempt.completed and answer is ClaimAnswer.already_completed:
            return ran_of(job, await self._completed(job), ClaimAnswer.completed, attempt.kind)
        ran = ran_of(job, outcome, answer, attempt.kind)
        if raise_errors and (error := error_of(outcome, ran)) is not None:
            raise error
        return ran

    async def _completed(self, job: ClaimedJob) -> Completed:
        """Return the outcome of a job that its handler completed itself."""
        row = await self._run(read_job(job.id)) or {}
        return Completed(None if row.get("result") is None else json.dumps(row["result"]))

    async def _reap(self) -> list[Ran]:
        await self._run(catch_up())
        reaped = await self._run(reap_jobs(retries_of(self._kinds, self._retry)))
        return [_lost(job) for job in reaped.jobs if job.answer is not ClaimAnswer.busy]

    async def _due(self) -> list[str]:
        while await self._run(release_waiters()):
            pass
        await self._run(catch_up())
        return await self._run(due_queues(self._kinds))

    async def _claim_one(self, queues: list[str]) -> ClaimedJob | None:
        """Claim the most urgent job. None: the due jobs are in a paused queue or locked by another connection."""
        for queue in queues:
            if (job := await self._claim(queue)) is not None:
                return job
        return None

    async def _claim_this(self, job_id: int) -> ClaimedJob:
        """Claim one job through a temporary queue that holds only this job."""
        lent = f"{NAME} {job_id}"
        if (found := await self._run(lend_job(job_id, lent))) is None:
            row = await self._run(read_job(job_id))
            raise AssertionError(f"job {job_id} cannot run: it is {'not there' if row is None else row['status']}")
        job = await self._claim(lent)
        fence = {} if job is None else {"token": job.token, "worker": self._row.id}
        await self._run(return_job(job_id, found.queue, lent=lent, **fence))
        if job is None:
            self._check_kind(found.kind)
            raise AssertionError(f"job {job_id} cannot run: an earlier one of its order key has not ended")
        return job._replace(queue=found.queue)

    async def _claim(self, queue: str) -> ClaimedJob | None:
        while True:
            claim = await self._run(claim_jobs(self._row.id, {queue: 1}, self._leases))
            if claim.jobs:
                return claim.jobs[0]
            if not claim.again:
                # Suspects must run alone, and here every job does.
                return next(iter(await self._run(claim_suspects(self._row.id, [queue], self._leases))), None)

    def _check_kind(self, kind: str) -> None:
        if kind not in self._kinds:
            raise UnknownKind(f"{kind}: this application has no handler for it")

    async def _outcome(self, attempt: Attempt, seconds: float) -> Outcome | None:
        """Run the handler in its own task, with the same time limit as in a worker."""
        longest = attempt.longest
        attempt.started_at = time.monotonic()
        task = asyncio.create_task(self._handled(attempt))
        attempt.task, attempt.entered = cast("asyncio.Task[None]", task), True
        try:
            await asyncio.wait({task}, timeout=min(longest, seconds))
            if not task.done():
                attempt.abort(AbortReason.timeout)
                await asyncio.wait({task}, timeout=ABORT_GRACE)
        finally:
            task.cancel()
        if not task.done() or (attempt.signal.reason is AbortReason.timeout and seconds < longest):
            name = f"{attempt.kind.name} (job {attempt.claimed.id})"
            raise AssertionError(f"{name} was still running when the time was up, after {seconds:.3g} seconds")
        return task.result()

    async def _handled(self, attempt: Attempt) -> Outcome | None:
        if attempt.kind.work.batch is None:
            return await self._handlers.outcome(attempt)
        (outcome,) = await self._handlers.outcomes([attempt])
        return outcome

    async def _finish(self, attempt: Attempt, outcome: Outcome | None) -> ClaimAnswer:
        if outcome is None:
            return ClaimAnswer.taken_by_another_worker
        # `careful` returns the result for every job.
        attempt.outcome, attempt.seconds = outcome, time.monotonic() - attempt.started_at
        answers = await self._run(finish_jobs(self._row.id, [attempt], careful=True))
        (answer,) = answers.values()
        return answer


class PlainFunctions:
    """Replaces a worker's threads and processes: tests run one handler at a time and can patch it."""

    def __init__(self, call: Call) -> None:
        self._call = call

    async def run(self, attempt: Attempt, job: Job[Any], handler: partial[object]) -> object:
        if attempt.kind.work.in_process:
            # In production a process handler has no state.
            job = copy.copy(job)
            job.state = None
            handler = partial(handler.func, job, **handler.keywords)
        return await self._call(handler)


def _lost(job: ReapedJob) -> Ran:
    return Ran(job.id, job.kind, job.attempt, "lost", error_code=job.error_code, error=job.error)


def as_text(statement: Statement[T]) -> Statement[T]:
    """Cast every text parameter to text: asyncpg would require a list for an array, a timedelta for an interval."""
    texts = {name for name, value in statement.params.items() if isinstance(value, str)}
    sql = _PLACEHOLDER.sub(lambda match: f"{match[0]}::text" if match[1] in texts else match[0], statement.sql)
    return Statement(sql, statement.params, statement.read, statement.unfit)
