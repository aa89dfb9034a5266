"""Services for running jobs: completion in the handler's own transaction, and progress reports."""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING, assert_never

from holdfast._engine.jobs.recorder import Recorder
from holdfast._engine.jobs.steps import Steps
from holdfast._engine.keeper import unwatched
from holdfast._engine.link import traceback_for
from holdfast._logs.log import TRACEPARENT, Log, current_trace, trace_in
from holdfast._model.continuation import Continue
from holdfast._model.errors import AbortReason, HoldfastError, InvalidJob, LeaseLost
from holdfast._model.job import Progress
from holdfast._model.new_job import check_result
from holdfast._model.outcome import Completed
from holdfast._store.enqueue import EnqueuedJob
from holdfast._store.finish import Ending, complete_batch, complete_job
from holdfast._store.lease import ClaimAnswer, report_progress
from holdfast._store.worker import served_version

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from holdfast._engine.attempt import Attempt
    from holdfast._engine.keeper import Turn
    from holdfast._engine.session import Session
    from holdfast._model.codec import JsonCodec
    from holdfast._model.new_job import NewJob
    from holdfast._model.result import Result
    from holdfast._store.claim import ClaimedJob
    from holdfast._store.lease import Held
    from holdfast._store.statement import Statement


# Progress reports are collected for this many seconds and written together.
REPORT_SECONDS = 1.0
NOTE_LIMIT = 200

log = Log(__name__)


class Completer:
    """Completes jobs and writes progress. One instance serves all jobs of a worker in one database."""

    def __init__(self, session: Session, codec: JsonCodec, recorder: Recorder | None = None) -> None:
        """Create it; `recorder` records steps. Default: one of this session."""
        self._recorder = recorder or Recorder(session.links.finish.run, session.row)
        self._session = session
        self._links = session.links
        self._row = session.row
        self.database = session.name
        self.schema = session.schema
        self._codec = codec
        self._loop = asyncio.get_running_loop()
        self._reports: dict[Held, Progress] = {}
        self._refused: set[Held] = set()
        """Claims whose progress the database does not take: they report none from then on."""
        self._news = asyncio.Event()
        self._asked: set[str] = set()
        self._served: dict[str, int] = {}

    @property
    def worker(self) -> int:
        """The id of the worker's row."""
        return self._row.id

    @property
    def label(self) -> str:
        """The name of the database for logs and metrics; empty if the worker serves only one."""
        return self._session.label

    def complete(self, attempt: Attempt, result: object) -> Statement[None]:
        """Return the statement that completes a job; its value is None, or it raises because the lease was lost."""
        completion = self._completion(attempt)

        def check(answer: ClaimAnswer) -> None:
            self._check(attempt, completion, answer)
            attempt.follower = completion.follower(result)

        return completion.statement(result).then(check)

    def complete_batch(self, ends: Mapping[Attempt, object]) -> Statement[list[Attempt]]:
        """Return the statement that completes many jobs; its value is the attempts whose lease was lost."""
        completions = {attempt: self._completion(attempt) for attempt in ends}

        def check(answers: Mapping[Held, ClaimAnswer]) -> list[Attempt]:
            lost = []
            for attempt, completion in completions.items():
                try:
                    self._check(attempt, completion, answers[attempt.held])
                except LeaseLost:
                    lost.append(attempt)
                else:
                    attempt.follower = completion.follower(ends[attempt])
            return lost

        endings = [completion.ending(ends[attempt], attempt.claimed) for attempt, completion in completions.items()]
        return complete_batch(self._row.id, endings).then(check)

    def steps(self, attempt: Attempt) -> Steps:
        """Return the steps of an attempt, at its first verb."""
        return Steps(attempt, self._recorder, self._codec)

    def report(self, attempt: Attempt, progress: Progress) -> None:
        """Store the progress for the next write. Safe to call from any thread."""
        if attempt.held in self._refused:
            return
        note = None if progress.note is None else _fit(progress.note)
        self._reports[attempt.held] = Progress(progress.fraction, note)
        self._loop.call_soon_threadsafe(self._news.set)

    def served(self, kind: str) -> int | None:
        """Return the newest payload version of this kind that a live worker accepts. None: unknown yet, call again."""
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
                    await self._write(reports)
                for kind in asked:
                    self._served[kind] = await self._links.finish.run(served_version(kind))
            except Exception as exc:
                # A lost report does no harm: the next one replaces it.
                log.warning("report_progress failed", extra={"error": type(exc).__name__}, exc_info=traceback_for(exc))
            await asyncio.sleep(REPORT_SECONDS)

    async def _write(self, reports: dict[Held, Progress]) -> None:
        """Store these reports. If that fails while the database answers, halve them until the culprit stands alone."""
        parts, link = [reports], self._links.finish
        while parts:
            part = parts.pop()
            try:
                await link.run(report_progress(self._row.id, part), seconds=REPORT_SECONDS)
            except Exception as exc:
                await link.probe()
                # Outcomes do not wait for the parts.
                link = self._links.apart
                if len(part) > 1:
                    keys = list(part)
                    middle = len(keys) // 2
                    parts += [{held: part[held] for held in half} for half in (keys[middle:], keys[:middle])]
                    continue
                [(culprit, progress)] = part.items()
                if progress.note is not None and not progress.note.isascii():
                    parts.append({culprit: progress._replace(note=progress.note.encode("ascii", "replace").decode())})
                    continue
                self._refused.add(culprit)
                log.warning("the progress of a job cannot be stored", extra={"id": culprit.id}, exc_info=exc)
        if link is self._links.apart and not link.busy:
            await link.close()

    def _completion(self, attempt: Attempt) -> Completion:
        if attempt.completed:
            raise HoldfastError(f"job {attempt.held.id} was completed already, in this attempt")
        claimed = attempt.claimed
        return Completion(
            self._row.id,
            attempt.held,
            kind=claimed.kind,
            codec=self._codec,
            headers=claimed.read_headers(),
            returns=attempt.kind.returns,
            started_at=attempt.started_at,
        )

    def _check(self, attempt: Attempt, completion: Completion, answer: ClaimAnswer) -> None:
        try:
            completion.check(answer)
        except LeaseLost as exc:
            attempt.signal.abort(exc.reason)
            raise
        attempt.completed = True


