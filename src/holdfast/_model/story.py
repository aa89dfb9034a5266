"""The verbs of a story, which is a job whose handler records what it has done: for async and for plain handlers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload

from holdfast._model.step import step_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from datetime import datetime

    from holdfast._model.duration import Duration
    from holdfast._model.message import Receivable
    from holdfast._model.new_job import NewJob
    from holdfast._model.step import Step, Steps

A = TypeVar("A")
C = TypeVar("C")
P = ParamSpec("P")
T = TypeVar("T")


class Story:
    """The verbs of a `Job` that make its handler a story."""

    __slots__ = ()

    @property
    def _steps(self) -> Steps:
        raise NotImplementedError

    @overload
    async def step(
        self, name: str | Step, fn: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...
    @overload
    async def step(self, name: str | Step, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    async def step(self, name: str | Step, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a function until it has returned once, record its result, and return that from then on.

        A plain function runs in a thread. A failure that the handler catches is recorded too, and raised again in its
        place. Raises InvalidStep before the call if the function declares no result type, and LeaseLost when this
        worker no longer holds the job.
        """
        return await self._steps.step(step_of(name), fn, partial(fn, *args, **kwargs))

    async def step_on(
        self,
        conn: C,
        name: str | Step,
        fn: Callable[Concatenate[C, P], Coroutine[Any, Any, T]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Call a function with `conn` first, and record its result in the transaction of `conn`.

        Its writes there commit together with the record, once, or not at all. `conn`: in a transaction of this job's
        database, which you commit. See `step`.
        """
        result: T = await self._steps.step_on(conn, step_of(name), fn, partial(fn, conn, *args, **kwargs))
        return result

    async def sleep(self, name: str | Step, until: Duration | datetime, /) -> None:
        """Suspend the job for a duration, or until a time. It then takes no slot, no lease and no connection.

        `until`: seconds or a timedelta, at most 366 days, or a datetime with a time zone; PostgreSQL's clock decides.
        The handler is cancelled, and called again when the time has come. That counts as no attempt.
        """
        await self._steps.sleep(step_of(name), until)

    @overload
    async def receive(self, message: Receivable[A], /, *, key: str | int | None = None) -> A: ...
    @overload
    async def receive(
        self,
        message: Receivable[A],
        /,
        *,
        key: str | int | None = None,
        timeout: Duration,  # noqa: ASYNC109 - no limit of a call: the job is suspended meanwhile
    ) -> A | None: ...
    async def receive(
        self,
        message: Receivable[A],
        /,
        *,
        key: str | int | None = None,
        timeout: Duration | None = None,  # noqa: ASYNC109 - as above
    ) -> A | None:
        """Return the oldest message of this sort that `app.send` sent to the job, and suspend the job until it comes.

        `key`: as that of a `Step`, when the handler receives this sort more than once. `timeout`: seconds or a
        timedelta, at most 366 days, after which it returns None. Default: no limit.
        """
        received: A | None = await self._steps.receive(message, key, timeout)
        return received

    async def gather(self, name: str | Step, /, *jobs: NewJob[T]) -> list[T]:
        """Enqueue jobs, suspend this one until their chains have ended, and return their results in the same order.

        Raises ChainFailed, for the first of them that did not complete, once all have ended.
        """
        results: list[T] = await self._steps.gather(step_of(name), jobs)
        return results


class SyncStory:
    """The verbs of a story for plain handlers, as `job.sync`. See the same verb of `Job`."""

    __slots__ = ()

    @property
    def _steps(self) -> Steps:
        raise NotImplementedError

    def step(self, name: str | Step, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a plain function until it has returned once, and record its result. See `Job.step`."""
        result: T = self._steps.step_sync(step_of(name), fn, partial(fn, *args, **kwargs))
        return result

    def step_on(
        self, conn: C, name: str | Step, fn: Callable[Concatenate[C, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call a plain function with `conn` first, and record its result there. See `Job.step_on`."""
        call: Callable[[], T] = partial(fn, conn, *args, **kwargs)
        result: T = self._steps.step_on_sync(conn, step_of(name), fn, call)
        return result

    def sleep(self, name: str | Step, until: Duration | datetime, /) -> None:
        """Suspend the job. See `Job.sleep`."""
        self._steps.sleep_sync(step_of(name), until)

    @overload
    def receive(self, message: Receivable[A], /, *, key: str | int | None = None) -> A: ...
    @overload
    def receive(self, message: Receivable[A], /, *, key: str | int | None = None, timeout: Duration) -> A | None: ...
    def receive(
        self, message: Receivable[A], /, *, key: str | int | None = None, timeout: Duration | None = None
    ) -> A | None:
        """Return the oldest message of this sort, and suspend the job until it comes. See `Job.receive`."""
        received: A | None = self._steps.receive_sync(message, key, timeout)
        return received

    def gather(self, name: str | Step, /, *jobs: NewJob[T]) -> list[T]:
        """Enqueue jobs, suspend this one until they have ended, and return their results. See `Job.gather`."""
        results: list[T] = self._steps.gather_sync(step_of(name), jobs)
        return results
