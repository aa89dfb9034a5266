"""Testing: what a test asks of an application's jobs."""

from __future__ import annotations

from contextvars import copy_context
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from holdfast.drivers import AsyncConnection, SyncConnection, run, run_sync
from holdfast.engine.runner import in_thread
from holdfast.errors import UnknownKind
from holdfast.new_job import OMITTED
from holdfast.store.testing import enqueued_jobs, enqueued_kinds
from holdfast.testing.clock import Clock
from holdfast.testing.enqueued import Enqueued, Expected, enqueued_of
from holdfast.testing.stage import NAME, Stage, as_text
from holdfast.testing.thread import at_once, drive

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from holdfast.app import Holdfast
    from holdfast.job import Handle
    from holdfast.new_job import NewJob
    from holdfast.registry import AnyKind
    from holdfast.store.statement import Statement
    from holdfast.testing.ran import Drained, Ran
    from holdfast.testing.stage import Run
    from holdfast.testing.thread import Call

    Work = Callable[[Stage], Coroutine[Any, Any, "T"]]

T = TypeVar("T")

MOST = 1000
LONGEST = timedelta(seconds=30)


class Testing:
    """Looks at jobs, runs them and lets time pass for them: on one connection, in whatever transaction that is in.

    Verbs that end in _sync are for sync connections. The others are for async ones, and must be awaited.
    """

    __test__: ClassVar[bool] = False
    """Not a test, though pytest would think so by the name."""

    def __init__(self, app: Holdfast, connection: AsyncConnection | SyncConnection, *, state: Any = OMITTED) -> None:
        """`state`: what handlers get as `job.state`. Default: the application's lifespan, entered for each drain."""
        self.app = app
        self.connection = connection
        self._state = state
        self._clock = Clock()

    async def assert_enqueued(self, job: NewJob[Any], *, times: int = 1) -> None:
        """Fail unless the database has so many jobs, waiting or ended, of this kind, payload and given options."""
        __tracebackhide__ = True
        await self._assert_enqueued(self._await, job, times)

    def assert_enqueued_sync(self, job: NewJob[Any], *, times: int = 1) -> None:
        """Do as `assert_enqueued` does, on a sync connection."""
        __tracebackhide__ = True
        at_once(self._assert_enqueued(self._run, job, times))

    async def enqueued(self, kind: AnyKind) -> list[Enqueued]:
        """Return the jobs of a kind, waiting or ended, oldest first; at most the last 10,000."""
        return await self._enqueued(self._await, kind.name)

    def enqueued_sync(self, kind: AnyKind) -> list[Enqueued]:
        """Do as `enqueued` does, on a sync connection."""
        return at_once(self._enqueued(self._run, kind.name))

    async def drain(self, *, most: int = MOST, timeout: timedelta = LONGEST, raise_errors: bool = True) -> Drained:  # noqa: ASYNC109 - not only a limit for the caller: the handler is told
        """Run what is due, and what that enqueues, one after the other, until nothing is due; return what happened.

        What a handler raises is raised here once its ending is written, or, without `raise_errors`, only reported.
        It is an AssertionError when there is more to do after `most` attempts or after `timeout`.
        """
        return await self._staged(self._await, _in_thread, _drain(most, timeout, raise_errors=raise_errors))

    def drain_sync(self, *, most: int = MOST, timeout: timedelta = LONGEST, raise_errors: bool = True) -> Drained:
        """Do as `drain` does, on a sync connection. Plain handlers run in this thread, where nothing can stop them."""
        return self._staged_sync(_drain(most, timeout, raise_errors=raise_errors))

    async def run_job(
        self,
        job: NewJob[Any] | Handle[Any],
        *,
        timeout: timedelta = LONGEST,  # noqa: ASYNC109 - as in drain
        raise_errors: bool = True,
    ) -> Ran:
        """Run this one job, due or not, and no other. A new job is enqueued first."""
        return await self._staged(self._await, _in_thread, _run_job(job, timeout, raise_errors=raise_errors))

    def run_job_sync(
        self, job: NewJob[Any] | Handle[Any], *, timeout: timedelta = LONGEST, raise_errors: bool = True
    ) -> Ran:
        """Do as `run_job` does, on a sync connection."""
        return self._staged_sync(_run_job(job, timeout, raise_errors=raise_errors))

    async def advance(self, span: timedelta) -> None:
        """Let time pass for the jobs in the database: delays, retries, expiry, leases, unique windows. Nobody waits."""
        await self._clock.advance(self._await, span)

    def advance_sync(self, span: timedelta) -> None:
        """Do as `advance` does, on a sync connection."""
        at_once(self._clock.advance(self._run, span))

    async def _await(self, statement: Statement[T]) -> T:
        return await run(cast("AsyncConnection", self.connection), as_text(statement))

    async def _run(self, statement: Statement[T]) -> T:
        return run_sync(cast("SyncConnection", self.connection), as_text(statement))

    async def _enqueued(self, run: Run, kind: str) -> list[Enqueued]:
        return [enqueued_of(row, self.app.codec) for row in await run(enqueued_jobs(kind))]

    async def _assert_enqueued(self, run: Run, job: NewJob[Any], times: int) -> None:
        __tracebackhide__ = True
        if job.kind not in self.app.kinds:
            raise UnknownKind(f"{job.kind} is no kind of this application")
        expected = Expected(job, self.app.kinds[job.kind].envelope, self.app.codec)
        jobs = await self._enqueued(run, job.kind)
        if sum(expected.fits(found) for found in jobs) != times:
            kinds = {} if jobs else await run(enqueued_kinds())
            raise AssertionError(expected.complaint(jobs, kinds, times))

    async def _staged(self, run: Run, call: Call, work: Work[T]) -> T:
        async with Stage(self.app, run, call, state=self._state) as stage:
            return await work(stage)

    def _staged_sync(self, work: Work[T]) -> T:
        def begin(call: Call) -> Coroutine[Any, Any, T]:
            async def run(statement: Statement[Any]) -> Any:
                return await call(partial(run_sync, cast("SyncConnection", self.connection), as_text(statement)))

            return self._staged(run, call, work)

        return drive(begin, of=self.connection)


def _drain(most: int, timeout: timedelta, *, raise_errors: bool) -> Work[Drained]:
    return lambda stage: stage.drain(most=most, seconds=timeout.total_seconds(), raise_errors=raise_errors)


def _run_job(job: NewJob[Any] | Handle[Any], timeout: timedelta, *, raise_errors: bool) -> Work[Ran]:
    return lambda stage: stage.run_job(job, seconds=timeout.total_seconds(), raise_errors=raise_errors)


async def _in_thread(function: Callable[[], Any]) -> Any:
    return await in_thread(partial(copy_context().run, function), name=NAME)
