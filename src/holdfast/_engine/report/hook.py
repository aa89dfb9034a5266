"""Failure hooks: functions of the application that are called for failed attempts and for dead letters."""

from __future__ import annotations

import asyncio
import inspect
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeAlias, cast

from holdfast._engine.keeper import in_thread
from holdfast._engine.report.transition import FAILURES, Observer
from holdfast._logs import log as logs
from holdfast._logs.log import Log
from holdfast._model.outcome import Failed, Retried
from holdfast._store.lease import ClaimAnswer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast._engine.keeper import Keeper, Kept, Turn
    from holdfast._engine.report.transition import EndedBatch
    from holdfast._store.lease import ReapedJob

# This many calls of a hook may wait. While they do, further failures are dropped for that hook.
MOST_WAITING = 10_000
MOST_AT_ONCE = 100
# An async hook is cancelled after this many seconds.
CALL_SECONDS = 30.0
# At the stop, waiting calls may continue for this many seconds.
STOP_SECONDS = 5.0
# A cancelled call has this many seconds to end.
ABORT_GRACE = 1.0
# Calls that never wait yield to the other loops after this many seconds.
TURN_SECONDS = 0.001

log = Log(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedAttempt:
    """A failed attempt whose outcome is written."""

    job_id: int
    kind: str
    attempt: int
    error_code: str
    error: str
    """Normalized and bounded, as stored in the database."""
    worker: str
    """The id of the worker that wrote the outcome."""
    will_retry: bool
    """False: the job is a dead letter."""
    exception: BaseException | None = None
    """The exception of the handler; None if the worker that ran it is gone."""
    database: str = ""
    """The name of the database, if the worker serves several and has run the job itself."""


Hook: TypeAlias = Callable[[FailedAttempt], Awaitable[object] | object]


class Hooks(Observer):
    """Calls the hooks while its `async with` block runs. Each hook has its own queue and loop."""

    def __init__(self, keeper: Keeper, *, on_failure: Sequence[Hook], on_dead_letter: Sequence[Hook]) -> None:
        self._keeper = keeper
        self._failure = [_Lane(hook) for hook in on_failure]
        self._dead_letter = [_Lane(hook) for hook in on_dead_letter]
        self._lanes = self._failure + self._dead_letter

    def __bool__(self) -> bool:
        return bool(self._lanes)

    async def __aenter__(self) -> Self:
        for lane in self._lanes:
            lane.start(self._keeper)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(lane.stop(STOP_SECONDS) for lane in self._lanes))

    def ended(self, worker: str, batch: EndedBatch) -> None:
        """Call the hooks for failed attempts."""
        for name, attempt, outcome in zip(*batch, strict=True) if self._lanes else ():
            if name in FAILURES and isinstance(outcome, Retried | Failed):
                job, will_retry = attempt.claimed, name == "job_retried"
                failed = FailedAttempt(
                    job_id=job.id,
                    kind=job.kind,
                    attempt=job.attempt,
                    error_code=outcome.failure.code,
                    error=outcome.failure.text,
                    worker=worker,
                    will_retry=will_retry,
                    exception=outcome.exception,
                    database=attempt.completer.label,
                )
                for lane in self._failure if will_retry else self._lanes:
                    lane.add(failed)

    def reaped(self, worker: str, jobs: Sequence[ReapedJob]) -> None:
        """Call the hooks for the dead letters among these. Their attempts are lost, not failed: the end is unknown."""
        for job in jobs if self._dead_letter else ():
            if job.answer is ClaimAnswer.failed:
                failed = FailedAttempt(
                    job_id=job.id,
                    kind=job.kind,
                    attempt=job.attempt,
                    error_code=job.error_code,
                    error=job.error,
                    worker=worker,
                    will_retry=False,
                )
                for lane in self._dead_letter:
                    lane.add(failed)


class _Lane:
    """The calls of one hook, one at a time, in the order of the outcomes. A slow hook delays only itself."""

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
                "a hook is too slow, and calls of it are left out", extra={"hook": self._name, "calls": self._left_out}
            )

    def start(self, keeper: Keeper) -> None:
        self._kept = keeper.start("hook", self._run, detail=self._name)

    async def stop(self, seconds: float) -> None:
        """Continue with waiting calls for at most `seconds`, then stop."""
        if self._kept is None:
            return
        self._stopping = True
        self._wake.set()
        if not await self._kept.wait(seconds):
            log.error(
                "a hook could not be called for everything before the stop",
                extra={"hook": self._name, "calls": len(self._waiting)},
            )
            self._kept.cancel()
            await self._kept.wait(ABORT_GRACE)

    async def _run(self, turn: Turn) -> None:
        while self._waiting or not self._stopping:
            # An async hook has a time limit; a plain one in its thread has none.
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
                # No exception of a hook may do harm, not even SystemExit.
                log.exception("a hook failed", extra={"hook": self._name})

    def _call_all(self, some: Iterable[FailedAttempt]) -> None:
        for failed in some:
            with self._bound(failed):
                try:
                    self._hook(failed)
                except BaseException:
                    log.exception("a hook failed", extra={"hook": self._name})

    def _bound(self, failed: FailedAttempt) -> logs.bound:
        """Add the job to the log lines of a hook."""
        return logs.bound(job=failed.job_id, kind=failed.kind, worker=failed.worker)
