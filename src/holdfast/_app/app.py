"""The Holdfast class: register handlers, enqueue jobs, make workers."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from holdfast._app.arguments import check_instance, check_lifespan
from holdfast._app.client import Client
from holdfast._app.registry import Registry
from holdfast._app.sync import SyncClient
from holdfast._app.verbs import Verbs
from holdfast._archive.tables import SCHEMA, Archive
from holdfast._model.call import explains, suggestion
from holdfast._model.codec import JsonCodec
from holdfast._model.databases import named
from holdfast._model.duration import DAY, MORE_THAN_ZERO, as_timedelta
from holdfast._model.errors import HoldfastError
from holdfast._model.kind import Kind
from holdfast._model.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from holdfast._engine.application import Application, MakeRelaying, Middleware
    from holdfast._engine.runner import Runner
    from holdfast._engine.wake.carriers import Carrier
    from holdfast._engine.worker import Worker
    from holdfast._model.databases import Databases
    from holdfast._model.duration import Duration

Lifespan: TypeAlias = "Callable[[Holdfast], AbstractAsyncContextManager[Any]]"


@explains
class Holdfast(Registry, Client):
    """An application: it registers handlers, enqueues jobs on the caller's connection and makes workers.

    >>> app = Holdfast()
    >>> @app.job("receipt.send", queue="mail")
    ... async def send_receipt(job: Job[None], invoice_id: int, to: str) -> str: ...
    >>> send_receipt.new(7, to="a@b.c").payload
    '{"invoice_id":7,"to":"a@b.c"}'
    """

    def __init__(  # noqa: PLR0913 - one keyword per part of an application
        self,
        url: str | Databases | None = None,
        *,
        lifespan: Lifespan | None = None,
        codec: JsonCodec | None = None,
        wake: Carrier | None = None,
        imports: Sequence[str] = (),
        archives: Sequence[Archive] = (),
    ) -> None:
        """Create an application for the database at `url`, or for several `Databases`. Default: HOLDFAST_DATABASE_URL.

        `lifespan(app)`: an async context manager; all handlers share the value it yields as `job.state`. Default: none.
        `codec`: encodes payloads. Default: `JsonCodec()`. `wake`: a broker that carries wake-ups, `RedisWake(url)` or
        `NatsWake(url)`, in place of LISTEN in every worker. Default: LISTEN. `imports`: modules with handlers, such as
        `["shop.jobs"]`; they are imported when a worker, a command or a drain begins. Default: none.
        `archives`: tables whose old rows leave, each an `Archive`. Default: none.
        """
        self.archives: tuple[Archive, ...] = _checked_archives(archives)
        """The tables whose old rows leave."""
        self.imports: tuple[str, ...] = _checked_imports(imports)
        """The modules that `import_modules` imports."""
        check_lifespan(lifespan)
        check_instance("codec", codec, ("encode", "decode"), "JsonCodec()")
        check_instance("wake", wake, ("wake",), "RedisWake(address)")
        Registry.__init__(self, codec or JsonCodec())
        verbs = Verbs(url, codec=self.codec, listeners=self.listeners, carrier=wake)
        Client.__init__(self, verbs)
        self.sync: SyncClient = SyncClient(verbs)
        """The same verbs for synchronous connections: `app.sync.enqueue(conn, job)`."""
        self.lifespan = lifespan
        self._wake = wake

    def import_modules(self) -> None:
        """Import the modules named in `imports`, so that their handlers are registered.

        Workers, commands and drains of tests do it when they begin. Raises HoldfastError with the module and the reason
        if one cannot be imported.
        """
        for name in self.imports:
            try:
                import_module(name)
            except Exception as exc:
                raise HoldfastError(f"imports: {name} cannot be imported: {type(exc).__name__}: {exc}") from exc

    if not TYPE_CHECKING:  # a type checker rejects a misspelled name by itself

        def __getattr__(self, name: str) -> NoReturn:
            if (verb := name.removesuffix("_sync")) != name and hasattr(SyncClient, verb):
                raise AttributeError(f"app.{name}: there is no such method: write app.sync.{verb}(…)")
            near = suggestion(name, (known for known in dir(type(self)) if not known.startswith("_")))
            raise AttributeError(f"app.{name}: there is no such method{f': {near}' if near else ''}")

    def worker(  # noqa: PLR0913 - one keyword per option
        self,
        *,
        id: str | None = None,  # noqa: A002 - the usual name
        queues: Mapping[str, int] | None = None,
        concurrency: int | None = None,
        kinds: Iterable[str] | None = None,
        middlewares: Sequence[Middleware] = (),
        poll_interval: Duration | None = None,
        next_job_delay: Mapping[str, Duration] | None = None,
        **settings: Any,
    ) -> Worker:
        """Return a worker for this application: `async with app.worker(queues={"default": 10}): …`.

        `id`: the worker's name. `queues`: concurrency by queue. Default: the settings'. `concurrency`: the number of
        handlers at once in all. Default: the sum of `queues`, or the settings'. `kinds`: the names of the only kinds
        to run. Default: all that have a handler. `middlewares`: of this worker alone, inside those of the application.
        Default: none.
        `poll_interval`: the longest pause when idle. Default: the settings'. `next_job_delay`: by queue, the pause of a
        slot between two jobs. Default: none. Durations are in seconds or timedeltas. `settings`: fields of `Settings`;
        they win over the environment.
        """
        return worker_of(
            self,
            Settings.load(os.environ, **settings, **chosen(concurrency=concurrency)),
            id=id,
            queues=queues,
            concurrency=concurrency,
            kinds=kinds,
            middlewares=middlewares,
            poll_interval=poll_interval,
            next_job_delay=next_job_delay,
        )

    def run_worker(  # noqa: PLR0913 - one keyword per option
        self,
        *,
        id: str | None = None,  # noqa: A002 - the usual name
        queues: Mapping[str, int] | None = None,
        concurrency: int | None = None,
        kinds: Iterable[str] | None = None,
        middlewares: Sequence[Middleware] = (),
        poll_interval: Duration | None = None,
        next_job_delay: Mapping[str, Duration] | None = None,
        max_jobs: int | None = None,
        **settings: Any,
    ) -> int:
        """Run a worker in this process until SIGINT or SIGTERM stops it: `sys.exit(app.run_worker())` in a script.

        It blocks, and stops as `holdfast worker` does; it returns the same exit status, and changes no logging. Call it
        in the main thread, under `if __name__ == "__main__":`. `max_jobs`: stop gently after this number of jobs.
        Default: never. See `worker` for the other arguments.
        """
        loaded = Settings.load(os.environ, **settings, **chosen(concurrency=concurrency))
        from holdfast._engine.foreground import run_in_foreground

        make = partial(
            worker_of,
            self,
            loaded,
            id=id,
            queues=queues,
            concurrency=concurrency,
            kinds=kinds,
            middlewares=middlewares,
            poll_interval=poll_interval,
            next_job_delay=next_job_delay,
            max_jobs=max_jobs,
        )
        return run_in_foreground(lambda: nullcontext(make()), loaded)

    @asynccontextmanager
    async def embedded_worker(  # noqa: PLR0913 - one keyword per option
        self,
        _web: object = None,
        /,
        *,
        id: str | None = None,  # noqa: A002 - the usual name
        queues: Mapping[str, int] | None = None,
        concurrency: int | None = None,
        kinds: Iterable[str] | None = None,
        middlewares: Sequence[Middleware] = (),
        poll_interval: Duration | None = None,
        next_job_delay: Mapping[str, Duration] | None = None,
        **settings: Any,
    ) -> AsyncGenerator[None, None]:
        """Run a worker in a web process if HOLDFAST_WORKER_ENABLED is true: the lifespan of an ASGI application.

        `FastAPI(lifespan=app.embedded_worker)`, or in a lifespan of your own: `async with app.embedded_worker(): …`. If
        the database does not respond, the web process starts after 1.5 seconds and the worker keeps trying to connect.
        See `worker` for the arguments.
        """
        loaded = Settings.load(os.environ, **settings, **chosen(concurrency=concurrency))
        if not loaded.worker_enabled:
            yield
            return
        from holdfast._engine.served import START_SECONDS

        async with worker_of(
            self,
            loaded,
            id=id,
            queues=queues,
            concurrency=concurrency,
            kinds=kinds,
            middlewares=middlewares,
            poll_interval=poll_interval,
            next_job_delay=next_job_delay,
            patience=START_SECONDS,
        ):
            yield

    def relays(self, settings: Settings) -> MakeRelaying | None:
        """Return a factory of relays for this application's subscriptions; None when it has none."""
        if not self._subscriptions:
            return None
        from holdfast._relay.relays import Relays

        return partial(Relays, subscriptions=list(self._subscriptions.values()), settings=settings, codec=self.codec)

    def archive_names(self, settings: Settings) -> list[str]:
        """Return the names of the archive's runners: none when nothing is archived."""
        from holdfast._archive.runners import CLEANUP, EXPORT

        return [CLEANUP, EXPORT] if settings.archive_bucket else [CLEANUP] if self.archives else []

    def archive_runners(self, settings: Settings) -> Callable[[str], Sequence[Runner]] | None:
        """Return a factory of the archive's runners for a database; None when nothing is archived."""
        names = self.archive_names(settings)
        if taken := [name for name in names if name in self.runners or name in self.schedules]:
            raise HoldfastError(f"{taken[0]}: the archive has a runner of this name: choose another one for yours")
        if not names:
            return None
        from holdfast._app.archiving import archive_runners

        return archive_runners(settings, self.archives)


