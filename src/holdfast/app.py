"""Holdfast: where kinds are registered and jobs enqueued."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from holdfast.codec import JsonCodec
from holdfast.drivers import AsyncConnection, SyncConnection, run, run_sync
from holdfast.errors import KindTaken
from holdfast.job import Envelope, Handle, Job, NewJob
from holdfast.kind import DeclaredKind, Kind, Work
from holdfast.retry import Retry
from holdfast.store.cancel import Cancellation, cancel_job
from holdfast.store.enqueue import enqueue_job, enqueue_jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from datetime import timedelta

    from holdfast.lease import Lease

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

Lifespan: TypeAlias = "Callable[[Holdfast], AbstractAsyncContextManager[Any]]"
AnyKind: TypeAlias = Kind[..., Any] | DeclaredKind[Any]


class Holdfast:
    """An application: its kinds, and the verbs that take the caller's own connection.

    >>> app = Holdfast()
    >>> @app.job("receipt.send", queue="mail")
    ... async def send_receipt(job: Job[None], invoice_id: int, to: str) -> str: ...
    >>> send_receipt.new(7, to="a@b.c").payload
    '{"invoice_id":7,"to":"a@b.c"}'
    """

    def __init__(
        self, url: str | None = None, *, lifespan: Lifespan | None = None, codec: JsonCodec | None = None
    ) -> None:
        """`lifespan(app)` is an async context manager; what it yields is `job.state`, shared by all handlers."""
        self.url = url
        self.lifespan = lifespan
        self.codec = codec or JsonCodec()
        self._kinds: dict[str, AnyKind] = {}

    @property
    def kinds(self) -> Mapping[str, AnyKind]:
        """Every kind of this application by its name."""
        return MappingProxyType(self._kinds)

    def job(  # noqa: PLR0913 - one keyword per setting
        self,
        name: str,
        *,
        queue: str = "default",
        priority: int = 5,
        retry: Retry | None = None,
        lease: Lease | None = None,
        max_runtime: timedelta | None = None,
        version: int = 1,
    ) -> Callable[[Callable[Concatenate[Job[Any], P], T]], Kind[P, T]]:
        """Register a handler, `async def` or plain, whose first parameter is the job."""
        work = Work(retry=retry or Retry(), lease=lease, max_runtime=max_runtime)
        envelope = Envelope(name, version, queue=queue, priority=priority, max_attempts=work.retry.max_attempts)

        def register(handler: Callable[Concatenate[Job[Any], P], T]) -> Kind[P, T]:
            kind: Kind[P, T] = Kind(handler, envelope, work=work, codec=self.codec)
            self._register(kind)
            return kind

        return register

    def declare(  # noqa: PLR0913 - one keyword per setting
        self,
        name: str,
        model: type[A],
        *,
        queue: str = "default",
        priority: int = 5,
        max_attempts: int = 3,
        version: int = 1,
    ) -> DeclaredKind[A]:
        """Name a kind whose handler lives elsewhere; `model` is its arguments: pydantic, dataclass or TypedDict."""
        envelope = Envelope(name, version, queue=queue, priority=priority, max_attempts=max_attempts)
        kind = DeclaredKind(model, envelope, codec=self.codec)
        self._register(kind)
        return kind

    async def enqueue(self, conn: AsyncConnection, job: NewJob[R]) -> Handle[R]:
        """Enqueue in the transaction that `conn` is in: the job exists when it commits, and never if it does not."""
        _check_jobs([job])
        return await run(conn, enqueue_job(job))

    async def enqueue_many(self, conn: AsyncConnection, jobs: Sequence[NewJob[R]]) -> list[Handle[R]]:
        """Enqueue any number of jobs with one statement; the handles are in the order of the jobs."""
        _check_jobs(jobs)
        return await run(conn, enqueue_jobs(jobs)) if jobs else []

    def enqueue_sync(self, conn: SyncConnection, job: NewJob[R]) -> Handle[R]:
        """Do as `enqueue` does, on a sync connection."""
        _check_jobs([job])
        return run_sync(conn, enqueue_job(job))

    def enqueue_many_sync(self, conn: SyncConnection, jobs: Sequence[NewJob[R]]) -> list[Handle[R]]:
        """Do as `enqueue_many` does, on a sync connection."""
        _check_jobs(jobs)
        return run_sync(conn, enqueue_jobs(jobs)) if jobs else []

    async def cancel(self, conn: AsyncConnection, job_id: int) -> Cancellation:
        """Cancel a waiting job, or ask the worker that runs it to stop."""
        return await run(conn, cancel_job(job_id))

    def cancel_sync(self, conn: SyncConnection, job_id: int) -> Cancellation:
        """Do as `cancel` does, on a sync connection."""
        return run_sync(conn, cancel_job(job_id))

    def _register(self, kind: AnyKind) -> None:
        if kind.name in self._kinds:
            raise KindTaken(f"{kind.name} is registered already")
        self._kinds[kind.name] = kind


def _check_jobs(jobs: Sequence[NewJob[Any]]) -> None:
    for job in jobs:
        if not isinstance(job, NewJob):
            raise TypeError(f"{type(job).__name__} given where a NewJob is needed: call its .new(...)")
