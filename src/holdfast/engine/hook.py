"""Failure hooks: what an application wants to be told of attempts that ended badly, and of dead letters."""

from __future__ import annotations

import asyncio
import inspect
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeAlias, cast

from holdfast import logs
from holdfast.engine.keeper import Keeper
from holdfast.engine.runner import in_thread
from holdfast.logs import Log
from holdfast.outcome import Failed, Retried
from holdfast.store.answer import Answer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType

    from holdfast.engine.keeper import Kept, Turn
    from holdfast.outcome import Outcome
    from holdfast.store.claim import ClaimedJob
    from holdfast.store.reap import ReapedJob

# So many calls of a hook may wait; while they do, further failures are not told to it.
MOST_WAITING = 10_000
MOST_AT_ONCE = 100
# An async hook that takes longer is given up.
CALL_SECONDS = 30.0
# At the stop, what waits may still be told for this long.
STOP_SECONDS = 5.0
# A call that is cancelled has this long to end.
ABORT_GRACE = 1.0
# Calls that never wait give way to the other loops this often.
TURN_SECONDS = 0.001

log = Log(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedAttempt:
    """An attempt that ended badly, once that is written down."""

    job_id: int
    kind: str
    attempt: int
    error_code: str
    error: str
    """Normalized and bounded, as it stands in the database."""
    worker: str
    """The id of the worker that wrote it down."""
    will_retry: bool
    """False: the job is a dead letter."""
    exception: BaseException | None = None
    """What the handler raised; None when nobody was there to raise anything, since the worker that ran it is gone."""


Hook: TypeAlias = Callable[[FailedAttempt], Awaitable[object] | object]


class Hooks:
    """Calls the hooks while its `async with` block runs, beside everything else: each has a lane of its own."""

    def __init__(
        self,
        worker: str,
        *,
        on_failure: Sequence[Hook],
        on_dead_letter: Sequence[Hook],
        keeper: Keeper | None = None,
    ) -> None:
        self._worker = worker
        self._keeper = keeper or Keeper(worker)
        self._failure = [_Lane(hook) for hook in on_failure]
        self._dead_letter = [_Lane(hook) for hook in on_dead_letter]
        self._lanes = self._failure + self._dead_letter

    def __bool__(self) -> bool:
        return bool(self._lanes)

    async def __aenter__(self) -> Self:
        for lane in self._lanes:
            lane.start(self._keeper)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(*(lane.stop(STOP_SECONDS) for lane in self._lanes))

    def failed(self, job: ClaimedJob, outcome: Outcome, *, will_retry: bool) -> None:
        """Tell of an attempt whose bad ending is written."""
        if not isinstance(outcome, Retried | Failed):
            return
        failed = FailedAttempt(
            job_id=job.id,
            kind=job.kind,
            attempt=job.attempt,
            error_code=outcome.failure.code,
            error=outcome.failure.text,
            worker=self._worker,
            will_retry=will_retry,
            exception=outcome.exception,
        )
        for lane in self._failure if will_retry else self._lanes:
            lane.add(failed)

    def reaped(self, jobs: Iterable[ReapedJob]) -> None:
        """Tell of the dead letters among these. Their attempts are lost, not failed: nobody knows how they ended."""
        if self._dead_letter:
            for job in jobs:
                if job.answer is Answer.failed:
                    self._bury(job)

    def _bury(self, job: ReapedJob) -> None:
        failed = FailedAttempt(
            job_id=job.id,
            kind=job.kind,
            attempt=job.attempt,
            error_code=job.error_code,
            error=job.error,
            worker=self._worker,
            will_retry=False,
        )
        for lane in self._dead_letter:
            lane.add(failed)


class _Lane:
    """The calls of one hook: one at a time, in the order of the endings. A slow one holds up nobody but itself."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self._name = getattr(hook, "__qualname__", type(hook).__qualname__)
        self._is_async = inspect.iscoroutinefunction(hook) or inspect.iscoroutinefunction(type(hook).__call__)
        self._waiting: deque[FailedAttempt] = deque()
        self._left_out = 0
        self._wake = asyncio.Event()
        self._stopping = False
        self._kept: Kept | None = None

    def add(self, failed: FailedAttempt) -> None:
        if len(self._waiting) < MOST_WAITING:
            self._waiting.append(failed)
            self._wake.set()
            return
        self._left_out += 1
        if self._left_out.bit_count() == 1:  # the first, the second, the fourth: a flood is not logged line by line
            log.error(
                "a hook does not keep up, and is not told all", extra={"hook": self._name, "calls": self._left_out}
            )

    def start(self, keeper: Keeper) -> None:
        self._kept = keeper.start("hook", self._run, detail=self._name)

    async def stop(self, seconds: float) -> None:
        """Tell what waits, for so long."""
        if self._kept is None:
            return
        self._stopping = True
        self._wake.set()
        if not await self._kept.wait(seconds):
            log.error(
                "a hook was not told all before the stop", extra={"hook": self._name, "calls": len(self._waiting)}
            )
            self._kept.cancel()
            await self._kept.wait(ABORT_GRACE)

    async def _run(self, turn: Turn) -> None:
        while self._waiting or not self._stopping:
            # An async hook is bounded; a plain one in its thread is not.
            turn(CALL_SECONDS if self._waiting and self._is_async else math.inf)
            self._wake.clear()
            if self._waiting and self._is_async:
                await self._call_some()
            elif self._waiting:
                some = [self._waiting.popleft() for _ in range(min(MOST_AT_ONCE, len(self._waiting)))]
                await in_thread(lambda some=some: self._call_all(some), name=self._name)  # type: ignore[misc]
            elif not self._stopping:
                await self._wake.wait()

    async def _call_some(self) -> None:
        until = time.monotonic() + TURN_SECONDS
        while self._waiting and time.monotonic() < until:
            await self._call(self._waiting.popleft())
        await asyncio.sleep(0)

    async def _call(self, failed: FailedAttempt) -> None:
        with self._bound(failed):
            try:
                async with asyncio.timeout(CALL_SECONDS):
                    await cast("Awaitable[object]", self._hook(failed))
            except asyncio.CancelledError:
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise
                log.exception("a hook failed", extra={"hook": self._name})
            except BaseException:
                # Whatever a hook raises harms nobody, SystemExit neither.
                log.exception("a hook failed", extra={"hook": self._name})

    def _call_all(self, some: Iterable[FailedAttempt]) -> None:
        for failed in some:
            with self._bound(failed):
                try:
                    self._hook(failed)
                except BaseException:
                    log.exception("a hook failed", extra={"hook": self._name})

    def _bound(self, failed: FailedAttempt) -> logs.bound:
        """Let the lines of a hook say which job they belong to."""
        return logs.bound(job=failed.job_id, kind=failed.kind, worker=failed.worker)
