"""One attempt: a claimed job, its handler, and what came of it. No SQL in here."""

from __future__ import annotations

import inspect
import json
import time
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
    from concurrent.futures import Future

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
        "calls",
        "claimed",
        "completed",
        "deadline",
        "desk",
        "group",
        "held",
        "held_since",
        "in_loop",
        "kind",
        "lease",
        "over",
        "overran",
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
        self.held_since = 0
        """The round of the dispatcher's looks at what waits in which it began to."""
        self.deadline: float | None = None
        """When its handler will have run too long, by the monotonic clock; None when that does not run."""
        self.busy: Busy | None = None
        """What the handler said of what it calls, when it sent the job back for that."""
        self.group: Sequence[Attempt] | None = None
        """All that one call of a batch's handler runs."""
        self.in_loop = kind.is_async
        """Its handler is a coroutine, which can be cancelled."""
        self.calls: list[Future[Any]] | None = None
        """What was handed to threads; None: nothing."""
        self.over = False
        """How it ended is known: nothing of it may start any more."""
        self.overran = ""
        """Which limit its handler ran out of, if not `max_runtime`: the text of the error."""
        self.completed = False
        """Its handler completed it in a transaction of its own, which may or may not have committed."""

    @property
    def started(self) -> bool:
        return self.task is not None

    @property
    def longest(self) -> float:
        """For how many seconds its handler may run."""
        return self.kind.work.longest(self.lease)

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
        if self.task is not None and self.begun and self.in_loop and alone:
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
        grace: Callable[[], float] = lambda: 0.0,
        spans: Spans | None = None,
    ) -> None:
        """Take `retry`: for kinds that name none; `new()`: whether this process has started only just now.

        `grace()`: for how many seconds payloads of a version that cannot be read are given back.
        """
        self.state: Any = None
        self.spans = spans
        self._codec = codec
        self._executors = executors
        self._middlewares = tuple(reversed(middlewares))
        self.worker = worker
        self._retry = retry
        self._new = new
        self._grace = grace
        self._unread: dict[tuple[str, int], tuple[float, float]] = {}
        """When payloads of a kind and version could first not be read, and last."""

    async def outcome(self, attempt: Attempt) -> Outcome | None:  # noqa: PLR0911 - one line per way to end
        """Run the handler and say how it ended; None when the claim is lost and nothing may be written."""
        if attempt.signal.aborted:
            return self.aborted(attempt)
        claimed, kind, signal = attempt.claimed, attempt.kind, attempt.signal
        if claimed.expired or claimed.cancelled or claimed.blocker_failed:
            return self.called_off(attempt)
        try:
            arguments = kind.arguments(claimed.payload or "{}", claimed.payload_version)
        except BaseException as exc:  # noqa: BLE001 - a validator of the application's may raise anything
            return self.misfit(attempt, exc)
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
        step = handler if attempt.kind.is_async else partial(self._called_elsewhere, attempt, job, handler)
        for middleware in self._middlewares:
            step = partial(middleware, job, self.worker, step)
        return step()

    async def _called_elsewhere(self, attempt: Attempt, job: Job[Any], handler: partial[Any]) -> object:
        """Call a plain function in its thread or process; if it returns a coroutine, that is awaited in the loop."""
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

    async def ended(self, attempt: Attempt) -> None:
        """Return when nothing of this attempt runs any more."""
        await self._executors.ended(attempt)

    def returned(self, attempt: Attempt, result: object) -> Outcome:
        if isinstance(result, Fail | Reschedule | Busy):
            return self.raised(attempt, result)
        try:
            claimed, returns = attempt.claimed, attempt.kind.returns
            return completed(result, self._codec, claimed.kind, claimed.read_headers(), returns)
        except HoldfastError as exc:
            return Failed(Failure(type(exc).__name__, f"the result cannot be stored: {exc}"), exc)
        except BaseException as exc:  # noqa: BLE001 - a codec or a result may raise anything, and recover
            return self.raised(attempt, exc)

    def raised(self, attempt: Attempt, exc: BaseException) -> Outcome:
        if isinstance(exc, Busy):
            attempt.busy = exc
        return self._failure(attempt, exc)

    def _failure(self, attempt: Attempt, exc: BaseException) -> Outcome:
        claimed, retry = attempt.claimed, attempt.kind.work.retry or self._retry
        try:
            return outcome_of(exc, attempt=claimed.attempt, retry=retry, most=claimed.max_attempts)
        except BaseException as odd:  # noqa: BLE001 - an error of the application's may do anything when it is looked at
            error = RuntimeError(f"an error that cannot be read: looking at it raised {type(odd).__name__}")
            return outcome_of(error, attempt=claimed.attempt, retry=retry, most=claimed.max_attempts)

    def aborted(self, attempt: Attempt) -> Outcome | None:
        match attempt.signal.reason:
            case AbortReason.shutdown | AbortReason.error:
                return Released()
            case AbortReason.cancelled:
                return Cancelled(Failure("cancelled", "the job was cancelled while it ran"))
            case AbortReason.timeout:
                return self._failure(attempt, TimeoutError(attempt.overran or _too_long(attempt)))
        return None

    def misfit(self, attempt: Attempt, exc: BaseException) -> Outcome:
        """In a rolling deploy somebody else may understand the payload: give it back, for a while."""
        failure = Failure.of(exc)
        if isinstance(exc, InvalidJob) and (attempt.claimed.young or self._new() or self._may_fit_others(attempt)):
            return Released(MISFIT_PAUSE, failure)
        return Failed(failure, exc)

    def _may_fit_others(self, attempt: Attempt) -> bool:
        """Whether payloads of this version are new here, or newer than this code and served by another worker."""
        if not (grace := self._grace()):
            return False
        claimed, now = attempt.claimed, time.monotonic()
        first, last = self._unread.get((claimed.kind, claimed.payload_version), (now, now))
        if now - last > grace + 10 * MISFIT_PAUSE.total_seconds():
            # That was another deploy: they have not been there for long.
            first = now
        self._unread[claimed.kind, claimed.payload_version] = first, now
        if now - first < grace:
            return True
        if claimed.payload_version <= attempt.kind.version:
            return False
        served = attempt.desk.served(claimed.kind)
        return served is None or served >= claimed.payload_version


def _too_long(attempt: Attempt) -> str:
    # The lease of its queue may have changed since it began.
    limit = attempt.longest if attempt.deadline is None else attempt.deadline - attempt.began
    by_default = " (three leases, the default)" if attempt.kind.work.max_runtime is None else ""
    return f"the job ran longer than its max_runtime of {limit:.6g} s{by_default}"
