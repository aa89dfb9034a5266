"""One attempt: a claimed job, its handler, and what came of it. No SQL in here."""

from __future__ import annotations

import json
from datetime import timedelta
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from holdfast import logs
from holdfast.abort import AbortReason
from holdfast.engine.completion import completed
from holdfast.errors import HoldfastError, InvalidJob, NotCommitted
from holdfast.failure import Failure
from holdfast.job import Job
from holdfast.outcome import (
    Busy,
    Cancelled,
    Completed,
    Fail,
    Failed,
    Outcome,
    Released,
    Reschedule,
    outcome_of,
)
from holdfast.signal import AbortSignal
from holdfast.store.lease import Held
from holdfast.trace import carry_trace, current_trace, id_of, trace_in

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from holdfast.codec import JsonCodec
    from holdfast.connection import AsyncConnection, SyncConnection
    from holdfast.engine.desk import Desk
    from holdfast.engine.executor import Executors
    from holdfast.engine.observer import Spans
    from holdfast.job import Blocker, Progress
    from holdfast.kind import Kind
    from holdfast.lease import Lease
    from holdfast.retry import Retry
    from holdfast.store.claim import ClaimedJob

    Middleware: TypeAlias = Callable[[Job[Any], str, Callable[[], Awaitable[object]]], Awaitable[object]]

# How long a job rests whose payload this process does not understand.
MISFIT_PAUSE = timedelta(seconds=15)
# A handler that comes to its end all the same has done its work.
_NO_MATTER = frozenset({None, AbortReason.shutdown})
_DONE = Completed()
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Attempt:
    """A claim of ours, from the moment it is taken until its ending is written."""

    __slots__ = (
        "began",
        "begun",
        "blockers",
        "busy",
        "claimed",
        "completed",
        "deadline",
        "desk",
        "group",
        "held",
        "kind",
        "lease",
        "seconds",
        "signal",
        "task",
    )

    def __init__(
        self, claimed: ClaimedJob, kind: Kind[..., Any], lease: Lease, desk: Desk, blockers: Sequence[Blocker] = ()
    ) -> None:
        self.claimed = claimed
        self.desk = desk
        self.blockers = tuple(blockers)
        self.held = Held(claimed.id, claimed.token)
        self.kind = kind
        self.lease = lease
        self.signal = AbortSignal()
        self.task: asyncio.Task[None] | None = None
        """Set while the handler runs."""
        self.begun = False
        """A task that is cancelled before its first step never takes it, and nobody would learn how it ended."""
        self.began = 0.0
        """When its handler was called, by the monotonic clock; 0: it was not."""
        self.seconds: float | None = None
        """How long the handler took, where somebody wants to know."""
        self.deadline: float | None = None
        """When it will have run too long, by the monotonic clock."""
        self.busy: Busy | None = None
        """What the handler said of what it calls, when it sent the job back for that."""
        self.group: Sequence[Attempt] | None = None
        """All that one call of a batch's handler runs."""
        self.completed = False
        """Its handler completed it in a transaction of its own, which may or may not have committed."""

    @property
    def started(self) -> bool:
        return self.task is not None

    def abort(self, reason: AbortReason) -> None:
        """Tell the handler to stop. An async one is cancelled; a thread must look at the signal."""
        if self.signal.abort(reason):
            self.cancel()

    async def complete(self, conn: AsyncConnection, result: object) -> None:
        await self.desk.complete(self, conn, result)

    def complete_sync(self, conn: SyncConnection, result: object) -> None:
        self.desk.complete_sync(self, conn, result)

    def report(self, progress: Progress) -> None:
        self.desk.report(self, progress)

    def cancel(self) -> None:
        """Cancel an async handler when the signals of all it runs have fired. Only in the loop's own thread."""
        alone = self.group is None or all(attempt.signal.aborted for attempt in self.group)
        if self.task is not None and self.begun and self.kind.is_async and alone:
            self.task.cancel()


