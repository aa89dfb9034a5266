"""Starting attempts: ready jobs start as slots become free, in turn from each database."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import time
from collections import deque
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast._engine.jobs.deadlines import Deadlines
from holdfast._logs.failure import Failure
from holdfast._logs.log import Log
from holdfast._model.errors import AbortReason
from holdfast._model.outcome import Retried

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Sequence

    from holdfast._engine.attempt import Attempt
    from holdfast._engine.jobs.ready import ReadyJobs
    from holdfast._engine.jobs.run_handlers import Handlers
    from holdfast._engine.jobs.slots import Slots
    from holdfast._model.outcome import Busy, Outcome


# A run of handlers that never wait yields to the other tasks of the event loop after this many seconds.
TURN_SECONDS = 0.005
# A queue with a rate limit is checked at most this often, in seconds.
SHORTEST_WAIT = 0.001
FEW = 10
GIVEN_UP = frozenset(
    {AbortReason.timeout, AbortReason.taken_by_another_worker, AbortReason.already_completed, AbortReason.not_found}
)
# A wait for quiet checks this often, in seconds.
QUIET_PACE = 0.05
# Seconds between two checks of waiting jobs: a job is given back if two checks in a row find it waiting.
LOOK_SECONDS = 2.5

log = Log(__name__)
_BROKEN = Retried(timedelta(seconds=15), Failure("broken", "something around the handler raised: see the worker's log"))


class Dispatcher:
    """Starts handlers. Nothing else does."""

    def __init__(self, slots: Slots, handlers: Handlers) -> None:
        self.slots = slots
        self.handlers = handlers
        self._outcome = handlers.outcome if handlers.spans is None else handlers.traced_outcome
        self._ready: deque[ReadyJobs] = deque()
        self._dispatching = False
        self._soon = False
        self._context = contextvars.copy_context()
        self._turn = asyncio.Event()
        self._opening: asyncio.TimerHandle | None = None
        self._stale_check: asyncio.TimerHandle | None = None
        self._stale_checks = 0
        self.apart = asyncio.Lock()
        """Held by the isolation that has asked for quiet."""
        self._deadlines = Deadlines(self._ready)

    def join(self, ready: ReadyJobs) -> None:
        self._ready.append(ready)

    def leave(self, ready: ReadyJobs) -> None:
        """Forget a database. A handler of it that ignores its signal keeps its slot until it ends."""
        if ready in self._ready:
            self.give_back(ready)
            self._ready.remove(ready)
        self.slots.forget(ready.demand)
        self.dispatch()

    @property
    def _busy(self) -> bool:
        """Whether any handler runs."""
        return any(ready.tasks for ready in self._ready)

    def hold(self, ready: ReadyJobs, attempts: Sequence[Attempt]) -> None:
        """Keep claimed jobs ready, and start those that have a slot."""
        for attempt in attempts:
            attempt.held_since = self._stale_checks
            ready.add(attempt)
            self.slots.holds(attempt.claimed.queue, 1, of=ready.demand)
        if any(attempt.kind.work.in_process for attempt in attempts):
            self.handlers.start_processes(sum(ready.waiting_for_processes for ready in self._ready))
        self.give_back_of_closed_queues()
        self._schedule_stale_check()
        if len(attempts) > FEW:
            # Not at once: the claimer can send its next claim first, and the answer arrives while these jobs run.
            self._dispatch_soon()
        else:
            self.dispatch()

    def give_back(self, ready: ReadyJobs, queues: Iterable[str] | None = None) -> None:
        """Give back the ready jobs of these queues. Defaults to all queues."""
        self._give_back(ready, ready.take_all(ready.queues if queues is None else queues))

    def give_back_of(self, queues: Iterable[str]) -> None:
        """Give back the waiting jobs of these queues, from all databases."""
        for ready in list(self._ready):
            self.give_back(ready, queues)

    def give_back_of_closed_queues(self) -> None:
        """Give back jobs of queues that will start nothing soon: other workers may run them."""
        self.give_back_of({queue for ready in self._ready for queue in ready.queues if self.slots.shut(queue)})

    def _give_back(self, ready: ReadyJobs, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            self.slots.holds(attempt.claimed.queue, -1, of=ready.demand)
        if attempts:
            ready.give_back(attempts)

    def _schedule_stale_check(self) -> None:
        if self._stale_check is None and any(self._ready):
            self._stale_check = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._return_stale_jobs)

    def _return_stale_jobs(self) -> None:
        """Give back jobs that have waited too long for a slot: the pace was misjudged, or running jobs became slow.

        Age is counted in checks, not in seconds: a blocked event loop delays both the starts and the checks.
        """
        self._stale_check = None
        self._stale_checks += 1
        if not self._soon:
            for ready in list(self._ready):
                for lane in ready.lanes:
                    if not self.slots.may_start(*lane):
                        self._give_back(ready, ready.take_old(lane, self._stale_checks - 2))
        self._schedule_stale_check()

    def dispatch(self) -> None:
        """Start all jobs that can start. A handler that ends at once calls this again; the outer call continues."""
        if self._dispatching or self._soon:
            return
        self._dispatching = True
        now = time.monotonic()
        until = now + TURN_SECONDS
        try:
            while (found := self._next()) is not None:
                self._start(*found, now)
                now = time.monotonic()
                if now > until:
                    self._dispatch_soon()
                    break
        finally:
            self._dispatching = False
        if self.slots.paced:
            self._schedule_rate_opening()
        for ready in self._ready:
            ready.demand.grew()

    def _dispatch_soon(self) -> None:
        """Dispatch in the next iteration of the event loop, so that other ready tasks run first."""
        if not self._soon:
            self._soon = True
            asyncio.get_running_loop().call_soon(self._dispatch_now)

    def _dispatch_now(self) -> None:
        self._soon = False
        self.dispatch()

    def _schedule_rate_opening(self) -> None:
        """Dispatch when the next queue with a rate limit opens: no ending job triggers it then."""
        if (seconds := self.slots.opens_in()) is None:
            return
        loop = asyncio.get_running_loop()
        at = loop.time() + max(seconds, SHORTEST_WAIT)
        if self._opening is None or at < self._opening.when():
            if self._opening is not None:
                self._opening.cancel()
            self._opening = loop.call_at(at, self._opened)

    def _opened(self) -> None:
        self._opening = None
        self.changed()

    def changed(self) -> None:
        """Start what can start now: a queue has opened, or a process is ready."""
        self._turn.set()
        self.dispatch()

    async def turn(self, seconds: float) -> None:
        """Wait until a job has ended, at most `seconds`."""
        self._turn.clear()
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._turn.wait()
        except TimeoutError:
            return

    def stalled(self, seconds: float, queues: Iterable[str]) -> bool:
        """Return whether nothing runs and none of these queues may start a job within `seconds`."""
        if self._busy or self._soon:
            return False
        if self.slots.awaits_processes and any(in_process for ready in self._ready for _, in_process in ready.lanes):
            return False
        opens_in = self.slots.opens_in(queues)
        return opens_in is None or opens_in > seconds

    async def drained(self, seconds: float) -> bool:
        """Wait until nothing runs and no job waits for a slot. Return False if that takes longer than `seconds`."""
        until = time.monotonic() + seconds
        while (tasks := set().union(*(ready.tasks for ready in self._ready))) or any(self._ready):
            left = until - time.monotonic()
            if left <= 0 or self.stalled(left, self.slots.queues):
                return False
            if tasks:
                await asyncio.wait(tasks, timeout=left)
            else:
                await self.turn(left)
        return True

    async def ended(self, ready: ReadyJobs, seconds: float) -> bool:
        """Wait until no handler of this database runs. Return False if that takes longer than `seconds`."""
        until = time.monotonic() + seconds
        while ready.tasks:
            left = until - time.monotonic()
            if left <= 0:
                return False
            await asyncio.wait(ready.tasks, timeout=left)
        return True

    @property
    def idle(self) -> bool:
        """Whether nothing runs and no job waits for a slot."""
        return not self._busy and not self._soon and not any(self._ready)

    async def wait_until_idle(self, seconds: float) -> bool:
        """Close the slots, give back waiting jobs, and wait for running jobs. False: some still run after `seconds`.

        A handler that continues after its attempt was given up is not waited for.
        """
        self.slots.closed = True
        for ready in list(self._ready):
            self.give_back(ready)
        until = time.monotonic() + seconds
        while self._busy and self._awaits_any():
            if time.monotonic() >= until:
                return False
            await self.turn(QUIET_PACE)
        return True

    def _awaits_any(self) -> bool:
        return any(attempt.signal.reason not in GIVEN_UP for ready in self._ready for attempt in ready.held.values())

    def reopen(self) -> None:
        """Open the slots again."""
        self.slots.closed = False
        self.dispatch()

    def _next(self) -> tuple[ReadyJobs, Attempt] | None:
        databases = self._ready
        for _ in range(len(databases)):
            ready = databases[0]
            if len(databases) > 1:
                databases.rotate(-1)
            if (attempt := ready.take(self.slots)) is not None:
                return ready, attempt
        return None

    def _start(self, ready: ReadyJobs, attempt: Attempt, now: float) -> None:
        work = attempt.kind.work
        self.slots.starts(attempt.claimed.queue, in_process=work.in_process, of=ready.demand)
        attempt.started_at = now
        attempt.deadline = attempt.signal.deadline = deadline = now + work.longest(attempt.lease)
        if work.batch is None:
            run = self._attempt(ready, attempt)
        else:
            run = self._batch(ready, self._group(ready, attempt, work.batch))
        # Not the current context: that often belongs to the handler that has just ended.
        task = _start_task(run, self._context.copy())
        if not task.done():
            ready.tasks.add(task)
            task.add_done_callback(ready.tasks.discard)
            if deadline < self._deadlines.next:
                self._deadlines.ring_at(deadline)
            for each in attempt.group or (attempt,):
                each.task = task
            if attempt.signal.aborted:
                attempt.cancel()

    def _group(self, ready: ReadyJobs, first: Attempt, limit: int) -> Sequence[Attempt]:
        """Return the jobs that share the first one's slot: as many as the kind takes in one call."""
        group = [first, *ready.take_more(first, limit - 1)]
        self.slots.holds(first.claimed.queue, 1 - len(group), of=ready.demand)
        for attempt in group:
            attempt.group = group
            attempt.started_at = first.started_at
            attempt.deadline = first.deadline
            attempt.signal.deadline = first.signal.deadline
        return group

    async def _batch(self, ready: ReadyJobs, group: Sequence[Attempt]) -> None:
        for attempt in group:
            attempt.entered = True
        try:
            outcomes = await self.handlers.outcomes(group)
            if group[0].over:
                return
            for attempt in group:
                attempt.over = True
                if attempt.calls:
                    await self.handlers.ended(attempt)
        except BaseException as exc:  # noqa: BLE001 - after any error the jobs must end
            outcomes = [_broken(attempt, exc) for attempt in group]
        finally:
            seconds = time.monotonic() - group[0].started_at
            self.slots.ends(group[0].claimed.queue, len(group), seconds=seconds, of=ready.demand)
        for attempt, outcome in zip(group, outcomes, strict=True):
            attempt.seconds = seconds
            if attempt.busy is not None:
                self._rest(attempt.claimed.queue, attempt.busy)
            ready.ended(attempt, outcome)
        self._turn.set()
        if not self._dispatching:
            self.dispatch()

    async def _attempt(self, ready: ReadyJobs, attempt: Attempt) -> None:
        attempt.entered = True
        try:
            outcome = await self._outcome(attempt)
            if attempt.over:
                # The attempt was given up, and its outcome is already written.
                return
            attempt.over = True
            if attempt.calls:
                await self.handlers.ended(attempt)
        except BaseException as exc:  # noqa: BLE001 - after any error the job must end
            outcome = _broken(attempt, exc)
        finally:
            seconds = time.monotonic() - attempt.started_at
            in_process = attempt.kind.work.in_process
            self.slots.ends(attempt.claimed.queue, seconds=seconds, in_process=in_process, of=ready.demand)
        attempt.seconds = seconds
        if attempt.busy is not None:
            self._rest(attempt.claimed.queue, attempt.busy)
        ready.ended(attempt, outcome)
        self._turn.set()
        if not self._dispatching:
            self.dispatch()

    def _rest(self, queue: str, busy: Busy) -> None:
        """Start nothing of this queue for a while: the service that its jobs call is saturated."""
        seconds = busy.retry_after.total_seconds()
        self.slots.rest(queue, seconds)
        self.give_back_of_closed_queues()
        asyncio.get_running_loop().call_later(seconds, self.dispatch)


def _broken(attempt: Attempt, exc: BaseException) -> Outcome:
    """Return the outcome of an attempt when code around its handler raised, for example a tracer."""
    log.error("an attempt broke outside its handler", extra={"job": attempt.claimed.id}, exc_info=exc)
    return _BROKEN


if sys.version_info >= (3, 12):

    def _start_task(coroutine: Coroutine[Any, Any, None], context: contextvars.Context) -> asyncio.Task[None]:
        """Run until the handler first waits: a handler that never waits costs no iteration of the event loop."""
        return asyncio.Task(coroutine, loop=asyncio.get_running_loop(), context=context, eager_start=True)

else:

    def _start_task(coroutine: Coroutine[Any, Any, None], context: contextvars.Context) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(coroutine, context=context)