def _checked_imports(given: object) -> tuple[str, ...]:
    example = 'imports: expected a list of modules, such as ["shop.jobs"]'
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"{example}, got {type(given).__name__}")
    for name in given:
        if not isinstance(name, str) or not all(part.isidentifier() for part in name.split(".")):
            raise ValueError(f"{example}, got {name!r:.60}")
    return tuple(dict.fromkeys(given))


def _checked_archives(given: object) -> tuple[Archive, ...]:
    example = 'archives: expected a list such as [Archive("orders", "created_at", hot="12 months")]'
    if not isinstance(given, Iterable) or isinstance(given, str):
        raise TypeError(f"{example}, got {type(given).__name__}")
    archives = tuple(given)
    for archive in archives:
        if not isinstance(archive, Archive):
            raise TypeError(f"{example}, got {type(archive).__name__} in it")
    if twice := [
        archive.source for n, archive in enumerate(archives) if archive.source in [a.source for a in archives[:n]]
    ]:
        raise ValueError(f"archives: {twice[0]} is declared twice")
    # In the schema `archive`, public.sales_orders and sales.orders have the same name.
    for n, archive in enumerate(archives):
        for other in archives[:n]:
            if archive.archived_name == other.archived_name:
                raise ValueError(
                    f"archives: the rows of {other.source} and of {archive.source} would both be in the table "
                    f"{SCHEMA}.{archive.archived_name}: rename one of the tables"
                )
    return archives


