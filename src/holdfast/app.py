"""Holdfast: where kinds are registered and jobs enqueued."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from holdfast.codec import JsonCodec
from holdfast.drivers import AsyncConnection, SyncConnection, run, run_sync
from holdfast.engine.http import HttpCall
from holdfast.engine.runner import BUILT_IN, PeriodicJob, Runner
from holdfast.engine.worker import START_SECONDS, Worker
from holdfast.errors import HoldfastError, KindTaken
from holdfast.job import Envelope, Handle, Job, NewJob
from holdfast.kind import DeclaredKind, Executor, Kind, Work
from holdfast.retry import Retry
from holdfast.settings import Settings, SettingsError
from holdfast.store.cancel import Cancellation, cancel_job
from holdfast.store.enqueue import enqueue_job, enqueue_jobs

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from datetime import timedelta

    from holdfast.engine.attempt import Middleware
    from holdfast.engine.hook import Hook
    from holdfast.engine.runner import TickFunction
    from holdfast.engine.transition import Listener
    from holdfast.engine.wakers import Carrier
    from holdfast.lease import Lease
    from holdfast.schedule import Schedule

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
F = TypeVar("F", bound="TickFunction")
H = TypeVar("H", bound="Hook")

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
        self,
        url: str | None = None,
        *,
        lifespan: Lifespan | None = None,
        codec: JsonCodec | None = None,
        wake: Carrier | None = None,
    ) -> None:
        """`lifespan(app)` is an async context manager; what it yields is `job.state`, shared by all handlers.

        `wake`: a broker that carries wake-ups, `RedisWake(url)` or `NatsWake(url)`, in place of LISTEN in every worker.
        """
        self.url = url
        self.lifespan = lifespan
        self.codec = codec or JsonCodec()
        self._wake = wake
        self.middlewares: list[Middleware] = []
        self.listeners: list[Listener] = []
        self.failure_hooks: list[Hook] = []
        self.dead_letter_hooks: list[Hook] = []
        self._kinds: dict[str, AnyKind] = {}
        self._runners: dict[str, Runner] = {}
        self._schedules: dict[str, PeriodicJob] = {}

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
        executor: Executor = "thread",
    ) -> Callable[[Callable[Concatenate[Job[Any], P], T]], Kind[P, T]]:
        """Register a handler, `async def` or plain, whose first parameter is the job."""
        work = Work(retry=retry or Retry(), lease=lease, max_runtime=max_runtime, executor=executor)
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

    @property
    def runners(self) -> Mapping[str, Runner]:
        """The application's own runners by name, as registered."""
        return MappingProxyType(self._runners)

    @property
    def schedules(self) -> Mapping[str, PeriodicJob]:
        """The periodic jobs by the name of their schedule."""
        return MappingProxyType(self._schedules)

    def runner(
        self,
        name: str,
        *,
        every: Schedule | None = None,
        singleton: bool = False,
        max_runtime: timedelta | None = None,
    ) -> Callable[[F], F]:
        """Register a cycle: a function, `async def` or plain, that is called with a `Tick` and returns counts.

        With `every` a fleet runs it once per slot; without, each worker runs it again and again, sooner after work than
        when idle. `singleton`: no two at a time in the whole fleet.
        """

        def register(function: F) -> F:
            self._add_runner(Runner(name, function, every=every, singleton=singleton, max_runtime=max_runtime))
            return function

        return register

    def http_runner(
        self,
        name: str,
        path: str,
        *,
        every: Schedule | None = None,
        singleton: bool = True,
        timeout: timedelta | None = None,
    ) -> None:
        """Register a cycle that a service does: POST {WORKER_API_BASE_URL}{path}, answered with JSON counts.

        `timeout`: how long an answer may take. Default: 30 seconds.
        """
        call = HttpCall(path) if timeout is None else HttpCall(path, timeout=timeout)
        self._add_runner(Runner(name, call.tick, every=every, singleton=singleton))

    def schedule(self, name: str, job: NewJob[Any], *, every: Schedule) -> None:
        """Enqueue this job in every slot of a schedule, once however many workers there are."""
        _check_jobs([job])
        self._check_name_free(name)
        self._schedules[name] = PeriodicJob(name, job, every=every)

    def on_failure(self, hook: H) -> H:
        """Register a hook, `async def` or plain, that is called with every `FailedAttempt` of this process, once.

        When its ending is written, beside everything else; what a hook raises is logged.
        """
        self.failure_hooks.append(hook)
        return hook

    def on_dead_letter(self, hook: H) -> H:
        """Register a hook that is called, as `on_failure` is, when a worker of this process made a dead letter."""
        self.dead_letter_hooks.append(hook)
        return hook

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

    async def wake(self, *queues: str) -> bool:
        """Wake whoever sleeps: after your commit, and only where nobody can LISTEN. False when nobody was told."""
        return self._wake is not None and await self._wake.wake(*queues)

    def wake_sync(self, *queues: str) -> bool:
        """Do as `wake` does, where no event loop runs."""
        return asyncio.run(self.wake(*queues))

    def worker(
        self,
        *,
        id: str | None = None,  # noqa: A002 - the word for it everywhere
        queues: Mapping[str, int] | None = None,
        poll_interval: timedelta | None = None,
        next_job_delay: Mapping[str, timedelta] | None = None,
        **settings: Any,
    ) -> Worker:
        """Return a worker for this application: `async with app.worker(queues={"default": 10}): …`.

        `poll_interval`: the longest pause when idle, whatever the settings say. `next_job_delay`: by queue, how long a
        slot rests between two jobs. `settings` are those of the environment by their names in `Settings`; what the
        environment says, wins.
        """
        loaded = Settings.load(os.environ, **settings)
        return self._worker(loaded, id=id, queues=queues, poll_interval=poll_interval, next_job_delay=next_job_delay)

    @asynccontextmanager
    async def embedded_worker(
        self,
        _web: object = None,
        /,
        *,
        id: str | None = None,  # noqa: A002 - the word for it everywhere
        queues: Mapping[str, int] | None = None,
        poll_interval: timedelta | None = None,
        next_job_delay: Mapping[str, timedelta] | None = None,
        **settings: Any,
    ) -> AsyncGenerator[None, None]:
        """Run a worker in a web process if OUTBOX_WORKER_ENABLED is true, else nothing: the lifespan of an ASGI app.

        `FastAPI(lifespan=app.embedded_worker)`, or in a lifespan of your own: `async with app.embedded_worker(): …`.
        A database that does not answer holds the web process up for 1.5 seconds, and is served when it does.
        """
        loaded = Settings.load(os.environ, **settings)
        if not loaded.worker_enabled:
            yield
            return
        async with self._worker(
            loaded,
            id=id,
            queues=queues,
            poll_interval=poll_interval,
            next_job_delay=next_job_delay,
            patience=START_SECONDS,
        ):
            yield

    def _worker(self, loaded: Settings, **options: Any) -> Worker:
        urls = [self.url] if self.url else list(loaded.database_urls)
        if not urls:
            raise SettingsError(["no database: give Holdfast an address, or set HOLDFAST_DATABASE_URL"])
        return Worker(
            urls,
            settings=loaded,
            kinds={name: kind for name, kind in self._kinds.items() if isinstance(kind, Kind)},
            codec=self.codec,
            lifespan=None if self.lifespan is None else partial(self.lifespan, self),
            middlewares=self.middlewares,
            listeners=self.listeners,
            on_failure=self.failure_hooks,
            on_dead_letter=self.dead_letter_hooks,
            runners=self._runners,
            periodic=list(self._schedules.values()),
            wake=self._wake,
            **options,
        )

    def _add_runner(self, runner: Runner) -> None:
        self._check_name_free(runner.name)
        self._runners[runner.name] = runner

    def _check_name_free(self, name: str) -> None:
        if name in BUILT_IN or name in self._runners or name in self._schedules:
            raise HoldfastError(f"{name}: a runner or schedule of this name is there already")

    def _register(self, kind: AnyKind) -> None:
        if kind.name in self._kinds:
            raise KindTaken(f"{kind.name} is registered already")
        self._kinds[kind.name] = kind


def _check_jobs(jobs: Sequence[NewJob[Any]]) -> None:
    for job in jobs:
        if not isinstance(job, NewJob):
            raise TypeError(f"{type(job).__name__} given where a NewJob is needed: call its .new(...)")
