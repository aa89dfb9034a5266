"""Starting attempts: whatever is ready, as slots become free, in turn from each database."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import time
from collections import deque
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast.abort import AbortReason
from holdfast.engine.batch import Batches
from holdfast.engine.deadline import Deadlines
from holdfast.failure import Failure
from holdfast.logs import Log
from holdfast.outcome import Completed, Retried

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence

    from holdfast.engine.attempt import Attempt, Handlers
    from holdfast.engine.ready_jobs import ReadyJobs
    from holdfast.engine.slots import Slots
    from holdfast.outcome import Outcome
    from holdfast.store.lease import Held


# A run of handlers that never wait gives way to the other loops this often.
TURN_SECONDS = 0.005
# Nobody looks at a paced queue oftener.
SHORTEST_WAIT = 0.001
FEW = 10
GIVEN_UP = frozenset(
    {AbortReason.timeout, AbortReason.taken_by_another_worker, AbortReason.already_completed, AbortReason.not_found}
)
# A wait for quiet checks this often, in seconds.
QUIET_PACE = 0.05
# Two looks at what waits for a slot: it was there at the first, and still is at the second.
LOOK_SECONDS = 2.5

log = Log(__name__)
_BROKEN = Retried(timedelta(seconds=15), Failure("broken", "something around the handler raised: see the worker's log"))


class Dispatcher:
    """The only place that starts handlers."""

    def __init__(
        self,
        slots: Slots,
        handlers: Handlers,
        *,
        clock: Callable[[], float] = time.monotonic,
        timed: bool = False,
    ) -> None:
        """With `timed`, each attempt says how long its handler took."""
        self.slots = slots
        self.handlers = handlers
        self._outcome = handlers.outcome if handlers.spans is None else handlers.traced_outcome
        self._batches = Batches(handlers)
        self._clock = clock
        self._timed = timed
        self._ready: deque[ReadyJobs] = deque()
        self._dispatching = False
        self._soon = False
        self._context = contextvars.copy_context()
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Event()
        self._opening: asyncio.TimerHandle | None = None
        self._looking: asyncio.TimerHandle | None = None
        self._looks = 0
        self.apart = asyncio.Lock()
        """Held by the one who has asked for quiet."""
        self.held: list[Mapping[Held, Attempt]] = []
        """What is held of each database, until the endings are written."""
        self._deadlines = Deadlines(self.held, clock)
        self.room: list[Callable[[], None]] = []
        """Called when more jobs may be wanted."""

    def join(self, ready: ReadyJobs) -> None:
        self._ready.append(ready)

    def hold(self, ready: ReadyJobs, attempts: Sequence[Attempt]) -> None:
        """Keep claimed jobs ready, and start what can be started."""
        for attempt in attempts:
            attempt.held_since = self._looks
            ready.add(attempt)
            self.slots.holds(attempt.claimed.queue, 1)
        self.give_back_shut()
        self._look_later()
        if len(attempts) > FEW:
            # Not at once: whoever claimed these may send for the next first, and they come while these run.
            self._dispatch_soon()
        else:
            self.dispatch()

    def give_back(self, ready: ReadyJobs, queues: Iterable[str] | None = None) -> None:
        """Give back what waits there, of these queues (default: all)."""
        self._give_back(ready, ready.take_all(ready.queues if queues is None else queues))

    def give_back_of(self, queues: Iterable[str]) -> None:
        """Give back what waits of these queues, of whatever database."""
        for ready in list(self._ready):
            self.give_back(ready, queues)

    def give_back_shut(self) -> None:
        """Give back what waits for queues that will start nothing soon: others may run it."""
        self.give_back_of({queue for ready in self._ready for queue in ready.queues if self.slots.shut(queue)})

    def _give_back(self, ready: ReadyJobs, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            self.slots.holds(attempt.claimed.queue, -1)
        if attempts:
            ready.give_back(attempts)

    def _look_later(self) -> None:
        if self._looking is None and any(self._ready):
            self._looking = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        """Give back what has waited for a slot for too long: its pace was misjudged, or what runs has become slow.

        By our own looks, not by the time: a loop that stood still has missed both.
        """
        self._looking = None
        self._looks += 1
        if not self._soon:
            for ready in list(self._ready):
                for queue in ready.queues:
                    if not self.slots.may_start(queue):
                        self._give_back(ready, ready.take_old(queue, self._looks - 2))
        self._look_later()

    def dispatch(self) -> None:
        """Start what can be started. A handler that ends at once calls this again: the outer call goes on."""
        if self._dispatching or self._soon:
            return
        self._dispatching = True
        now = self._clock()
        until = now + TURN_SECONDS
        try:
            while (found := self._next()) is not None:
                attempt = self._start(*found, now)
                now = self._clock()
                if self._timed and attempt.task is None:
                    # It has ended, and nothing is written before this turn is over.
                    _time(attempt, now)
                if now > until:
                    self._dispatch_soon()
                    break
        finally:
            self._dispatching = False
        if self.slots.paced:
            self._look_again()
        for call in self.room:
            call()

    def _dispatch_soon(self) -> None:
        """Dispatch in the next round of the loop, and not before: whoever else is ready has this one."""
        if not self._soon:
            self._soon = True
            asyncio.get_running_loop().call_soon(self._dispatch_now)

    def _dispatch_now(self) -> None:
        self._soon = False
        self.dispatch()

    def _look_again(self) -> None:
        """Dispatch when the next paced queue opens: nothing ends then that would tell."""
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
        self._turn.set()
        self.dispatch()

    async def turn(self, seconds: float) -> None:
        """Wait until something has ended, or for so long."""
        self._turn.clear()
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._turn.wait()
        except TimeoutError:
            return

    def stalled(self, seconds: float, queues: Iterable[str]) -> bool:
        """Whether nothing runs, and none of these queues may start more within so many seconds."""
        if self._tasks or self._soon:
            return False
        opens_in = self.slots.opens_in(queues)
        return opens_in is None or opens_in > seconds

    async def drained(self, seconds: float) -> bool:
        """Wait until nothing runs and nobody waits for a slot; False when that does not come within the time."""
        until = time.monotonic() + seconds
        while self._tasks or any(self._ready):
            left = until - time.monotonic()
            if left <= 0 or self.stalled(left, self.slots.queues):
                return False
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=left)
            else:
                await self.turn(left)
        return True

    @property
    def idle(self) -> bool:
        """Whether nothing runs and nobody waits for a slot."""
        return not self._tasks and not self._soon and not any(self._ready)

    async def quiet(self, seconds: float) -> bool:
        """Want nothing more, give back what waits, and wait for what runs; False: it still does after so long.

        A handler that goes on after its attempt was given up is not waited for.
        """
        self.slots.closed = True
        for ready in list(self._ready):
            self.give_back(ready)
        until = time.monotonic() + seconds
        while self._tasks and any(attempt.signal.reason not in GIVEN_UP for it in self.held for attempt in it.values()):
            if time.monotonic() >= until:
                return False
            await self.turn(QUIET_PACE)
        return True

    def go_on(self) -> None:
        """Want jobs again."""
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

    def _start(self, ready: ReadyJobs, attempt: Attempt, now: float) -> Attempt:
        """Return the attempt; without a task it has ended already."""
        work = attempt.kind.work
        self.slots.starts(attempt.claimed.queue)
        attempt.began = now
        attempt.deadline = deadline = now + work.longest(attempt.lease)
        if work.batch is None:
            run = self._attempt(ready, attempt)
        else:
            run = self._batch(ready, self._group(ready, attempt, work.batch))
        # Not the present context: that is often the one of the handler that has just ended.
        task = _start_task(run, self._context.copy())
        if not task.done():
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            if deadline < self._deadlines.next:
                self._deadlines.ring_at(deadline)
            for each in attempt.group or (attempt,):
                each.task = task
            if attempt.signal.aborted:
                attempt.cancel()
        return attempt

    def _group(self, ready: ReadyJobs, first: Attempt, most: int) -> Sequence[Attempt]:
        """Let one slot run as many as the kind takes in one call."""
        group = [first, *ready.take_more(first, most - 1)]
        self.slots.holds(first.claimed.queue, 1 - len(group))
        for attempt in group:
            attempt.group = group
            attempt.began = first.began
            attempt.deadline = first.deadline
        return group

    async def _batch(self, ready: ReadyJobs, group: Sequence[Attempt]) -> None:
        for attempt in group:
            attempt.begun = True
        try:
            outcomes = await self._batches.outcomes(group)
            if group[0].over:
                return
            for attempt in group:
                attempt.over = True
                if attempt.calls:
                    await self.handlers.ended(attempt)
        except BaseException as exc:  # noqa: BLE001 - whatever it is, the jobs must end
            outcomes = [_broken(attempt, exc) for attempt in group]
        finally:
            self.slots.ends(group[0].claimed.queue, len(group))
        if (self._timed and group[0].task is not None) or any(type(one) is not Completed for one in outcomes):
            _time(group[0], self._clock())
        for attempt, outcome in zip(group, outcomes, strict=True):
            ready.ended(attempt, outcome)
        self._turn.set()
        if not self._dispatching:
            self.dispatch()

    async def _attempt(self, ready: ReadyJobs, attempt: Attempt) -> None:
        attempt.begun = True
        try:
            outcome = await self._outcome(attempt)
            if attempt.over:
                # It was given up, and that is written.
                return
            attempt.over = True
            if attempt.calls:
                await self.handlers.ended(attempt)
        except BaseException as exc:  # noqa: BLE001 - whatever it is, the job must end
            outcome = _broken(attempt, exc)
        finally:
            self.slots.ends(attempt.claimed.queue)
        if (self._timed and attempt.task is not None) or type(outcome) is not Completed:
            _time(attempt, self._clock())
        ready.ended(attempt, outcome)
        self._turn.set()
        if not self._dispatching:
            self.dispatch()


def _broken(attempt: Attempt, exc: BaseException) -> Outcome:
    """Say how an attempt ended when not its handler raised, but what is around it: a tracer, say."""
    log.error("an attempt broke outside its handler", extra={"job": attempt.claimed.id}, exc_info=exc)
    return _BROKEN


def _time(attempt: Attempt, now: float) -> None:
    """Say how long the handler took."""
    attempt.seconds = seconds = now - attempt.began
    if attempt.group is not None:
        for each in attempt.group:
            each.seconds = seconds


if sys.version_info >= (3, 12):

    def _start_task(coroutine: Coroutine[Any, Any, None], context: contextvars.Context) -> asyncio.Task[None]:
        """Run until the handler first waits: one that never does costs no turn of the loop."""
        return asyncio.Task(coroutine, loop=asyncio.get_running_loop(), context=context, eager_start=True)

else:

    def _start_task(coroutine: Coroutine[Any, Any, None], context: contextvars.Context) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(coroutine, context=context)
