"""Running the handler of claimed jobs, one or many in one call, and turning results into outcomes. Contains no SQL."""

from __future__ import annotations

import asyncio
import inspect
import json
import time
from dataclasses import replace
from datetime import timedelta
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from holdfast._engine.jobs.complete import completed, follower
from holdfast._logs import log as logs
from holdfast._logs.failure import Failure
from holdfast._logs.kept import kept_from
from holdfast._logs.log import carry_trace, current_trace, id_of, trace_in
from holdfast._model.batch_kind import Item
from holdfast._model.errors import Aborted, AbortReason, HoldfastError, InvalidJob, NotCommitted
from holdfast._model.job import Job
from holdfast._model.outcome import Busy, Cancelled, Completed, Failed, Outcome, Released, Signal, outcome_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from holdfast._engine.application import Middleware
    from holdfast._engine.attempt import Attempt, AttemptSteps
    from holdfast._engine.jobs.executor import Executors
    from holdfast._engine.report.transition import Spans
    from holdfast._model.codec import JsonCodec
    from holdfast._model.retry import Retry

# How long a job is delayed when this process cannot read its payload.
MISFIT_PAUSE = timedelta(seconds=15)
# A handler that finishes in spite of these has done its work.
_NO_MATTER = frozenset({None, AbortReason.shutdown})
_DONE = Completed()
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Handlers:
    """Runs handlers inside the application's middlewares."""

    def __init__(  # noqa: PLR0913 - everything that running a handler depends on
        self,
        *,
        codec: JsonCodec,
        executors: Executors,
        middlewares: Sequence[Middleware],
        worker: str,
        retry: Retry,
        grace: float = 0.0,
        spans: Spans | None = None,
    ) -> None:
        """`retry`: the policy of kinds that have none.

        `grace`: seconds during which payloads of an unreadable version are given back; from the start, also others that
        cannot be read. Defaults to 0.
        """
        self.state: Any = None
        self.spans = spans
        self._codec = codec
        self._executors = executors
        self._middlewares = tuple(reversed(middlewares))
        self.worker = worker
        self._retry = retry
        self._grace = grace
        self._unread: dict[tuple[str, int], tuple[float, float]] = {}
        """By kind and version: when a payload was unreadable for the first time, and for the last time."""

    async def outcome(self, attempt: Attempt) -> Outcome | None:
        """Run the handler and return its outcome. None: the claim is lost and nothing may be written."""
        if not isinstance(arguments := self._arguments(attempt), dict):
            return arguments
        kind, job = attempt.kind, self._job(attempt)
        fields = {"job": job.id, "kind": job.kind, "chain": job.chain_id, "worker": self.worker, "attempt": job.attempt}
        if label := attempt.completer.label:
            fields["database"] = label
        if job.headers or self.spans is not None:
            self._carry(job.headers, fields)
        logs.context.set(fields)
        if kind.work.keep_logs is not None:
            attempt.kept = kept_from(kind.work.keep_logs)
        try:
            if kind.is_async and not self._middlewares:
                result = await (kind.handler(job, **arguments) if kind.takes_job else kind.handler(**arguments))
            else:
                given = (job,) if kind.takes_job else ()
                result = await self._called(attempt, job, partial(kind.handler, *given, **arguments))
        except BaseException as exc:  # noqa: BLE001 - anything a handler raises is an outcome, also SystemExit
            if attempt.story is not None:
                return await self._ended_story(attempt, attempt.story, exc)
            return self.aborted(attempt) if attempt.signal.aborted else self._raised(attempt, exc)
        if attempt.story is not None:
            return await self._ended_story(attempt, attempt.story, None, result)
        return self._returned(attempt, result)

    async def _ended_story(
        self, attempt: Attempt, story: AttemptSteps, exc: BaseException | None, result: object = None
    ) -> Outcome | None:
        """Return the outcome of a handler that has called verbs of a story, once all that it did is recorded."""
        await story.end()
        if attempt.signal.aborted and exc is not None:
            return self.aborted(attempt)
        try:
            ended = await story.outcome_of(exc)
        except (Aborted, asyncio.CancelledError):
            return self.aborted(attempt)
        if isinstance(ended, BaseException):
            return self._raised(attempt, ended)
        return self._returned(attempt, result) if ended is None else ended

    async def traced_outcome(self, attempt: Attempt) -> Outcome | None:
        """Run `outcome` inside a span."""
        assert self.spans is not None  # noqa: S101 - without spans, `outcome` is called instead
        attempt.spans = self.spans
        with self.spans.attempts(self.worker, [attempt]) as ended:
            outcome = await self.outcome(attempt)
            ended([outcome])
        return outcome

    async def outcomes(self, attempts: Sequence[Attempt]) -> list[Outcome | None]:
        """Run a batch handler once, for all jobs that can run, and return all outcomes. None: the claim is lost."""
        if self.spans is None:
            return await self._outcomes(attempts)
        with self.spans.attempts(self.worker, attempts) as ended:
            outcomes = await self._outcomes(attempts)
            ended(outcomes)
        return outcomes

    async def _outcomes(self, attempts: Sequence[Attempt]) -> list[Outcome | None]:
        outcomes: dict[Attempt, Outcome | None] = {}
        items: dict[Attempt, Item[object]] = {}
        for attempt in attempts:
            if isinstance(arguments := self._arguments(attempt), dict):
                items[attempt] = Item(self._job(attempt), arguments["args"])
            else:
                outcomes[attempt] = arguments
        if items:
            outcomes |= await self._run_batch(items)
        return [outcomes[attempt] for attempt in attempts]

    async def _run_batch(self, items: Mapping[Attempt, Item[object]]) -> dict[Attempt, Outcome | None]:
        first, *_ = items
        fields = {"kind": first.claimed.kind, "worker": self.worker}
        if label := first.completer.label:
            fields["database"] = label
        if self.spans is not None:
            self._carry({}, fields)
        logs.context.set(fields)
        if first.kind.work.keep_logs is not None:
            kept = kept_from(first.kind.work.keep_logs)
            for attempt in items:
                attempt.kept = kept
        try:
            handler = partial(first.kind.handler, [*items.values()])
            results = _each_result(await self._called(first, items[first].job, handler), len(items), first.claimed.kind)
        except BaseException as exc:  # noqa: BLE001 - anything a handler raises is an outcome, also SystemExit
            results = [exc] * len(items)
        return {attempt: self._ended(attempt, result) for attempt, result in zip(items, results, strict=True)}

    def _ended(self, attempt: Attempt, result: object) -> Outcome | None:
        """Return the outcome of one job of a batch."""
        # The next job in a chain belongs to the trace of its own predecessor.
        carry_trace(trace_in(attempt.claimed.read_headers()))
        if isinstance(result, BaseException):
            return self.aborted(attempt) if attempt.signal.aborted else self._raised(attempt, result)
        return self._returned(attempt, result)

    def _arguments(self, attempt: Attempt) -> dict[str, Any] | Outcome | None:
        """Return the handler's arguments, or the outcome of a job that must not reach its handler."""
        claimed = attempt.claimed
        if attempt.signal.aborted:
            return self.aborted(attempt)
        if claimed.expired or claimed.cancelled or claimed.blocker_failed:
            return _called_off(attempt)
        try:
            return attempt.kind.arguments(claimed.payload or "{}", claimed.payload_version)
        except BaseException as exc:  # noqa: BLE001 - a validator of the application may raise anything
            return self._misfit(attempt, exc)

    def _carry(self, headers: Mapping[str, str], fields: dict[str, Any]) -> None:
        """Attach new jobs and log lines of this attempt to its span, or to the job's trace if there is none."""
        carry_trace(trace_in(headers))
        if (trace := current_trace()) is not None:
            fields["trace"] = id_of(trace)

    def _job(self, attempt: Attempt) -> Job[Any]:
        claimed = attempt.claimed
        return Job(
            id=claimed.id,
            kind=claimed.kind,
            state=self.state,
            attempt=claimed.attempt,
            token=claimed.token,
            chain_id=claimed.chain_id,
            headers=json.loads(claimed.headers) if claimed.headers else _NO_HEADERS,
            run=attempt,
        )

    def _called(self, attempt: Attempt, job: Job[Any], handler: partial[Any]) -> Awaitable[object]:
        """Call the handler in the loop, a thread or a process, inside the middlewares."""
        step: Callable[[], Awaitable[object]]
        step = handler if attempt.kind.is_async else partial(self._called_elsewhere, attempt, job, handler)
        for middleware in self._middlewares:
            step = partial(middleware, job, self.worker, step)
        return step()

    async def _called_elsewhere(self, attempt: Attempt, job: Job[Any], handler: partial[Any]) -> object:
        """Call a plain function in a thread or process. If it returns a coroutine, await that in the event loop."""
        result = await self._executors.run(attempt, job, handler)
        if not inspect.iscoroutine(result):
            return result
        together = attempt.group or (attempt,)
        if all(each.signal.aborted for each in together):
            result.close()
            attempt.signal.raise_if_aborted()
        for each in together:
            each.in_loop = True
        return await result

    def start_processes(self, jobs: int) -> None:
        """Start processes for these waiting jobs, unless there are enough."""
        self._executors.processes.start(jobs)

    async def ended(self, attempt: Attempt) -> None:
        """Return when no code of this attempt runs any more."""
        await self._executors.ended(attempt)

    def _returned(self, attempt: Attempt, result: object) -> Outcome | None:
        if attempt.completed:
            # If that transaction has committed, this outcome is not written, and the answer of the database shows it.
            return self._raised(attempt, NotCommitted())
        if attempt.signal.reason not in _NO_MATTER:
            return self.aborted(attempt)
        return _DONE if result is None else self._completed(attempt, result)

    def _completed(self, attempt: Attempt, result: object) -> Outcome:
        if isinstance(result, Signal):
            return self._raised(attempt, result)
        try:
            claimed, returns = attempt.claimed, attempt.kind.returns
            attempt.follower = follower(claimed.id, result)
            return completed(result, self._codec, claimed.kind, claimed.read_headers(), returns)
        except HoldfastError as exc:
            return Failed(Failure(type(exc).__name__, f"the result cannot be stored: {exc}"), exc)
        except BaseException as exc:  # noqa: BLE001 - a codec or a result may raise anything, and a retry may help
            return self._raised(attempt, exc)

    def _raised(self, attempt: Attempt, exc: BaseException) -> Outcome:
        if isinstance(exc, Busy):
            attempt.busy = exc
        return self._failure(attempt, exc)

    def _failure(self, attempt: Attempt, exc: BaseException) -> Outcome:
        claimed = attempt.claimed
        retry = replace(attempt.kind.work.retry or self._retry, max_attempts=claimed.max_attempts)
        try:
            return outcome_of(exc, attempt=attempt.number, retry=retry)
        except BaseException as odd:  # noqa: BLE001 - an exception of the application may raise when it is read
            error = RuntimeError(f"an error that cannot be read: looking at it raised {type(odd).__name__}")
            return outcome_of(error, attempt=attempt.number, retry=retry)

    def aborted(self, attempt: Attempt) -> Outcome | None:
        """Return the outcome of an attempt whose abort signal has fired. None: the claim is lost."""
        match attempt.signal.reason:
            case AbortReason.shutdown | AbortReason.error:
                return Released()
            case AbortReason.cancelled:
                return Cancelled(Failure("cancelled", "the job was cancelled while it ran"))
            case AbortReason.timeout:
                return self._failure(attempt, TimeoutError(attempt.overran or _too_long(attempt)))
        return None

    def _misfit(self, attempt: Attempt, exc: BaseException) -> Outcome:
        """Give the job back for a while: during a rolling deploy another worker may be able to read its payload."""
        failure = Failure.of(exc)
        if isinstance(exc, InvalidJob) and (attempt.claimed.young or self._may_fit_others(attempt)):
            return Released(MISFIT_PAUSE, failure)
        return Failed(failure, exc)

    def _may_fit_others(self, attempt: Attempt) -> bool:
        """Return whether this payload version is new here, or newer than this code and served by another worker."""
        if not (grace := self._grace):
            return False
        claimed, now = attempt.claimed, time.monotonic()
        first, last = self._unread.get((claimed.kind, claimed.payload_version), (now, now))
        if now - last > grace + 10 * MISFIT_PAUSE.total_seconds():
            # The last unreadable payload belonged to an earlier deploy: the period of grace starts again.
            first = now
        self._unread[claimed.kind, claimed.payload_version] = first, now
        if now - first < grace:
            return True
        if claimed.payload_version <= attempt.kind.version:
            return False
        served = attempt.completer.served(claimed.kind)
        return served is None or served >= claimed.payload_version


