"""One tick of one runner: one at a time, only when it is due, only with its lock, within its time, and recorded."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import psycopg

from holdfast.abort import AbortReason
from holdfast.engine.link import LOST, pause
from holdfast.engine.runner import USABLE, Budget, Tick
from holdfast.engine.singleton import singleton
from holdfast.failure import Failure
from holdfast.logs import Log
from holdfast.store.run import Begun, begin_run, counts_json, record_run
from holdfast.store.schedule import Slot, end_slot, take_singleton

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.engine.runner import Counts, Runner
    from holdfast.engine.site import Site
    from holdfast.engine.timetable import Timetable
    from holdfast.engine.transition import Transitions
    from holdfast.settings import Settings
    from holdfast.store.run import RunOutcome
    from holdfast.store.statement import Statement

log = Log(__name__)

Outcome: TypeAlias = Literal["completed", "failed", "cancelled", "lost", "skipped"]
Skipped: TypeAlias = Literal["already running", "not due", "lock held elsewhere", "no time left"]

# How long a runner that was told to stop may take to do so.
ABORT_GRACE = 1.0
# How often an ending is tried to be written before the slot is left to its lease.
WRITES = 5


class Limits(NamedTuple):
    items: int | None
    seconds: float
    """The budget of the tick."""
    longest: float | None = None
    """After so many seconds it is stopped. Default: at the end of its budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """How a tick ended."""

    runner: str
    outcome: Outcome
    counts: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    failure: Failure | None = None
    why: Skipped | None = None
    """Why it was skipped."""
    database: str = ""
    next_look: float | None = None
    """In how many seconds it is worth while to look again, if that is known."""

    @property
    def busy(self) -> bool:
        """It did something."""
        return any(self.counts.values())


class Ticker:
    """Runs ticks against one database."""

    def __init__(
        self, site: Site, timetable: Timetable, *, settings: Settings, state: Any, transitions: Transitions
    ) -> None:
        self.site = site
        self._timetable = timetable
        self._settings = settings
        self._state = state
        self._transitions = transitions
        self._calls: set[_Call] = set()

    async def tick(self, runner: Runner, limits: Limits) -> Ticked:
        """Run one tick. What the runner raises is an outcome; what is raised here is the database's absence."""
        if runner.running:
            log.warning("runner_already_running", extra={"runner": runner.name})
            self._transitions.tell("runner_already_running", runner=runner.name)
            return self._skipped(runner, "already running")
        if not self.site.worker:
            raise psycopg.OperationalError("the database has not answered yet")
        runner.running = True
        call: _Call | None = None
        try:
            if runner.every is not None:
                slot = await self._timetable.take(runner.name)
                if not isinstance(slot, Slot):
                    return self._skipped(runner, "not due", slot)
                call = self._call(runner, limits, Begun(slot.run_id, slot.started_at), slot)
            elif runner.singleton and not await self.site.link.run(take_singleton(runner.name)):
                return self._skipped(runner, "lock held elsewhere")
            else:
                call = self._call(runner, limits, await self.site.link.run(begin_run()), None)
            return await self._run(call)
        finally:
            # A function that goes on although it was told to stop keeps the runner from being started again.
            if call is None or call.task is None or call.task.done():
                runner.running = False
            else:
                call.task.add_done_callback(lambda _: setattr(runner, "running", False))

    def abort(self, reason: AbortReason) -> None:
        """Tell every tick under way to stop."""
        for call in list(self._calls):
            call.abort(reason)

    def _call(self, runner: Runner, limits: Limits, begun: Begun, slot: Slot | None) -> _Call:
        budget = Budget(items=limits.items, seconds=limits.seconds * USABLE)
        tick = Tick(
            name=runner.name,
            state=self._state,
            budget=budget,
            settings=self._settings,
            run_id=begun.id,
            slot=slot and slot.at,
            attempt=slot.attempt if slot else 1,
        )
        return _Call(runner, tick, begun, slot, limits.seconds if limits.longest is None else limits.longest)

    async def _run(self, call: _Call) -> Ticked:
        since = time.monotonic()
        async with AsyncExitStack() as stack:
            if call.runner.singleton and not await self._locked(call, stack):
                await self._give_back(call)
                return self._skipped(call.runner, "lock held elsewhere")
            if call.slot is not None:
                hold = asyncio.create_task(self._timetable.hold(call.runner.name, call.slot, call.abort))
                stack.push_async_callback(_cancelled, hold)
            self._calls.add(call)
            try:
                ended = await call.run()
            finally:
                self._calls.discard(call)
        ticked = Ticked(
            runner=call.runner.name,
            outcome=ended.outcome,
            counts=ended.counts,
            seconds=time.monotonic() - since,
            failure=ended.failure,
            database=self.site.name,
            # When the next slot is, the next look will tell.
            next_look=call.tick.next_look if call.slot is None else 0.0,
        )
        if not await self._write(call, ended):
            log.warning("the slot was lost", extra={"runner": call.runner.name})
            lost = Ticked(runner=call.runner.name, outcome="lost", seconds=ticked.seconds, database=self.site.name)
            self._transitions.ticked(lost)
            return lost
        self._transitions.ticked(ticked)
        if call.stopped:
            raise asyncio.CancelledError
        return ticked

    async def _locked(self, call: _Call, stack: AsyncExitStack) -> bool:
        seconds = self._settings.lease.total_seconds() / 3
        lock = singleton(self.site.url, call.runner.name, lambda: call.abort(AbortReason.error), seconds=seconds)
        try:
            return await stack.enter_async_context(lock)
        except (*LOST, TimeoutError):
            await self._give_back(call)
            raise

    async def _give_back(self, call: _Call) -> None:
        if call.slot is not None:
            await self._persist(end_slot(call.runner.name, call.slot, worker=self.site.worker, again=True))

    async def _write(self, call: _Call, ended: _Ended) -> bool:
        """Record the run if there is something to tell, and end its slot; False when the slot was lost."""
        told: RunOutcome | None = ended.outcome if ended.outcome != "completed" or any(ended.counts.values()) else None
        if call.slot is not None:
            statement = end_slot(
                call.runner.name,
                call.slot,
                worker=self.site.worker,
                outcome=told,
                counts=counts_json(ended.counts),
                failure=ended.failure,
                again=ended.again,
            )
            return bool(await self._persist(statement))
        if told is not None:
            run = record_run(
                call.begun,
                call.runner.name,
                told,
                worker=self.site.worker,
                counts=ended.counts,
                failure=ended.failure,
            )
            await self._persist(run)
        return True

    async def _persist(self, statement: Statement[Any]) -> Any:
        for failures in range(WRITES - 1):
            with suppress(*LOST, TimeoutError):
                return await self.site.link.run(statement)
            await asyncio.sleep(pause(failures))
        return await self.site.link.run(statement)

    def _skipped(self, runner: Runner, why: Skipped, next_look: float | None = None) -> Ticked:
        return Ticked(runner=runner.name, outcome="skipped", why=why, next_look=next_look, database=self.site.name)


