"""One tick of one runner: not concurrent, only when due, only with its lock, within its time, and recorded."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg

from holdfast._engine.jobs.refusal import in_ascii, is_refusal
from holdfast._engine.link import LOST, pause
from holdfast._engine.report.transition import Skipped, Ticked
from holdfast._engine.runner import BUILT_IN, USABLE, Budget, Tick
from holdfast._engine.runners.schedules import singleton
from holdfast._logs.failure import Failure
from holdfast._logs.log import Log
from holdfast._model.errors import AbortReason
from holdfast._store.schedule import Slot, StartedRun, counts_json, end_slot, record_run, start_run, take_singleton

if TYPE_CHECKING:
    from holdfast._engine.report.transition import Transitions
    from holdfast._engine.runner import Counts, Runner
    from holdfast._engine.runners.database import RunnerDatabase
    from holdfast._engine.runners.schedules import Timetable
    from holdfast._model.settings import Settings
    from holdfast._store.schedule import RunOutcome
    from holdfast._store.statement import Statement

log = Log(__name__)


# Seconds that a runner has to stop after its abort signal.
ABORT_GRACE = 1.0
# A tick without a schedule is shown as running after this many seconds: most are shorter.
SHOWN_AFTER = 1.0
# An idle tick without a schedule is recorded at most once in this many seconds.
IDLE_EVERY = 60.0
# Attempts to write the end of a tick before its slot is left to its lease.
WRITES = 5


class Limits(NamedTuple):
    items: int | None
    seconds: float
    """The time budget of the tick."""
    longest: float | None = None
    """Seconds after which it is stopped. Defaults to the time budget."""


class Ticker:
    """Runs ticks against one database."""

    def __init__(
        self,
        database: RunnerDatabase,
        timetable: Timetable,
        *,
        settings: Settings,
        state: Any,
        transitions: Transitions,
    ) -> None:
        self.database = database
        self._timetable = timetable
        self._settings = settings
        self._state = state
        self._transitions = transitions
        self._calls: set[_Call] = set()
        self._owed: dict[str, Statement[None]] = {}
        """By runner: the end of its last tick, if the database was unreachable."""
        self._idle_due: dict[str, float] = {}
        """By runner without a schedule: when an idle tick is recorded again, by the monotonic clock."""

    async def tick(self, runner: Runner, limits: Limits) -> Ticked:
        """Run one tick and return its outcome, also if the runner raises. Raise if the database is unreachable."""
        if runner.running:
            log.warning("runner_already_running", extra={"runner": runner.name})
            self._transitions.tell("runner_already_running", runner=runner.name)
            return self._skipped(runner, "already running")
        if not self.database.worker:
            raise psycopg.OperationalError("the database has not answered yet")
        runner.running = True
        call: _Call | None = None
        try:
            await self._settle(runner.name)
            if runner.every is not None:
                slot = await self._timetable.take(runner.name)
                if not isinstance(slot, Slot):
                    late = 0.0 if slot is None else random.uniform(0, runner.spread)  # noqa: S311 - it spreads load
                    return self._skipped(runner, "not due", None if slot is None else slot + late)
                call = self._call(runner, limits, StartedRun(slot.run_id, slot.started_at), slot)
            elif runner.singleton and not await self.database.link.run(take_singleton(runner.name)):
                return self._skipped(runner, "lock held elsewhere")
            else:
                started = None if runner.quiet else await self.database.link.run(start_run())
                call = self._call(runner, limits, started, None)
            return await self._run(call)
        finally:
            # A function that ignores its abort signal prevents another start of the runner.
            if call is None or call.task is None or call.task.done():
                runner.running = False
            else:
                call.task.add_done_callback(lambda _: setattr(runner, "running", False))

    def abort(self, reason: AbortReason) -> None:
        """Ask every current tick to stop."""
        for call in list(self._calls):
            call.abort(reason)

    def _call(self, runner: Runner, limits: Limits, run: StartedRun | None, slot: Slot | None) -> _Call:
        budget = Budget(items=limits.items, seconds=limits.seconds * USABLE)
        tick = Tick(
            name=runner.name,
            state=self._state,
            budget=budget,
            settings=self._settings,
            run_id=run.id if run else 0,
            slot=slot and slot.at,
            attempt=slot.attempt if slot else 1,
        )
        return _Call(runner, tick, run, slot, limits.seconds if limits.longest is None else limits.longest)

    async def _run(self, call: _Call) -> Ticked:
        since = time.monotonic()
        async with AsyncExitStack() as stack:
            if call.runner.singleton and not await self._locked(call, stack):
                await self._give_back(call)
                return self._skipped(call.runner, "lock held elsewhere")
            if call.slot is not None:
                hold = asyncio.create_task(self._timetable.hold(call.runner.name, call.slot, call.abort))
                stack.push_async_callback(_cancelled, hold)
            else:
                show = asyncio.create_task(self._show(call))
                stack.push_async_callback(self._shown, call, show)
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
            database=self.database.name,
            # With a schedule, the next look finds the time of the next slot.
            next_look=call.tick.next_look if call.slot is None else 0.0,
        )
        if not await self._write(call, ended):
            log.warning("the slot was lost", extra={"runner": call.runner.name})
            lost = Ticked(runner=call.runner.name, outcome="lost", seconds=ticked.seconds, database=self.database.name)
            self._transitions.ticked(lost)
            return lost
        self._transitions.ticked(ticked)
        if call.stopped:
            raise asyncio.CancelledError
        return ticked

    async def _locked(self, call: _Call, stack: AsyncExitStack) -> bool:
        seconds = self._settings.lease.total_seconds() / 3
        lock = singleton(self.database.url, call.runner.name, lambda: call.abort(AbortReason.error), seconds=seconds)
        try:
            return await stack.enter_async_context(lock)
        except (*LOST, TimeoutError):
            await self._give_back(call)
            raise

    async def _give_back(self, call: _Call) -> None:
        if call.slot is not None:
            await self._persist(end_slot(call.runner.name, call.slot, worker=self.database.worker, again=True))

    async def _write(self, call: _Call, ended: _TickEnd) -> bool:
        """Record the run, and end its slot. Return False if the slot was lost."""
        try:
            return await self._record(call, ended)
        except Exception as exc:
            if ended.failure is None or not is_refusal(exc):
                raise
            # The database lacks a character of the error.
            return await self._record(call, ended._replace(failure=in_ascii(ended.failure)))

    async def _record(self, call: _Call, ended: _TickEnd) -> bool:
        if call.slot is not None:
            statement = end_slot(
                call.runner.name,
                call.slot,
                worker=self.database.worker,
                outcome=ended.outcome,
                counts=counts_json(ended.counts),
                failure=ended.failure,
                again=ended.again,
            )
            return bool(await self._persist(statement))
        if call.shown or ended.outcome != "completed" or any(ended.counts.values()) or self._keeps_idle(call.runner):
            run = record_run(
                await self._started(call),
                call.runner.name,
                ended.outcome,
                worker=self.database.worker,
                counts=ended.counts,
                failure=ended.failure,
            )
            try:
                await self._persist(run)
            except (*LOST, TimeoutError):
                self._owed[call.runner.name] = run
                raise
        return True

    def _keeps_idle(self, runner: Runner) -> bool:
        """Return whether a tick without a schedule that did nothing is recorded now: the last one replaces the others.

        Loops that are built in would only write more often.
        """
        now = time.monotonic()
        if runner.name in BUILT_IN or now < self._idle_due.get(runner.name, 0.0):
            return False
        self._idle_due[runner.name] = now + IDLE_EVERY
        return True

    async def _settle(self, runner: str) -> None:
        """Write an end that could not be written before: a finished tick must not be shown as running."""
        if (owed := self._owed.pop(runner, None)) is not None:
            try:
                await self.database.link.run(owed)
            except (*LOST, TimeoutError):
                self._owed[runner] = owed

    async def _started(self, call: _Call) -> StartedRun:
        """Return the id and the start of a run that is about to be recorded."""
        if call.started is None:
            started: StartedRun = await self._persist(start_run())
            call.started = started.earlier(time.monotonic() - call.began)
        return call.started

    async def _show(self, call: _Call) -> None:
        await asyncio.sleep(SHOWN_AFTER)
        # Neither statement is cancelled: see `_shown`.
        call.shown = call.started is None
        with suppress(*LOST, TimeoutError):
            await self._write_shown(call, await self._started(call))

    async def _write_shown(self, call: _Call, started: StartedRun) -> None:

        def row() -> Statement[None]:
            call.shown = True
            return record_run(started, call.runner.name, None, worker=self.database.worker, counts={})

        await self.database.link.run_in_turn(row)

    async def _shown(self, call: _Call, show: asyncio.Task[None]) -> None:
        # A write in progress is not cancelled: that would wait for the server. The end of the tick is written after it,
        # on the same link.
        if not call.shown:
            show.cancel()
        await asyncio.wait({show}, timeout=ABORT_GRACE)

    async def _persist(self, statement: Statement[Any]) -> Any:
        for failures in range(WRITES - 1):
            with suppress(*LOST, TimeoutError):
                return await self.database.link.run(statement)
            await asyncio.sleep(pause(failures))
        return await self.database.link.run(statement)

    def _skipped(self, runner: Runner, why: Skipped, next_look: float | None = None) -> Ticked:
        return Ticked(runner=runner.name, outcome="skipped", why=why, next_look=next_look, database=self.database.name)


class _TickEnd(NamedTuple):
    outcome: RunOutcome
    counts: Counts
    failure: Failure | None = None
    again: bool = False
    """Whether it was stopped: its slot is given back."""


class _Call:
    """The call of a runner's function, which can be aborted."""

    def __init__(self, runner: Runner, tick: Tick, run: StartedRun | None, slot: Slot | None, seconds: float) -> None:
        self.runner = runner
        self.tick = tick
        self.began = time.monotonic()
        self.started = run
        """None: it has no id yet."""
        self.slot = slot
        self.task: asyncio.Task[Counts | BaseException] | None = None
        self.shown = False
        """Whether a row shows it as running."""
        self.stopped = False
        """Whether the caller that waited for it was cancelled."""
        self._seconds = seconds

    def abort(self, reason: AbortReason) -> None:
        """Fire the abort signal. An async function is cancelled; a thread must check the signal."""
        if self.tick.signal.abort(reason) and self.task is not None and self.runner.is_async:
            self.task.cancel()

    async def run(self) -> _TickEnd:
        self.task = asyncio.create_task(self._called(), name=f"holdfast-runner-{self.runner.name}")
        if self.tick.signal.aborted:
            self.task.cancel()
        aborted = asyncio.create_task(self.tick.signal.wait())
        try:
            await asyncio.wait({self.task, aborted}, timeout=self._seconds, return_when=asyncio.FIRST_COMPLETED)
            if not self.task.done():
                self.abort(AbortReason.timeout)
        except asyncio.CancelledError:
            self.stopped = True
            self.abort(AbortReason.shutdown)
        finally:
            await _cancelled(aborted)
        if not self.task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({self.task}, timeout=max(ABORT_GRACE, self.runner.grace))
        return self._ended(self.task)

    async def _called(self) -> Counts | BaseException:
        try:
            return await self.runner.call(self.tick)
        except asyncio.CancelledError:
            raise
        except BaseException as exc:  # noqa: BLE001 - anything a runner raises is an outcome
            return exc

    def _ended(self, task: asyncio.Task[Counts | BaseException]) -> _TickEnd:
        reason, name = self.tick.signal.reason, self.runner.name
        result = task.result() if task.done() and not task.cancelled() else None
        if self.runner.quiet and self.started is None and isinstance(result, (*LOST, TimeoutError)):
            raise result
        if isinstance(result, BaseException):
            failure = Failure.of(result)
            log.error("a runner failed", extra={"runner": name, "error": failure.code}, exc_info=result)
        if result is not None and not isinstance(result, BaseException):
            return _TickEnd("completed", result)
        if not task.done():
            log.warning("a runner did not stop when it was asked to", extra={"runner": name, "reason": reason})
        # A thread that still runs may change the counts.
        counts = dict(self.tick.counts)
        match reason:
            case AbortReason.timeout:
                return _TickEnd("failed", counts, Failure("timeout", f"it ran longer than {self._seconds:.6g} s"))
            case None if isinstance(result, BaseException):
                return _TickEnd("failed", counts, Failure.of(result))
            case None:
                return _TickEnd("failed", counts, Failure("CancelledError", "it cancelled itself"))
        return _TickEnd("cancelled", counts, Failure(reason, f"it was stopped: {reason}"), again=True)


async def _cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