class Handlers:
    """Runs handlers, with the application's middlewares around them."""

    def __init__(  # noqa: PLR0913 - what running a handler depends on
        self,
        *,
        codec: JsonCodec,
        executors: Executors,
        middlewares: Sequence[Middleware],
        worker: str,
        retry: Retry,
        new: Callable[[], bool],
        spans: Spans | None = None,
    ) -> None:
        """Take `retry`: for kinds that name none; `new()`: whether this process has started only just now."""
        self.state: Any = None
        self.spans = spans
        self._codec = codec
        self._executors = executors
        self._middlewares = tuple(reversed(middlewares))
        self.worker = worker
        self._retry = retry
        self._new = new

    async def outcome(self, attempt: Attempt) -> Outcome | None:  # noqa: PLR0911 - one line per way to end
        """Run the handler and say how it ended; None when the claim is lost and nothing may be written."""
        if attempt.signal.aborted:
            return self.aborted(attempt)
        claimed, kind, signal = attempt.claimed, attempt.kind, attempt.signal
        if claimed.expired or claimed.cancelled or claimed.blocker_failed:
            return self.called_off(attempt)
        try:
            arguments = kind.arguments(claimed.payload or "{}", claimed.payload_version)
        except Exception as exc:  # noqa: BLE001 - a validator of the application's may raise anything
            return self.misfit(claimed, exc)
        job = self.job(attempt)
        fields = {"job": job.id, "kind": job.kind, "chain": job.chain_id, "worker": self.worker}
        if job.headers or self.spans is not None:
            self.carry(job.headers, fields)
        logs.context.set(fields)
        try:
            if kind.is_async and not self._middlewares:
                result = await kind.handler(job, **arguments)
            else:
                result = await self.called(attempt, job, partial(kind.handler, job, **arguments))
        except BaseException as exc:  # noqa: BLE001 - whatever a handler raises is an outcome, SystemExit too
            return self.aborted(attempt) if signal.aborted else self.raised(attempt, exc)
        if attempt.completed:
            # If that is committed, nothing of this lands, and the answer says so.
            return self.raised(attempt, NotCommitted())
        if signal.reason not in _NO_MATTER:
            return self.aborted(attempt)
        return _DONE if result is None else self.returned(attempt, result)

    async def traced_outcome(self, attempt: Attempt) -> Outcome | None:
        """Do as `outcome` does, in a span."""
        assert self.spans is not None  # noqa: S101 - who has none calls `outcome`
        with self.spans.attempts(self.worker, [attempt]) as ended:
            outcome = await self.outcome(attempt)
            ended([outcome])
        return outcome

    def carry(self, headers: Mapping[str, str], fields: dict[str, Any]) -> None:
        """Let what this attempt makes, and its lines, belong to its span; without one, to the job's trace."""
        carry_trace(trace_in(headers))
        if (trace := current_trace()) is not None:
            fields["trace"] = id_of(trace)

    def called_off(self, attempt: Attempt) -> Outcome:
        """Say how a job ends that was not to start any more."""
        if attempt.claimed.expired:
            return Cancelled(Failure("expired", "the job expired before it started"))
        if attempt.claimed.cancelled:
            return Cancelled(Failure("cancelled", "the job was cancelled while it waited"))
        failed = [blocker for blocker in attempt.blockers if blocker.status not in {"completed", None}]
        named = ", ".join(f"chain {blocker.chain_id} {blocker.status}" for blocker in failed[:10])
        return Failed(Failure("blocker_failed", f"the job came after what did not complete: {named or 'a chain'}"))

    def job(self, attempt: Attempt) -> Job[Any]:
        claimed = attempt.claimed
        return Job(
            id=claimed.id,
            kind=claimed.kind,
            state=self.state,
            attempt=claimed.attempt,
            token=claimed.token,
            chain_id=claimed.chain_id,
            headers=json.loads(claimed.headers) if claimed.headers else _NO_HEADERS,
            signal=attempt.signal,
            run=attempt,
        )

    def called(self, attempt: Attempt, job: Job[Any], handler: partial[Any]) -> Awaitable[object]:
        """Call the handler where it runs, with the middlewares around it."""
        step: Callable[[], Awaitable[object]]
        step = handler if attempt.kind.is_async else partial(self._executors.run, attempt, job, handler)
        for middleware in self._middlewares:
            step = partial(middleware, job, self.worker, step)
        return step()

    def returned(self, attempt: Attempt, result: object) -> Outcome:
        if isinstance(result, Fail | Reschedule | Busy):
            return self.raised(attempt, result)
        try:
            return completed(result, self._codec, attempt.claimed.kind, attempt.claimed.read_headers())
        except HoldfastError as exc:
            return Failed(Failure(type(exc).__name__, f"the result cannot be stored: {exc}"), exc)
        except Exception as exc:  # noqa: BLE001 - a codec of the application's may raise anything, and recover
            return self.raised(attempt, exc)

    def raised(self, attempt: Attempt, exc: BaseException) -> Outcome:
        if isinstance(exc, Busy):
            attempt.busy = exc
        return self._failure(attempt, exc)

    def _failure(self, attempt: Attempt, exc: BaseException) -> Outcome:
        claimed, retry = attempt.claimed, attempt.kind.work.retry or self._retry
        return outcome_of(exc, attempt=claimed.attempt, retry=retry, most=claimed.max_attempts)

    def aborted(self, attempt: Attempt) -> Outcome | None:
        match attempt.signal.reason:
            case AbortReason.shutdown | AbortReason.error:
                return Released()
            case AbortReason.cancelled:
                return Cancelled(Failure("cancelled", "the job was cancelled while it ran"))
            case AbortReason.timeout:
                return self._failure(attempt, TimeoutError("the job ran longer than its max_runtime"))
        return None

    def misfit(self, claimed: ClaimedJob, exc: Exception) -> Outcome:
        """In a rolling deploy somebody else may understand the payload: give it back, for a while."""
        failure = Failure.of(exc)
        if isinstance(exc, InvalidJob) and (claimed.young or self._new()):
            return Released(MISFIT_PAUSE, failure)
        return Failed(failure, exc)
