"""The verbs of a story in a worker: async handlers await them, and plain handlers call them in their threads."""

from __future__ import annotations

import asyncio
import contextvars
from collections import Counter
from contextlib import contextmanager
from datetime import datetime
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec, TypeVar

from holdfast._drivers import outside_transaction, run, run_sync
from holdfast._engine.jobs.journal import NEVER, NO_FAILURES, Journal, current
from holdfast._engine.jobs.step_results import received, result_of, results_of
from holdfast._engine.jobs.suspension import Suspended, Suspension
from holdfast._engine.keeper import in_thread
from holdfast._logs.failure import Failure, only_leaf
from holdfast._model.duration import LONGEST, as_timedelta
from holdfast._model.errors import ChainFailed, HoldfastError, InvalidStep, StoryChanged
from holdfast._model.message import Message
from holdfast._model.new_job import MOST_BLOCKERS, check_new_job
from holdfast._model.option import check_time
from holdfast._model.outcome import Failed, Rescheduled
from holdfast._model.step import Step, is_async
from holdfast._store.step import save_step

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence
    from datetime import timedelta

    from holdfast._engine.attempt import Attempt
    from holdfast._engine.jobs.journal import Running
    from holdfast._engine.jobs.recorder import Recorder
    from holdfast._model.codec import JsonCodec
    from holdfast._model.duration import Duration
    from holdfast._model.message import Receivable
    from holdfast._model.new_job import NewJob
    from holdfast._model.result import Result
    from holdfast._store.statement import Statement
    from holdfast._store.step import Child, Kept, Recorded

P = ParamSpec("P")
T = TypeVar("T")

# Seconds before the function of a step is called again; doubled each time.
RETRY_PAUSE = 0.1
LONGEST_RETRY_PAUSE = 5.0
_SWALLOWED = Failed(
    Failure(
        "suspension_swallowed",
        "the handler went on after its story was suspended: something caught CancelledError and did not raise it again",
    )
)

_inside: contextvars.ContextVar[str | None] = contextvars.ContextVar("holdfast_step", default=None)