class _Ended(NamedTuple):
    outcome: RunOutcome
    counts: Counts
    failure: Failure | None = None
    again: bool = False
    """It did not end by itself: its slot is given back."""


class _Call:
    """The call of a runner's function, which may be told to stop."""

    def __init__(self, runner: Runner, tick: Tick, begun: Begun, slot: Slot | None, seconds: float) -> None:
        self.runner = runner
        self.tick = tick
        self.begun = begun
        self.slot = slot
        self.task: asyncio.Task[Counts | BaseException] | None = None
        self.stopped = False
        """Who waited for it was cancelled."""
        self._seconds = seconds

    def abort(self, reason: AbortReason) -> None:
        """Tell the function to stop. An async one is cancelled; a thread must look at the signal."""
        if self.tick.signal.abort(reason) and self.task is not None and self.runner.is_async:
            self.task.cancel()

    async def run(self) -> _Ended:
        self.task = asyncio.create_task(self._called(), name=f"holdfast-runner-{self.runner.name}")
        if self.tick.signal.aborted:
            self.task.cancel()
        told = asyncio.create_task(self.tick.signal.wait())
        try:
            await asyncio.wait({self.task, told}, timeout=self._seconds, return_when=asyncio.FIRST_COMPLETED)
            if not self.task.done():
                self.abort(AbortReason.timeout)
        except asyncio.CancelledError:
            self.stopped = True
            self.abort(AbortReason.shutdown)
        finally:
            await _cancelled(told)
        if not self.task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({self.task}, timeout=max(ABORT_GRACE, self.runner.grace))
        return self._ended(self.task)

    async def _called(self) -> Counts | BaseException:
        try:
            return await self.runner.call(self.tick)
        except asyncio.CancelledError:
            raise
        except BaseException as exc:  # noqa: BLE001 - whatever a runner raises is an outcome
            return exc

    def _ended(self, task: asyncio.Task[Counts | BaseException]) -> _Ended:
        reason, name = self.tick.signal.reason, self.runner.name
        result = task.result() if task.done() and not task.cancelled() else None
        if isinstance(result, BaseException):
            failure = Failure.of(result)
            log.error("a runner failed", extra={"runner": name, "error": failure.code}, exc_info=result)
        if result is not None and not isinstance(result, BaseException):
            return _Ended("completed", result)
        if not task.done():
            log.warning("a runner goes on although it was told to stop", extra={"runner": name, "reason": reason})
        match reason:
            case AbortReason.timeout:
                return _Ended("failed", {}, Failure("timeout", f"it ran longer than {self._seconds:.6g} s"))
            case None if isinstance(result, BaseException):
                return _Ended("failed", {}, Failure.of(result))
            case None:
                return _Ended("failed", {}, Failure("CancelledError", "it cancelled itself"))
        return _Ended("cancelled", {}, Failure(reason, f"it was told to stop: {reason}"), again=True)


async def _cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