def _called_off(attempt: Attempt) -> Outcome:
    """Return the outcome of a job that must not start any more."""
    if attempt.claimed.expired:
        return Cancelled(Failure("expired", "the job expired before it started"))
    if attempt.claimed.cancelled:
        return Cancelled(Failure("cancelled", "the job was cancelled while it waited"))
    failed = [blocker for blocker in attempt.blockers if blocker.status not in {"completed", None}]
    named = ", ".join(f"chain {blocker.chain_id} {blocker.status}" for blocker in failed[:10])
    return Failed(Failure("blocker_failed", f"the job came after what did not complete: {named or 'a chain'}"))


def _each_result(results: object, count: int, kind: str) -> Sequence[object]:
    """Return what a batch handler returned for each of its jobs."""
    if results is None:
        return [None] * count
    if not isinstance(results, list | tuple) or len(results) != count:
        answer = len(results) if isinstance(results, list | tuple) else type(results).__name__
        raise HoldfastError(f"{kind}: a batch of {count} jobs ends with a list of {count}, or None; this was {answer}")
    return results


def _too_long(attempt: Attempt) -> str:
    # The lease of the queue may have changed since the handler started.
    limit = attempt.longest if attempt.deadline is None else attempt.deadline - attempt.started_at
    by_default = " (three leases, the default)" if attempt.kind.work.max_runtime is None else ""
    return f"the job ran longer than its max_runtime of {limit:.6g} s{by_default}"
