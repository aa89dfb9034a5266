"""Starting attempts: whatever is ready, as slots become free, in turn from each database."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import time
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any

from holdfast.engine.batch import Batches

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from holdfast.engine.attempt import Attempt, Handlers
    from holdfast.engine.slots import Slots
    from holdfast.outcome import Outcome

    Ended = Callable[[Attempt, Outcome | None], None]

# A run of handlers that never wait gives way to the other loops this often.
TURN_SECONDS = 0.005
# Nobody looks at a paced queue oftener.
SHORTEST_WAIT = 0.001
FEW = 10


class Bench:
    """The jobs of one database that wait for a slot: by queue, then by priority, then in the order of their claims."""

    def __init__(self, ended: Ended) -> None:
        self.ended = ended
        self._queues: dict[str, dict[int, deque[Attempt]]] = {}

    def __bool__(self) -> bool:
        """Whether anybody waits."""
        return any(self._queues.values())

    def add(self, attempt: Attempt) -> None:
        claimed = attempt.claimed
        levels = self._queues.setdefault(claimed.queue, {})
        if (waiting := levels.get(claimed.priority)) is None:
            waiting = levels[claimed.priority] = deque()
            if len(levels) > 1:
                self._queues[claimed.queue] = dict(sorted(levels.items()))
        waiting.append(attempt)

    def take(self, slots: Slots) -> Attempt | None:
        """Take the next of the queue whose turn it is."""
        for queue, levels in self._queues.items():
            if levels and slots.may_start(queue):
                level, waiting = next(iter(levels.items()))
                attempt = waiting.popleft()
                if not waiting:
                    del levels[level]
                if len(self._queues) > 1:
                    self._queues[queue] = self._queues.pop(queue)
                return attempt
        return None

    def take_more(self, first: Attempt, most: int) -> list[Attempt]:
        """Take others of the same queue, priority and kind, in their order."""
        levels = self._queues[first.claimed.queue]
        waiting = levels.get(first.claimed.priority, deque())
        more = list(islice((attempt for attempt in waiting if attempt.kind is first.kind), most))
        if more:
            taken = set(more)
            levels[first.claimed.priority] = left = deque(attempt for attempt in waiting if attempt not in taken)
            if not left:
                del levels[first.claimed.priority]
        return more

    def clear(self) -> list[Attempt]:
        """Take everybody off: they have not started."""
        left = [attempt for levels in self._queues.values() for waiting in levels.values() for attempt in waiting]
        self._queues.clear()
        return left


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
        self._handlers = handlers
        self._outcome = handlers.outcome if handlers.spans is None else handlers.traced_outcome
        self._batches = Batches(handlers)
        self._clock = clock
        self._timed = timed
        self._benches: deque[Bench] = deque()
        self._dispatching = False
        self._soon = False
        self._context = contextvars.copy_context()
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Event()
        self._opening: asyncio.TimerHandle | None = None
        self.room: list[Callable[[], None]] = []
        """Called when more jobs may be wanted."""

    def join(self, bench: Bench) -> None:
        self._benches.append(bench)

    def hold(self, bench: Bench, attempts: Sequence[Attempt]) -> None:
        """Keep claimed jobs ready, and start what can be started."""
        for attempt in attempts:
            bench.add(attempt)
            self.slots.holds(attempt.claimed.queue, 1)
        if len(attempts) > FEW:
            # Not at once: whoever claimed these may send for the next first, and they come while these run.
            self._dispatch_soon()
        else:
            self.dispatch()

    def clear(self, bench: Bench) -> list[Attempt]:
        left = bench.clear()
        for attempt in left:
            self.slots.holds(attempt.claimed.queue, -1)
        return left

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
        while self._tasks or any(self._benches):
            left = until - time.monotonic()
            if left <= 0 or self.stalled(left, self.slots.queues):
                return False
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=left)
            else:
                await self.turn(left)
        return True

    def _next(self) -> tuple[Bench, Attempt] | None:
        benches = self._benches
        for _ in range(len(benches)):
            bench = benches[0]
            if len(benches) > 1:
                benches.rotate(-1)
            if (attempt := bench.take(self.slots)) is not None:
                return bench, attempt
        return None

    def _start(self, bench: Bench, attempt: Attempt, now: float) -> Attempt:
        """Return the attempt; without a task it has ended already."""
        work = attempt.kind.work
        self.slots.starts(attempt.claimed.queue)
        attempt.began = now
        attempt.deadline = attempt.began + (
            3 * attempt.lease.seconds if work.max_runtime is None else work.max_runtime.total_seconds()
        )
        if work.batch is None:
            run = self._attempt(bench, attempt)
        else:
            run = self._batch(bench, self._group(bench, attempt, work.batch))
        # Not the present context: that is often the one of the handler that has just ended.
        task = _start_task(run, self._context.copy())
        if not task.done():
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            for each in attempt.group or (attempt,):
                each.task = task
            if attempt.signal.aborted:
                attempt.cancel()
        return attempt

    def _group(self, bench: Bench, first: Attempt, most: int) -> Sequence[Attempt]:
        """Let one slot run as many as the kind takes in one call."""
        group = [first, *bench.take_more(first, most - 1)]
        self.slots.holds(first.claimed.queue, 1 - len(group))
        for attempt in group:
            attempt.group = group
            attempt.began = first.began
            attempt.deadline = first.deadline
        return group

    async def _batch(self, bench: Bench, group: Sequence[Attempt]) -> None:
        for attempt in group:
            attempt.begun = True
        try:
            outcomes = await self._batches.outcomes(group)
        finally:
            self.slots.ends(group[0].claimed.queue, len(group))
        if self._timed and group[0].task is not None:
            _time(group[0], self._clock())
        for attempt, outcome in zip(group, outcomes, strict=True):
            bench.ended(attempt, outcome)
        self._turn.set()
        if not self._dispatching:
            self.dispatch()

    async def _attempt(self, bench: Bench, attempt: Attempt) -> None:
        attempt.begun = True
        try:
            outcome = await self._outcome(attempt)
        finally:
            self.slots.ends(attempt.claimed.queue)
        if self._timed and attempt.task is not None:
            _time(attempt, self._clock())
        bench.ended(attempt, outcome)
        self._turn.set()
        if not self._dispatching:
            self.dispatch()


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