def _fit(note: str) -> str:
    return note[:NOTE_LIMIT].replace("\x00", "").encode(errors="replace").decode()


class Completion:
    """Completes one attempt from inside its handler."""

    def __init__(  # noqa: PLR0913 - everything that a completion refers to
        self,
        worker: int,
        held: Held,
        *,
        kind: str,
        codec: JsonCodec,
        headers: Mapping[str, str],
        returns: Result | None,
        started_at: float,
    ) -> None:
        """`started_at`: when the handler was called, by the monotonic clock."""
        self._worker = worker
        self._returns = returns
        self._started_at = started_at
        self._headers = headers
        self._held = held
        self._kind = kind
        self._codec = codec

    def statement(self, result: object) -> Statement[ClaimAnswer]:
        outcome = completed(result, self._codec, self._kind, self._headers, self._returns)
        ran = time.monotonic() - self._started_at
        return complete_job(self._worker, self._held, outcome.result, outcome.next, seconds=ran)

    def ending(self, result: object, claimed: ClaimedJob) -> Ending:
        """Return the completion as one of many."""
        outcome = completed(result, self._codec, self._kind, self._headers, self._returns)
        return Ending(claimed, outcome, time.monotonic() - self._started_at)

    def follower(self, result: object) -> EnqueuedJob | None:
        return follower(self._held.id, result)

    def check(self, answer: ClaimAnswer) -> None:
        """Return if the job will be completed once the transaction commits; raise otherwise."""
        match answer:
            case ClaimAnswer.completed:
                return
            case ClaimAnswer.busy:
                raise HoldfastError(f"job {self._held.id} could not be completed: another session keeps its row locked")
            case ClaimAnswer.pending | ClaimAnswer.failed:
                raise HoldfastError(f"job {self._held.id} is {answer}")
            case (
                ClaimAnswer.taken_by_another_worker
                | ClaimAnswer.already_completed
                | ClaimAnswer.not_found
                | ClaimAnswer.cancelled
            ):
                raise LeaseLost(AbortReason(answer))
            case never:
                assert_never(never)


def completed(
    result: object,
    codec: JsonCodec,
    kind: str,
    headers: Mapping[str, str] | None = None,
    returns: Result | None = None,
) -> Completed:
    """Return the outcome of a job whose handler returned `result`: a value, or a Continue.

    `headers`: the job's; None: unknown here. `returns`: the type of the result; None: unknown here.
    """
    if isinstance(result, Continue):
        return Completed(next=result.as_json(_following(result.next, headers), current_trace()))
    if result is None:
        return Completed()
    check_result(kind, result)
    return Completed(codec.encode(result if returns is None else returns.plain(result), kind=kind))


def follower(job_id: int, result: object) -> EnqueuedJob | None:
    """Return the next job in the chain, for listeners, or None if `result` is no Continue. It has no id yet."""
    if not isinstance(result, Continue):
        return None
    return EnqueuedJob(None, result.next.kind, result.next.envelope.queue, job_id)


def _following(job: NewJob[Any], headers: Mapping[str, str] | None) -> str:
    """Return the next job as JSON. Without its own headers it gets those of its predecessor and the current trace."""
    trace = current_trace()
    if trace is not None and (job.envelope.headers or headers == {}):
        return job.as_json(trace)
    if trace is None or not headers or trace_in(headers) == trace:
        return job.as_json()
    try:
        return job.options(headers={**headers, TRACEPARENT: trace}).as_json()
    except (InvalidJob, TypeError):
        # Headers written in SQL may be invalid: they are passed on unchanged.
        return job.as_json()
