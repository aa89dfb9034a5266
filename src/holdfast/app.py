"""Holdfast: where kinds are registered and jobs enqueued."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from holdfast.client import Client
from holdfast.engine.worker import START_SECONDS, Worker
from holdfast.kind import Kind
from holdfast.relay.relays import Relays
from holdfast.settings import Settings, SettingsError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager
    from datetime import timedelta

    from holdfast.codec import JsonCodec
    from holdfast.engine.relaying import MakeRelaying
    from holdfast.engine.wakers import Carrier

Lifespan: TypeAlias = "Callable[[Holdfast], AbstractAsyncContextManager[Any]]"


class Holdfast(Client):
    """An application: its kinds, the verbs that take the caller's own connection, and its workers.

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
        super().__init__(url, codec=codec)
        self.lifespan = lifespan
        self._wake = wake

    async def wake(self, *queues: str) -> bool:
        """Wake whoever sleeps, of these queues or of all: after your commit, and only where nobody can LISTEN.

        False when nobody was told.
        """
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

    def relays(self, settings: Settings) -> MakeRelaying | None:
        """Return what reads the log for this application's subscriptions; None when it has none."""
        if not self._subscriptions:
            return None
        return partial(Relays, subscriptions=list(self._subscriptions.values()), settings=settings, codec=self.codec)

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
            relays=self.relays(loaded),
            **options,
        )
