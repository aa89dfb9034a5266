"""`Testing`: the verbs with which a test inspects and runs an application's jobs."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import copy_context
from datetime import timedelta
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, ParamSpec, TypeVar, cast

from holdfast._drivers import AsyncConnection, SyncConnection, run, run_sync
from holdfast._engine.keeper import in_thread
from holdfast._model.call import callers_place, type_name
from holdfast._model.connection import USE_ASYNC, USE_SYNC
from holdfast._model.duration import as_timedelta
from holdfast._model.errors import HoldfastError, UnknownKind, UnsupportedConnection
from holdfast._model.handle import Handle
from holdfast._model.kind import Kind
from holdfast._model.new_job import OMITTED, NewJob, check_new_job
from holdfast._store.testing import (
    advance_jobs,
    end_windows,
    enqueued_jobs,
    enqueued_kinds,
    open_windows,
    suspended_stories,
)
from holdfast._testing.drive import Call, at_once, caught, drive
from holdfast._testing.events import EventFeed
from holdfast._testing.results import Enqueued, Expected, enqueued_of
from holdfast._testing.stage import NAME, Stage, as_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator

    from holdfast._app.app import Holdfast
    from holdfast._app.registry import AnyKind
    from holdfast._engine.jobs.recorder import RunStatement
    from holdfast._model.duration import Duration
    from holdfast._store.statement import Statement
    from holdfast._testing.results import Drained, Ran

    Work = Callable[[Stage], Coroutine[Any, Any, "T"]]


T = TypeVar("T")
P = ParamSpec("P")

MOST = 1000
LONGEST = timedelta(seconds=30)
_FURTHEST = timedelta(days=36_600)


class _UnfitConnectionError(Exception):
    """The test's own connection does not fit the verb. A handler's UnsupportedConnection is an error like any other."""


@contextmanager
def _own_statements() -> Iterator[None]:
    try:
        yield
    except UnsupportedConnection as exc:
        raise _UnfitConnectionError(str(exc)) from None


def _awaited(
    verb: Callable[Concatenate[Testing, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Testing, P], Coroutine[Any, Any, T]]:
    """Decorate an async verb so that its kit keeps each call until it begins to run: one never awaited checks nothing.

    On the other sort of connection it ends in one line, which names the verb to write.
    """

    @wraps(verb)
    def call(self: Testing, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        this = object()
        self._calls[this] = f"{verb.__name__}() at {callers_place()}"

        @wraps(verb)
        async def run() -> T:
            __tracebackhide__ = True
            del self._calls[this]
            try:
                return await verb(self, *args, **kwargs)
            except _UnfitConnectionError as exc:
                right = f"write holdfast.sync.{verb.__name__}(…), without await"
                raise UnsupportedConnection(str(exc).replace(USE_SYNC, right)) from None

        return run()

    return call


def _explained(verb: Callable[Concatenate[SyncTesting, P], T]) -> Callable[Concatenate[SyncTesting, P], T]:
    """Decorate a sync verb as `_awaited` does for the other sort of connection."""

    @wraps(verb)
    def call(self: SyncTesting, /, *args: P.args, **kwargs: P.kwargs) -> T:
        __tracebackhide__ = True
        try:
            return verb(self, *args, **kwargs)
        except _UnfitConnectionError as exc:
            right = f"write await holdfast.{verb.__name__}(…)"
            raise UnsupportedConnection(str(exc).replace(USE_ASYNC, right)) from None

    return call


class Testing:
    """Inspects jobs, runs them and advances their time, on one connection and in its current transaction.

    Its verbs are for async connections and must be awaited. `kit.sync` has the same verbs for sync connections.
    """

    __test__: ClassVar[bool] = False
    """Keeps pytest from collecting the class because of its name."""

    def __init__(self, app: Holdfast, connection: AsyncConnection | SyncConnection, *, state: Any = OMITTED) -> None:
        """`state`: what handlers get as `job.state`. Default: the application's lifespan, entered for each drain."""
        self.app = app
        self.connection = connection
        verbs = KitVerbs(app, state)
        self.sync: SyncTesting = SyncTesting(verbs, cast("SyncConnection", connection))
        """The same verbs for synchronous connections: `kit.sync.drain()`."""
        self._verbs = verbs
        self._calls: dict[object, str] = {}

    @property
    def unawaited(self) -> list[str]:
        """The calls of these verbs that were never awaited and so did nothing, each with its line."""
        return list(self._calls.values())

    @_awaited
    async def assert_enqueued(self, job: NewJob[Any], *, times: int = 1) -> None:
        """Fail unless this job was enqueued: with its kind, payload and given options, whether it waits or has ended.

        `times`: how many such jobs there must be. Default: 1.
        """
        __tracebackhide__ = True
        await self._verbs.assert_enqueued(self._run, job, times)

    @_awaited
    async def enqueued(self, kind: AnyKind) -> list[Enqueued]:
        """Return the jobs of a kind, waiting or ended, oldest first; at most the last 10,000."""
        return await self._verbs.enqueued(self._run, _name_of(kind))

    @_awaited
    async def drain(
        self,
        *,
        limit: int = MOST,
        timeout: Duration = LONGEST,  # noqa: ASYNC109 - also aborts the handler
        raise_errors: bool = True,
        events: bool = False,
        crash_after: str | None = None,
    ) -> Drained:
        """Run the due jobs and those they enqueue, one after another, until none is due; return the attempts.

        A handler's exception is raised here after its outcome is written, or only reported without `raise_errors`.
        Raises AssertionError if jobs are still due after `limit` attempts (default 1000) or `timeout` (default 30 s).
        `events`: also make the jobs of events that handlers of `@app.on` subscribed to, including the events of this
        transaction. Relays publish nothing. Default: False. `crash_after`: the name of a step of `job.step`; after its
        record the worker dies, once, and another attempt goes on. Default: none.
        """
        feed = self._verbs.feed if events else None
        work = _drain(limit, timeout, feed, raise_errors=raise_errors, crash_after=crash_after)
        return await self._verbs.staged(self._run, _IN_THREAD, work)

    @_awaited
    async def run_until(self, step: str) -> None:
        """Run due jobs, past sleeps, until a story waits at this step or message. Raises AssertionError otherwise."""
        await self._verbs.run_until(self._run, partial(self._verbs.staged, self._run, _IN_THREAD), step)

    @_awaited
    async def run_job(
        self,
        job: NewJob[Any] | Handle[Any],
        *,
        timeout: Duration = LONGEST,  # noqa: ASYNC109 - as in drain
        raise_errors: bool = True,
    ) -> Ran:
        """Run only this job, due or not. A new job is enqueued first.

        `timeout`: for the handler, seconds or a timedelta. Default: 30 seconds. See `drain` for `raise_errors`.
        """
        return await self._verbs.staged(self._run, _IN_THREAD, _run_job(job, timeout, raise_errors=raise_errors))

    @_awaited
    async def run_schedule(
        self,
        name: str,
        *,
        timeout: Duration = LONGEST,  # noqa: ASYNC109 - as in drain
        raise_errors: bool = True,
    ) -> Ran:
        """Enqueue the job of this schedule, as in one of its slots, and run it. See `run_job` for the arguments."""
        job = self._verbs.scheduled(name)
        return await self._verbs.staged(self._run, _IN_THREAD, _run_job(job, timeout, raise_errors=raise_errors))

    @_awaited
    async def travel(
        self, span: Duration = 0, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> None:
        """Move time forward for the stored jobs, without waiting: delays, retries, expiry, leases, windows.

        `span`: seconds or a timedelta. Default: 0. `days`, `hours`, `minutes` and `seconds`: added to it, each in its
        unit: days, hours, minutes, seconds. Default: 0.
        """
        await self._verbs.travel(self._run, _span(span, days, hours, minutes, seconds))

    async def _run(self, statement: Statement[T]) -> T:
        with _own_statements():
            return await run(cast("AsyncConnection", self.connection), as_text(statement))


class SyncTesting:
    """The verbs of a test for synchronous connections: `kit.sync`. See the same verb of `Testing`."""

    def __init__(self, verbs: KitVerbs, connection: SyncConnection) -> None:
        self._verbs = verbs
        self._connection = connection

    @_explained
    def assert_enqueued(self, job: NewJob[Any], *, times: int = 1) -> None:
        """Fail unless this job was enqueued. See `Testing.assert_enqueued`."""
        __tracebackhide__ = True
        at_once(self._verbs.assert_enqueued(self._run, job, times))

    @_explained
    def enqueued(self, kind: AnyKind) -> list[Enqueued]:
        """Return the jobs of a kind, waiting or ended, oldest first. See `Testing.enqueued`."""
        return at_once(self._verbs.enqueued(self._run, _name_of(kind)))

    @_explained
    def drain(
        self,
        *,
        limit: int = MOST,
        timeout: Duration = LONGEST,
        raise_errors: bool = True,
        events: bool = False,
        crash_after: str | None = None,
    ) -> Drained:
        """Run the due jobs and those they enqueue, and return the attempts. See `Testing.drain`.

        Plain handlers run in this thread, where nothing can stop them.
        """
        feed = self._verbs.feed if events else None
        return self._staged(_drain(limit, timeout, feed, raise_errors=raise_errors, crash_after=crash_after))

    @_explained
    def run_until(self, step: str) -> None:
        """Run the due jobs until a story waits at this step or for this message. See `Testing.run_until`."""

        async def staged(work: Work[T]) -> T:
            return self._staged(work)

        at_once(self._verbs.run_until(self._run, staged, step))

    @_explained
    def run_job(self, job: NewJob[Any] | Handle[Any], *, timeout: Duration = LONGEST, raise_errors: bool = True) -> Ran:
        """Run only this job, due or not. See `Testing.run_job`."""
        return self._staged(_run_job(job, timeout, raise_errors=raise_errors))

    @_explained
    def run_schedule(self, name: str, *, timeout: Duration = LONGEST, raise_errors: bool = True) -> Ran:
        """Enqueue the job of this schedule and run it. See `Testing.run_schedule`."""
        return self._staged(_run_job(self._verbs.scheduled(name), timeout, raise_errors=raise_errors))

    @_explained
    def travel(
        self, span: Duration = 0, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> None:
        """Move time forward for the stored jobs, without waiting. See `Testing.travel`."""
        at_once(self._verbs.travel(self._run, _span(span, days, hours, minutes, seconds)))

    async def _run(self, statement: Statement[T]) -> T:
        return self._run_now(as_text(statement))

    def _run_now(self, statement: Statement[T]) -> T:
        with _own_statements():
            return run_sync(self._connection, statement)

    def _staged(self, work: Work[T]) -> T:
        def begin(call: Call) -> Coroutine[Any, Any, T]:
            async def run(statement: Statement[Any]) -> Any:
                return await call(partial(self._run_now, as_text(statement)))

            return self._verbs.staged(run, call, work)

        return drive(begin, of=self._connection)


class KitVerbs:
    """The verbs of a test, once for both sorts of connection; `run` runs a statement on the test's own."""

    def __init__(self, app: Holdfast, state: Any) -> None:
        self._app = app
        self._state = state
        self._passed: dict[int, timedelta] = {}
        """The time passed for each unique window: a row that was moved back would no longer match."""
        self.feed: EventFeed = EventFeed(app)

    async def enqueued(self, run: RunStatement, kind: str) -> list[Enqueued]:
        return await run(enqueued_jobs(kind, partial(enqueued_of, self._app.codec)))

    async def assert_enqueued(self, run: RunStatement, job: NewJob[Any], times: int) -> None:
        __tracebackhide__ = True
        check_new_job(job, "assert_enqueued")
        self._app.import_modules()
        if job.kind not in self._app.kinds:
            raise UnknownKind(f"{job.kind} is no kind of this application")
        kind = self._app.kinds[job.kind]
        default = kind.envelope_of(job.arguments or {}) if isinstance(kind, Kind) else kind.envelope
        expected = Expected(job, default, self._app.codec)
        jobs = await self.enqueued(run, job.kind)
        if sum(expected.fits(found) for found in jobs) != times:
            raise AssertionError(expected.complaint(jobs, await run(enqueued_kinds()), times))

    async def run_until(
        self, run: RunStatement, staged: Callable[[Work[Drained]], Awaitable[Drained]], step: str
    ) -> None:
        for _ in range(MOST):
            await staged(partial(_drain_until, step))
            suspended = await run(suspended_stories())
            if any(story.step == step for story in suspended):
                return
            if (wakes := min((story.sleeps for story in suspended if story.sleeps), default=None)) is None:
                found = ", ".join(story.step for story in suspended) or "nowhere"
                raise AssertionError(f"no story is suspended at {step}; stories are suspended at: {found}")
            await self.travel(run, wakes)

    def scheduled(self, name: str) -> NewJob[Any]:
        """Return the job of a schedule."""
        self._app.import_modules()
        if name in self._app.runners:
            raise HoldfastError(f"{name} is a runner, not a schedule of a job: call its function with a Tick")
        if name not in self._app.schedules:
            known = ", ".join(self._app.schedules) or "none"
            raise HoldfastError(f"{name}: there is no schedule of this name: the schedules are {known}")
        return self._app.schedules[name].job

    async def travel(self, run: RunStatement, span: timedelta) -> None:
        last: int | None = 0
        while last is not None:
            last = await run(advance_jobs(span, last))
        # End the windows that are over by now. The others stay unchanged, so that they still match.
        left = await run(open_windows())
        self._passed = {job: self._passed.get(job, timedelta(0)) + span for job in left}
        if over := [job for job, passed in self._passed.items() if left[job] <= passed.total_seconds()]:
            await run(end_windows(over))

    async def staged(self, run: RunStatement, call: Call, work: Work[T]) -> T:
        async with Stage(self._app, run, call, state=self._state) as stage:
            return await work(stage)


def _name_of(kind: AnyKind) -> str:
    if isinstance(kind, str | NewJob) or not isinstance(getattr(kind, "name", None), str):
        raise TypeError(f"enqueued: expected a kind, as @app.job and app.declare return it, got {type_name(kind)}")
    return kind.name


def _drain(
    limit: int, timeout: Duration, events: EventFeed | None, *, raise_errors: bool, crash_after: str | None = None
) -> Work[Drained]:
    async def drain(stage: Stage) -> Drained:
        stage.recorder.crash_after = crash_after
        return await stage.drain(limit=limit, seconds=_seconds(timeout), raise_errors=raise_errors, events=events)

    return drain


async def _drain_until(step: str, stage: Stage) -> Drained:
    return await stage.drain(limit=MOST, seconds=LONGEST.total_seconds(), raise_errors=True, until=step)


def _run_job(job: NewJob[Any] | Handle[Any], timeout: Duration, *, raise_errors: bool) -> Work[Ran]:
    if not isinstance(job, Handle):
        check_new_job(job, "run_job")
    return lambda stage: stage.run_job(job, seconds=_seconds(timeout), raise_errors=raise_errors)


def _span(span: Duration, days: float, hours: float, minutes: float, seconds: float) -> timedelta:
    """Return the sum, which must not be negative: time does not go back."""
    given = as_timedelta("span", span, limit=_FURTHEST)
    words = {"days": days * 86_400, "hours": hours * 3600, "minutes": minutes * 60, "seconds": seconds}
    return sum((as_timedelta(name, value, limit=_FURTHEST) for name, value in words.items()), start=given)


def _seconds(timeout: Duration) -> float:
    return as_timedelta("timeout", timeout).total_seconds()


async def _in_thread(function: Callable[[], Any]) -> Any:
    result, error = await in_thread(partial(copy_context().run, caught, function), name=NAME)
    if error is not None:
        raise error
    return result


_IN_THREAD = Call(_in_thread)
