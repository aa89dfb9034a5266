"""One attempt: a claimed job, its handler, and what came of it. No SQL in here."""

from __future__ import annotations

import json
from datetime import timedelta
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from holdfast import logs
from holdfast.abort import AbortReason
from holdfast.errors import HoldfastError, InvalidJob
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

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from holdfast.codec import JsonCodec
    from holdfast.engine.executor import Executors
    from holdfast.kind import Kind
    from holdfast.lease import Lease
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

    __slots__ = ("begun", "busy", "claimed", "deadline", "held", "kind", "lease", "signal", "task")

    def __init__(self, claimed: ClaimedJob, kind: Kind[..., Any], lease: Lease) -> None:
        self.claimed = claimed
        self.held = Held(claimed.id, claimed.token)
        self.kind = kind
        self.lease = lease
        self.signal = AbortSignal()
        self.task: asyncio.Task[None] | None = None
        """Set while the handler runs."""
        self.begun = False
        """A task that is cancelled before its first step never takes it, and nobody would learn how it ended."""
        self.deadline: float | None = None
        """When it will have run too long, by the monotonic clock."""
        self.busy: Busy | None = None
        """What the handler said of what it calls, when it sent the job back for that."""

    @property
    def started(self) -> bool:
        return self.task is not None

    def abort(self, reason: AbortReason) -> None:
        """Tell the handler to stop. An async one is cancelled; a thread must look at the signal."""
        if self.signal.abort(reason):
            self.cancel()

    def cancel(self) -> None:
        """Cancel an async handler whose signal has fired. Only in the loop's own thread."""
        if self.task is not None and self.begun and self.kind.is_async:
            self.task.cancel()


class Handlers:
    """Runs handlers, with the application's middlewares around them."""

    def __init__(
        self,
        *,
        codec: JsonCodec,
        executors: Executors,
        middlewares: Sequence[Middleware],
        worker: str,
        new: Callable[[], bool],
    ) -> None:
        """Take `new()`: whether this process has started only just now, as in a rolling deploy."""
        self.state: Any = None
        self._codec = codec
        self._executors = executors
        self._middlewares = tuple(reversed(middlewares))
        self._worker = worker
        self._new = new

    async def outcome(self, attempt: Attempt) -> Outcome | None:  # noqa: PLR0911 - one line per way to end
        """Run the handler and say how it ended; None when the claim is lost and nothing may be written."""
        if attempt.signal.aborted:
            return self._aborted(attempt)
        claimed, kind, signal = attempt.claimed, attempt.kind, attempt.signal
        if claimed.expired:
            return Cancelled(Failure("expired", "the job expired before it started"))
        if claimed.cancelled:
            return Cancelled(Failure("cancelled", "the job was cancelled while it waited"))
        try:
            arguments = kind.arguments(claimed.payload or "{}", claimed.payload_version)
        except Exception as exc:  # noqa: BLE001 - a validator of the application's may raise anything
            return self._misfit(claimed, exc)
        job = self._job(attempt)
        logs.context.set({"job": job.id, "kind": job.kind, "chain": job.chain_id, "worker": self._worker})
        try:
            if kind.is_async and not self._middlewares:
                result = await kind.handler(job, **arguments)
            else:
                result = await self._wrapped(attempt, job, arguments)
        except BaseException as exc:  # noqa: BLE001 - whatever a handler raises is an outcome, SystemExit too
            return self._aborted(attempt) if signal.aborted else self._raised(attempt, exc)
        if signal.reason not in _NO_MATTER:
            return self._aborted(attempt)
        return _DONE if result is None else self._returned(attempt, result)

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
            signal=attempt.signal,
        )

    def _wrapped(self, attempt: Attempt, job: Job[Any], arguments: Mapping[str, object]) -> Awaitable[object]:
        run = attempt.kind.handler if attempt.kind.is_async else partial(self._executors.run, attempt)
        step: Callable[[], Awaitable[object]] = partial(run, job, **arguments)
        for middleware in self._middlewares:
            step = partial(middleware, job, self._worker, step)
        return step()

    def _returned(self, attempt: Attempt, result: object) -> Outcome:
        if isinstance(result, Fail | Reschedule | Busy):
            return self._raised(attempt, result)
        try:
            return Completed(self._codec.encode(result, kind=attempt.claimed.kind))
        except HoldfastError as exc:
            return Failed(Failure(type(exc).__name__, f"the result cannot be stored: {exc}"), exc)

    def _raised(self, attempt: Attempt, exc: BaseException) -> Outcome:
        if isinstance(exc, Busy):
            attempt.busy = exc
        return self._failure(attempt, exc)

    def _failure(self, attempt: Attempt, exc: BaseException) -> Outcome:
        claimed = attempt.claimed
        return outcome_of(exc, attempt=claimed.attempt, retry=attempt.kind.work.retry, most=claimed.max_attempts)

    def _aborted(self, attempt: Attempt) -> Outcome | None:
        match attempt.signal.reason:
            case AbortReason.shutdown | AbortReason.error:
                return Released()
            case AbortReason.cancelled:
                return Cancelled(Failure("cancelled", "the job was cancelled while it ran"))
            case AbortReason.timeout:
                return self._failure(attempt, TimeoutError("the job ran longer than its max_runtime"))
        return None

    def _misfit(self, claimed: ClaimedJob, exc: Exception) -> Outcome:
        """In a rolling deploy somebody else may understand the payload: give it back, for a while."""
        failure = Failure.of(exc)
        if isinstance(exc, InvalidJob) and (claimed.young or self._new()):
            return Released(MISFIT_PAUSE, failure)
        return Failed(failure, exc)
