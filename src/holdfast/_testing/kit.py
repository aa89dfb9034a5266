"""`Testing`: the verbs with which a test inspects and runs an application's jobs."""

from __future__ import annotations

from contextvars import copy_context
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from holdfast._drivers import AsyncConnection, SyncConnection, run, run_sync
from holdfast._engine.keeper import in_thread
from holdfast._model.duration import as_timedelta
from holdfast._model.errors import UnknownKind
from holdfast._model.kind import Kind
from holdfast._model.new_job import OMITTED
from holdfast._store.testing import advance_jobs, end_windows, enqueued_jobs, enqueued_kinds, open_windows
from holdfast._testing.results import Enqueued, Expected, enqueued_of
from holdfast._testing.stage import NAME, Stage, as_text, at_once, drive

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from holdfast._app.app import Holdfast
    from holdfast._app.registry import AnyKind
    from holdfast._model.duration import Duration
    from holdfast._model.job import Handle
    from holdfast._model.new_job import NewJob
    from holdfast._store.statement import Statement
    from holdfast._testing.results import Drained, Ran
    from holdfast._testing.stage import Call, StageRun

    Work = Callable[[Stage], Coroutine[Any, Any, "T"]]


T = TypeVar("T")

MOST = 1000
LONGEST = timedelta(seconds=30)


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
        self.sync = SyncTesting(verbs, cast("SyncConnection", connection))
        """The same verbs for synchronous connections: `kit.sync.drain()`."""
        self._verbs = verbs

    async def assert_enqueued(self, job: NewJob[Any], *, times: int = 1) -> None:
        """Fail unless this job was enqueued: with its kind, payload and given options, whether it waits or has ended.

        `times`: how many such jobs there must be. Default: 1.
        """
        __tracebackhide__ = True
        await self._verbs.assert_enqueued(self._run, job, times)

    async def enqueued(self, kind: AnyKind) -> list[Enqueued]:
        """Return the jobs of a kind, waiting or ended, oldest first; at most the last 10,000."""
        return await self._verbs.enqueued(self._run, kind.name)

    async def drain(self, *, limit: int = MOST, timeout: Duration = LONGEST, raise_errors: bool = True) -> Drained:  # noqa: ASYNC109 - also aborts the handler
        """Run the due jobs and those they enqueue, one after another, until none is due; return the attempts.

        A handler's exception is raised here after its outcome is written, or only reported without `raise_errors`.
        Raises AssertionError if jobs are still due after `limit` attempts (default 1000) or `timeout` (default 30 s).
        """
        return await self._verbs.staged(self._run, _in_thread, _drain(limit, timeout, raise_errors=raise_errors))

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
        return await self._verbs.staged(self._run, _in_thread, _run_job(job, timeout, raise_errors=raise_errors))

    async def advance(self, span: timedelta) -> None:
        """Advance time by `span` for the stored jobs, without waiting: delays, retries, expiry, leases, windows."""
        await self._verbs.clock.advance(self._run, span)

    async def _run(self, statement: Statement[T]) -> T:
        return await run(cast("AsyncConnection", self.connection), as_text(statement))