def _at_work(
    verb: Callable[Concatenate[Steps, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Steps, P], Coroutine[Any, Any, T]]:
    """Decorate an async verb so that its story is not suspended while it is at work."""

    @wraps(verb)
    async def call(self: Steps, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self.suspension.at_work():
            return await verb(self, *args, **kwargs)

    return call


class Steps:
    """The steps of one attempt. It is made at the first verb."""

    def __init__(self, attempt: Attempt, recorder: Recorder, codec: JsonCodec) -> None:
        self.journal: Journal = Journal(attempt, recorder, codec)
        self.counts = self.journal.counts
        self._attempt = attempt
        self._loop = recorder.loop
        self.suspension = Suspension(attempt, recorder.loop)
        self._ordinals: Counter[str] = Counter()

    def ordinal(self, name: str) -> int:
        """Return how often this was called with this name: a key for steps that are named by a library."""
        self._ordinals[name] += 1
        return self._ordinals[name]

    @_at_work
    async def step(self, step: Step, fn: Callable[..., Any], call: Callable[[], Any]) -> Any:
        result = result_of(step, fn)
        if step.timeout is not None and not is_async(fn):
            raise InvalidStep(f"step {step}: a plain function cannot be stopped, so it takes no timeout: make it async")
        by = current()
        if (found := await self._reached(step, by)) is not None:
            return self._recalled(step, result, found, by)
        with self.journal.run_of(step, by) as running:
            if is_async(fn):
                text = self._text(step, result, await self._called(step, running, call))
                # The function has returned: this is recorded even if the task is cancelled now.
                await self.journal.finish(self.journal.save(running, text))
            else:
                # A thread cannot be cancelled, so it is waited for.
                text = await self.journal.finish(self._call_plain(step, result, running, call))
        return self._value(step, result, text)

    async def _call_plain(self, step: Step, result: Result, running: Running, call: Callable[[], Any]) -> str:
        """Call a plain function in a thread, and record its result."""

        async def called() -> Any:
            return await in_thread(partial(contextvars.copy_context().run, call), name=f"step-{step.name}")

        text = self._text(step, result, await self._called(step, running, called))
        await self.journal.save(running, text)
        return text

    @_at_work
    async def step_on(self, conn: Any, step: Step, fn: Callable[..., Any], call: Callable[[], Any]) -> Any:
        if not is_async(fn):
            raise InvalidStep(f"step {step}: job.step_on takes an async function, and job.sync.step_on a plain one")
        result = result_of(step, fn)
        _check_transaction(step, conn)
        by = current()
        if (found := await self._reached(step, by)) is not None:
            return self._recalled(step, result, found, by)
        await self.journal.finish(self.journal.mark())
        with self.journal.run_of(step, by) as running:
            text = self._text(step, result, await self._called(step, running, call))
            self.journal.kept(await run(conn, self._kept(running, text)), running)
        return self._value(step, result, text)

    @_at_work
    async def sleep(self, step: Step, until: Duration | datetime) -> None:
        span, by = _span(until), current()
        found = await self._reached(step, by)
        if (due := await self.journal.sleep(step, span, found, by)) is not None:
            await self._suspend(due, by)

    @_at_work
    async def receive(self, message: Receivable[Any], key: str | int | None, timeout: Duration | None) -> Any:  # noqa: ASYNC109 - see Story
        step, span = _of_message(message, key, timeout)
        by = current()
        found = await self._reached(step, by)
        due, text = await self.journal.receive(step, span, found, by)
        if due is not None:
            await self._suspend(due, by)
        return None if text is None else received(message, text)

    @_at_work
    async def gather(self, step: Step, jobs: Sequence[NewJob[Any]]) -> list[Any]:
        _check_gather(step, jobs)
        by = current()
        found = await self._reached(step, by)
        if not jobs and found is None:
            return []
        await self._check_no_transaction(by)
        if (children := await self.journal.gather(step, jobs, found, by)) is None:
            await self._suspend(NEVER, by)
        return self._results(step, jobs, children, by)

    async def _reached(self, step: Step, by: object) -> Recorded | None:
        _check_outside(step)
        if asyncio.get_running_loop() is not self._loop:
            raise InvalidStep(f"step {step}: call the verbs in the worker's event loop; a plain handler has job.sync")
        if self.suspension.due is not None:
            await self.suspension.park(self.suspension.due)
        return await self.journal.reach(step, by)

    async def _called(self, step: Step, running: Running, call: Callable[[], Any]) -> Any:
        """Call an async function as often as the step says."""
        limit = None if step.timeout is None else as_timedelta("timeout", step.timeout).total_seconds()
        for nth in range(1, step.attempts + 1):
            try:
                with _in_step(step):
                    async with asyncio.timeout(limit):
                        return await call()
            except Exception as exc:
                if not self._may_help(exc, nth, step):
                    await self.journal.finish(self.journal.save_failure(running, exc))
                    raise
            await asyncio.sleep(_retry_pause(nth))
        return None

    async def _suspend(self, due: datetime, by: object) -> NoReturn:
        await self._check_no_transaction(by)
        await self.suspension.park(due)

    async def _check_no_transaction(self, by: object) -> None:
        if await self.journal.in_transaction(by):
            raise InvalidStep(
                "the story would be suspended inside of a transaction that has recorded a step: let it commit first"
            )

    # The same for plain handlers.

    def step_sync(self, step: Step, fn: Callable[..., Any], call: Callable[[], Any]) -> Any:
        result = self._plain_result(step, fn)
        by = current()
        if (found := self._reached_sync(step, by)) is not None:
            return self._recalled(step, result, found, by)
        with self.journal.run_of(step, by) as running:
            text = self._text(step, result, self._called_sync(step, running, call))
            self._wait(self.journal.save(running, text))
        return self._value(step, result, text)

    def step_on_sync(self, conn: Any, step: Step, fn: Callable[..., Any], call: Callable[[], Any]) -> Any:
        result = self._plain_result(step, fn)
        _check_transaction(step, conn)
        by = current()
        if (found := self._reached_sync(step, by)) is not None:
            return self._recalled(step, result, found, by)
        self._wait(self.journal.mark())
        with self.journal.run_of(step, by) as running:
            text = self._text(step, result, self._called_sync(step, running, call))
            self.journal.kept(run_sync(conn, self._kept(running, text)), running)
        return self._value(step, result, text)

    def sleep_sync(self, step: Step, until: Duration | datetime) -> None:
        span, by = _span(until), current()
        found = self._reached_sync(step, by)
        if (due := self._wait(self.journal.sleep(step, span, found, by))) is not None:
            self._suspend_sync(due, by)

    def receive_sync(self, message: Receivable[Any], key: str | int | None, timeout: Duration | None) -> Any:
        step, span = _of_message(message, key, timeout)
        by = current()
        found = self._reached_sync(step, by)
        due, text = self._wait(self.journal.receive(step, span, found, by))
        if due is not None:
            self._suspend_sync(due, by)
        return None if text is None else received(message, text)

    def gather_sync(self, step: Step, jobs: Sequence[NewJob[Any]]) -> list[Any]:
        _check_gather(step, jobs)
        by = current()
        found = self._reached_sync(step, by)
        if not jobs and found is None:
            return []
        self._wait(self._check_no_transaction(by))
        if (children := self._wait(self.journal.gather(step, jobs, found, by))) is None:
            self._suspend_sync(NEVER, by)
        return self._results(step, jobs, children, by)

    def _reached_sync(self, step: Step, by: object) -> Recorded | None:
        _check_outside(step)
        if self.suspension.due is not None:
            raise Suspended
        return self._wait(self.journal.reach(step, by))

    def _plain_result(self, step: Step, fn: Callable[..., Any]) -> Result:
        if is_async(fn):
            raise InvalidStep(f"step {step}: job.sync takes plain functions: await job.step in an async handler")
        if step.timeout is not None:
            raise InvalidStep(f"step {step}: a plain function cannot be stopped, so it takes no timeout")
        return result_of(step, fn)

    def _called_sync(self, step: Step, running: Running, call: Callable[[], Any]) -> Any:
        """Call a plain function in the handler's thread as often as the step says."""
        for nth in range(1, step.attempts + 1):
            try:
                with _in_step(step):
                    return call()
            except Exception as exc:
                if not self._may_help(exc, nth, step) or self._attempt.signal.wait_in_thread(_retry_pause(nth)):
                    self._wait(self.journal.save_failure(running, exc))
                    raise
        return None

    def _suspend_sync(self, due: datetime, by: object) -> NoReturn:
        self._wait(self._check_no_transaction(by))
        self.suspension.due = due
        raise Suspended

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run this in the worker's event loop, and block the handler's thread meanwhile."""
        if not isinstance(current(), int):
            coroutine.close()
            raise InvalidStep("job.sync would block the event loop: await the verb of the job itself")
        return self.journal.recorder.wait(coroutine)

    # For both.

    def _recalled(self, step: Step, result: Result, found: Recorded, by: object) -> Any:
        if found.state == "failed":
            raise self.journal.recall_failure(step, found, by)
        if found.state is not None:
            raise StoryChanged(f"step {step} calls a function, and was recorded as another verb")
        return self._value(step, result, found.result or "null")

    def _may_help(self, exc: Exception, nth: int, step: Step) -> bool:
        """Return whether to call the function again."""
        if isinstance(only_leaf(exc), NO_FAILURES) or not self.journal.retry.retries(exc):
            return False
        return nth < step.attempts

    def _results(self, step: Step, jobs: Sequence[NewJob[Any]], children: Sequence[Child], by: object) -> list[Any]:
        try:
            return results_of(step, jobs, children, self.journal.codec)
        except ChainFailed as exc:
            self.journal.raises(step.at, exc, by)
            raise

    def _kept(self, running: Running, text: str) -> Statement[Kept]:
        return save_step(self.journal.recorder.worker, self._attempt.held, running.at, text, beside=running.beside)

    def _text(self, step: Step, result: Result, value: object) -> str:
        try:
            return self.journal.codec.encode(result.plain(value), kind=f"step {step}")
        except HoldfastError as exc:
            raise InvalidStep(f"step {step}: what it returned cannot be recorded: {exc}") from exc

    def _value(self, step: Step, result: Result, text: str) -> Any:
        """Return the result as every later attempt will see it."""
        try:
            return result.read(self.journal.codec.plain(text))
        except HoldfastError as exc:
            raise InvalidStep(f"step {step}: what was recorded is not of the declared type: {exc}") from exc

    @property
    def progressed(self) -> bool:
        """Whether the attempt has recorded anything."""
        return self.journal.progressed

    async def end(self) -> None:
        """Wait until everything that has run is recorded, and end the tasks that the handler left behind."""
        self.suspension.stop()
        await self.journal.drain()
        self.suspension.end_tasks()

    async def outcome_of(self, exc: BaseException | None) -> Rescheduled | Failed | BaseException | None:
        """Return the outcome of a suspended attempt, or else the error to end it with.

        `exc`: what the handler raised; None: it returned.
        """
        due, task = self.suspension.due, self._attempt.task
        if due is not None:
            if exc is None:
                return _SWALLOWED
            while task is not None and task.uncancel():
                pass
            errors = [leaf for leaf in _leaves(exc) if not isinstance(leaf, asyncio.CancelledError | Suspended)]
            if not errors:
                return Rescheduled(due)
            exc = errors[0]
        if exc is not None:
            await self.journal.failed(exc)
        return exc


@contextmanager
def _in_step(step: Step) -> Iterator[None]:
    token = _inside.set(str(step))
    try:
        yield
    finally:
        _inside.reset(token)


def _check_outside(step: Step) -> None:
    if (outer := _inside.get()) is not None:
        raise InvalidStep(f"step {step} inside of step {outer}: a step has no steps of its own")


def _check_transaction(step: Step, conn: object) -> None:
    if (cure := outside_transaction(conn)) is not None:
        raise InvalidStep(f"step {step}: this connection commits each statement by itself: use {cure}")


def _span(until: Duration | datetime) -> timedelta | datetime:
    if isinstance(until, datetime):
        check_time("until", until)
        return until
    return as_timedelta("until", until, limit=LONGEST, others=" or a datetime")


def _of_message(
    message: Receivable[Any], key: str | int | None, timeout: Duration | None
) -> tuple[Step, timedelta | None]:
    if not isinstance(message, Message):
        raise InvalidStep("receive: expected a message, as app.message declares it")
    span = None if timeout is None else as_timedelta("timeout", timeout, limit=LONGEST)
    return Step(message.name, key=key), span


def _check_gather(step: Step, jobs: Sequence[NewJob[Any]]) -> None:
    for job in jobs:
        check_new_job(job, "gather")
    if step != Step(step.name, key=step.key):
        raise InvalidStep(f"step {step}: a gather has no attempts, timeout or returns: they are those of its jobs")
    if len(jobs) > MOST_BLOCKERS:
        raise InvalidStep(f"step {step}: at most {MOST_BLOCKERS} jobs are gathered at once, got {len(jobs)}")


def _retry_pause(nth: int) -> float:
    return min(RETRY_PAUSE * 2.0 ** (nth - 1), LONGEST_RETRY_PAUSE)


def _leaves(exc: BaseException) -> list[BaseException]:
    if isinstance(exc, BaseExceptionGroup):
        return [leaf for inner in exc.exceptions for leaf in _leaves(inner)]
    return [exc]