def application_of(app: Holdfast, settings: Settings, *, url: str | None = None) -> Application:
    """Return the value that the engine runs. `url`: the database to serve instead of the application's own."""
    from holdfast._engine.application import Application

    app.import_modules()
    verbs = app._verbs  # noqa: SLF001 - a part of the same object
    return Application(
        databases=named([url]) if url else verbs.databases_with(settings),
        databases_file=None if url or verbs.has_own else settings.databases_file,
        settings=settings,
        kinds={name: kind for name, kind in app.kinds.items() if isinstance(kind, Kind)},
        codec=app.codec,
        middlewares=app.middlewares,
        listeners=app.listeners,
        failure_hooks=app.failure_hooks,
        dead_letter_hooks=app.dead_letter_hooks,
        runners=app.runners,
        schedules=app.schedules,
        limits=app.limits,
        lifespan=nullcontext if app.lifespan is None else partial(app.lifespan, app),
        wake=app._wake,  # noqa: SLF001 - a part of the same object
        relays=app.relays(settings),
        archive=app.archive_runners(settings),
        archive_names=app.archive_names(settings),
    )


def worker_of(
    app: Holdfast,
    settings: Settings,
    *,
    kinds: Iterable[str] | None = None,
    middlewares: Sequence[Middleware] = (),
    poll_interval: Duration | None = None,
    **options: Any,
) -> Worker:
    """Return a worker for an application. `options`: of `Worker`."""
    if poll_interval is not None:
        interval = as_timedelta("poll_interval", poll_interval, least=MORE_THAN_ZERO, limit=DAY)
        settings = settings.polling_every(interval)
    part = _part(application_of(app, settings), kinds, middlewares)
    # A process that only enqueues does not import the engine, which is half of the package.
    from holdfast._engine.worker import Worker

    return Worker(part, **options)


def chosen(**options: Any) -> dict[str, Any]:
    """Return the options that are not None."""
    return {name: value for name, value in options.items() if value is not None}


def _part(application: Application, kinds: Iterable[str] | None, middlewares: Sequence[Middleware]) -> Application:
    """Return what a worker of these kinds runs, with these middlewares inside the application's."""
    if middlewares:
        application = replace(application, middlewares=[*application.middlewares, *middlewares])
    if kinds is None:
        return application
    names, known = list(kinds), application.kinds
    if isinstance(kinds, str) or not names:
        raise ValueError(f'kinds: expected a list of names such as ["receipt.send"], got {kinds!r:.60}')
    if unknown := [str(name) for name in names if name not in known]:
        raise ValueError(f"kinds: no handler is registered for {', '.join(unknown)}; there are {', '.join(known)}")
    return replace(application, kinds={name: known[name] for name in names})