class SyncTesting:
    """The verbs of a test for synchronous connections: `kit.sync`. See the same verb of `Testing`."""

    def __init__(self, verbs: KitVerbs, connection: SyncConnection) -> None:
        self._verbs = verbs
        self._connection = connection

    def assert_enqueued(self, job: NewJob[Any], *, times: int = 1) -> None:
        """Fail unless this job was enqueued. See `Testing.assert_enqueued`."""
        __tracebackhide__ = True
        at_once(self._verbs.assert_enqueued(self._run, job, times))

    def enqueued(self, kind: AnyKind) -> list[Enqueued]:
        """Return the jobs of a kind, waiting or ended, oldest first. See `Testing.enqueued`."""
        return at_once(self._verbs.enqueued(self._run, kind.name))

    def drain(self, *, limit: int = MOST, timeout: Duration = LONGEST, raise_errors: bool = True) -> Drained:
        """Run the due jobs and those they enqueue, and return the attempts. See `Testing.drain`.

        Plain handlers run in this thread, where nothing can stop them.
        """
        return self._staged(_drain(limit, timeout, raise_errors=raise_errors))

    def run_job(self, job: NewJob[Any] | Handle[Any], *, timeout: Duration = LONGEST, raise_errors: bool = True) -> Ran:
        """Run only this job, due or not. See `Testing.run_job`."""
        return self._staged(_run_job(job, timeout, raise_errors=raise_errors))

    def advance(self, span: timedelta) -> None:
        """Advance time by `span` for the stored jobs, without waiting. See `Testing.advance`."""
        at_once(self._verbs.clock.advance(self._run, span))

    async def _run(self, statement: Statement[T]) -> T:
        return run_sync(self._connection, as_text(statement))

    def _staged(self, work: Work[T]) -> T:
        def begin(call: Call) -> Coroutine[Any, Any, T]:
            async def run(statement: Statement[Any]) -> Any:
                return await call(partial(run_sync, self._connection, as_text(statement)))

            return self._verbs.staged(run, call, work)

        return drive(begin, of=self._connection)


class KitVerbs:
    """The verbs of a test, once for both sorts of connection; `run` runs a statement on the test's own."""

    def __init__(self, app: Holdfast, state: Any) -> None:
        self._app = app
        self._state = state
        self.clock = Clock()

    async def enqueued(self, run: StageRun, kind: str) -> list[Enqueued]:
        return [enqueued_of(row, self._app.codec) for row in await run(enqueued_jobs(kind))]

    async def assert_enqueued(self, run: StageRun, job: NewJob[Any], times: int) -> None:
        __tracebackhide__ = True
        self._app.import_modules()
        if job.kind not in self._app.kinds:
            raise UnknownKind(f"{job.kind} is no kind of this application")
        kind = self._app.kinds[job.kind]
        default = kind.envelope_of(job.arguments or {}) if isinstance(kind, Kind) else kind.envelope
        expected = Expected(job, default, self._app.codec)
        jobs = await self.enqueued(run, job.kind)
        if sum(expected.fits(found) for found in jobs) != times:
            kinds = {} if jobs else await run(enqueued_kinds())
            raise AssertionError(expected.complaint(jobs, kinds, times))

    async def staged(self, run: StageRun, call: Call, work: Work[T]) -> T:
        async with Stage(self._app, run, call, state=self._state) as stage:
            return await work(stage)


def _drain(limit: int, timeout: Duration, *, raise_errors: bool) -> Work[Drained]:
    return lambda stage: stage.drain(limit=limit, seconds=_seconds(timeout), raise_errors=raise_errors)


def _run_job(job: NewJob[Any] | Handle[Any], timeout: Duration, *, raise_errors: bool) -> Work[Ran]:
    return lambda stage: stage.run_job(job, seconds=_seconds(timeout), raise_errors=raise_errors)


def _seconds(timeout: Duration) -> float:
    return as_timedelta("timeout", timeout).total_seconds()


async def _in_thread(function: Callable[[], Any]) -> Any:
    return await in_thread(partial(copy_context().run, function), name=NAME)


class Clock:
    """Tracks the time passed for each unique window, because a row that was moved back would no longer match."""

    def __init__(self) -> None:
        self._passed: dict[int, timedelta] = {}

    async def advance(self, run: StageRun, span: timedelta) -> None:
        if span < timedelta(0):
            raise ValueError("time does not go back")
        last: int | None = 0
        while last is not None:
            last = await run(advance_jobs(span, last))
        await self._advance_windows(run, span)

    async def _advance_windows(self, run: StageRun, span: timedelta) -> None:
        """End the windows that are over by now. The others stay unchanged, so that they still match."""
        left = await run(open_windows())
        self._passed = {job: self._passed.get(job, timedelta(0)) + span for job in left}
        over = [job for job, passed in self._passed.items() if left[job] <= passed.total_seconds()]
        if over:
            await run(end_windows(over))
