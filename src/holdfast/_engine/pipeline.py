"""A worker's way to one database: it connects, registers the worker there, and starts serving."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeAlias
from uuid import uuid4

import psycopg

from holdfast import _drivers as drivers
from holdfast._engine.jobs.heartbeat import Vitals, database_of
from holdfast._engine.keeper import Keeper
from holdfast._engine.link import LOST, Links, Outage, check_isolation
from holdfast._engine.serving import Registered, Serving
from holdfast._logs.log import Log
from holdfast._model.errors import AbortReason, DatabaseRefused, SchemaMissing
from holdfast._model.settings import SettingsError
from holdfast._model.work import Lease
from holdfast._store.inspect import read_server
from holdfast._store.lease import release_strays
from holdfast._store.schema import check_async
from holdfast._store.worker import (
    ensure_partitions,
    identify_database,
    read_identity,
    read_queues,
    register_worker,
    stop_worker,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from uuid import UUID

    from holdfast._engine.attempt import Attempt
    from holdfast._engine.keeper import Kept, Turn
    from holdfast._engine.link import Link
    from holdfast._engine.serving import WorkerParts
    from holdfast._model.settings import Settings
    from holdfast._store.inspect import ServerInfo
    from holdfast._store.lease import Held
    from holdfast._store.statement import Statement

log = Log(__name__)

# At the stop, a claim under way and any last statement get this many seconds.
STOP_SECONDS = 5.0
LISTEN_SECONDS = 1.0
# Loops that are cancelled at the end have this many seconds to finish.
LEAVE_SECONDS = 1.0
# Errors for a connection that the server will always refuse. libpq has no code for them, only the text; in languages
# other than English they count as temporary.
_REFUSED = re.compile(
    r'FATAL:\s+(?:(?:database|role) ".*" does not exist|password authentication failed'
    r'|role ".*" is not permitted to log in|no pg_hba\.conf entry|permission denied for database)'
)
_MS = timedelta(milliseconds=1)
_NOTHING_HELD: Mapping[Held, Attempt] = MappingProxyType({})


class Pipeline:
    """One database's part of a worker. `async with` starts it and stops it at once; `Worker` stops gracefully."""

    def __init__(
        self, name: str, url: str, parts: WorkerParts, *, patience: float | None, keeps_trying: Callable[[], bool]
    ) -> None:
        """`patience`: seconds to wait at the start; one that answers later is served from then on. None: no limit.

        `keeps_trying()`: whether a database that refuses the worker is tried again, because others are served.
        """
        self.name = name
        self.url = url
        self._parts = parts
        self._patience = patience
        self._keeps_trying = keeps_trying
        self._outage = Outage(log, "a database cannot be served yet", database=name)
        self.links = Links(url, name=name, timeout=parts.application.settings.lease.total_seconds())
        self.keeper = Keeper(parts.name, on_broken=parts.on_broken, database=name)
        self._identity = uuid4()
        self._starting: Kept | None = None
        self._stopping = False
        self._renaming: set[asyncio.Task[None]] = set()
        self.serving: Serving | None = None
        """None until the database has answered for the first time."""
        self.on_events: Callable[[], None] = lambda: None
        """Called when an event may have been published."""
        self.refused: DatabaseRefused | None = None
        """Why this database will never be served, if that was found after the start."""

    async def __aenter__(self) -> Self:
        try:
            async with asyncio.timeout(self._patience):
                await self._start()
        except Exception as exc:
            # With several databases, a failure of one must not affect the others: it is retried.
            if not self._keeps_trying():
                if (why := refusal(exc)) is not None:
                    await self.links.abandon()
                    raise DatabaseRefused(_refusal_of(self.url, why)) from None
                if not isinstance(exc, (*LOST, TimeoutError)):
                    await self.links.abandon()
                    raise
            self._starting = self.keeper.start("start", partial(self._start_later, self._outage.failed(exc)))
        except BaseException:
            await self.links.abandon()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(self._end_loops(), *([] if self.serving is None else [self.serving.end_heartbeat()]))

    async def _end_loops(self) -> None:
        # Cancelling a statement waits for the server. Closing its connection does not.
        await self.links.abandon()
        await self.keeper.stop(LEAVE_SECONDS)

    async def _start_later(self, rest: float, turn: Turn) -> None:
        while self.serving is None:
            turn(rest)
            await asyncio.sleep(rest)
            try:
                await self._start()
                self._outage.over()
            except Exception as exc:  # noqa: BLE001 - every error is logged, and the other databases are served
                rest = self._outage.failed(exc)
                if not self._keeps_trying() and ((why := refusal(exc)) is not None or isinstance(exc, SchemaMissing)):
                    # The server was unreachable at the start. Now it answers, and its answer will not change.
                    self.refused = DatabaseRefused(_refusal_of(self.url, why or exc))
                    self._parts.on_broken("start")
                    return

    async def _start(self) -> None:
        """Start completely or not at all: nothing is awaited after the worker is registered."""
        application, link = self._parts.application, self.links.claim
        await link.run_with(check_async)
        await link.run_with(check_isolation)
        await link.run_with(partial(check_headroom, settings=application.settings))
        await link.run(ensure_partitions())
        queues = await link.run(read_queues())
        listens = self._parts.listening and application.wake is not None
        database = await link.run(identify_database()) if listens else ""
        schema = await link.run(read_identity())
        worker = await link.run(registration(self._parts, self._identity))
        if self._stopping:
            await link.run(stop_worker(worker, "stopped"))
            return
        registered = Registered(worker, self._identity, queues, database, schema)
        self.serving = Serving(
            self._parts, self.links, registered, on_events=self._published, on_disowned=self.disowned
        )
        self.serving.start(self.keeper)

    def _published(self) -> None:
        self.on_events()

    def disowned(self, worker: int) -> None:
        """Register again: the row with this id is gone or another worker's, for example after a restore from a backup.

        The answer to a beat under the old id may arrive after the worker has its new id. It is ignored.
        """
        serving = self.serving
        if serving is not None and worker == serving.worker and not self._stopping and not self._renaming:
            log.error("the row of this worker is gone or another's: registering anew", extra={"worker": worker})
            serving.held_jobs.abort_all(AbortReason.not_found)
            task = asyncio.create_task(self._register_again(serving))
            self._renaming.add(task)
            task.add_done_callback(self._renaming.discard)

    async def _register_again(self, serving: Serving) -> None:
        link = self.links.claim
        try:
            worker = await link.run(registration(self._parts, self._identity))
            if self._stopping:
                await link.run(stop_worker(worker, "stopped"))
                return
        except (*LOST, TimeoutError) as exc:
            log.warning("could not register anew, trying again", extra={"why": str(exc)})
            return
        serving.rename(worker)
        # Jobs claimed since then carry the old id, which belongs to another worker.
        serving.held_jobs.abort_all(AbortReason.not_found)

    @property
    def link(self) -> Link:
        """A connection for short statements of other parts. They run between two batches of outcomes."""
        return self.links.finish

    @property
    def worker(self) -> int:
        """The id of this worker's row in this database; 0 until the database has answered for the first time."""
        return 0 if self.serving is None else self.serving.worker

    @property
    def held(self) -> Mapping[Held, Attempt]:
        return _NOTHING_HELD if self.serving is None else self.serving.held_jobs.held

    @property
    def counts(self) -> Counter[str]:
        return Counter() if self.serving is None else self.serving.held_jobs.counts

    @property
    def reaped(self) -> Counter[str]:
        """The jobs that this worker reaped, by what they became."""
        return Counter() if self.serving is None else self.serving.reaped

    @property
    def vitals(self) -> Vitals:
        """The health of this database's pipeline. Safe to read from any thread."""
        vitals, serving = Vitals(self.name, loops=tuple(self.keeper.vitals)), self.serving
        return vitals if serving is None else serving.add_to(vitals)

    @property
    def listening(self) -> bool:
        """Whether notifications arrive."""
        return self.serving is not None and self.serving.waker.listening.is_set()

    async def wait_until_listening(self) -> None:
        """Wait until notifications arrive, at most one second: jobs are also polled for."""
        if self.serving is not None and self._parts.listening:
            with suppress(TimeoutError):
                async with asyncio.timeout(LISTEN_SECONDS):
                    await self.serving.waker.listening.wait()

    def lend(self) -> None:
        """From now on, lend the slots of running jobs to the other databases while this one does not answer."""
        if self.serving is not None:
            self.serving.lend()

    def stop_claiming(self) -> None:
        """Claim nothing more, and give back jobs that have not started. Their attempts do not count."""
        self._stopping = True
        if self._starting is not None:
            self._starting.cancel()
        if self.serving is not None:
            self.serving.stop_claiming()

    async def claims_ended(self, seconds: float) -> None:
        """Wait at most `seconds` for a claim under way. The jobs it takes are given back."""
        seconds = min(seconds, STOP_SECONDS)
        waits = [] if self._starting is None else [self._starting.wait(seconds)]
        claims = [] if self.serving is None else [self.serving.claims_ended(seconds)]
        await asyncio.gather(*waits, *claims)

    async def say_stopped(self, reason: str, seconds: float) -> None:
        """Record that the worker stopped, within `seconds`."""
        seconds = min(seconds, STOP_SECONDS)
        self.links.hurry(seconds)
        if self.links.claim.unanswered:
            reason += ", with a claim unanswered"
        if self.serving is not None:
            timer = asyncio.get_running_loop().call_later(seconds, self.link.hurry, 0.0)
            try:
                # A claim that was cancelled because its answer took too long may still have taken jobs.
                await self.link.run(release_strays(self.worker, self.held, self._identity))
                counters = self.serving.counters()
                await self.link.run(stop_worker(self.worker, reason, self._identity, counters=counters))
            except (*LOST, TimeoutError):
                log.warning("could not record that the worker stopped: %s", reason, extra={"database": self.name})
            finally:
                timer.cancel()


def refusal(exc: BaseException) -> str | None:
    """Return the reason if a server refuses the connection permanently. None: a retry may help.

    A server that is down, starting, stopping or out of connections gives other errors.
    """
    if not isinstance(exc, psycopg.OperationalError) or not _REFUSED.search(said := str(exc)):
        return None
    return said.partition("FATAL:")[2].strip().splitlines()[0]


def _refusal_of(url: str, why: object) -> str:
    return f"{database_of(url)}: {why}. Correct the address of the database, or create what is missing"


def registration(parts: WorkerParts, identity: UUID) -> Statement[int]:
    """Return the statement that registers the worker and returns its new id."""
    kinds, settings = parts.application.kinds, parts.application.settings
    lease = Lease(settings.lease.total_seconds())
    return register_worker(
        parts.name,
        queues=parts.dispatcher.slots.queues,
        kinds=kinds,
        identity=identity,
        versions={name: kind.version for name, kind in kinds.items() if kind.version > 1},
        limits={name: kind.work.limit(lease) for name, kind in kinds.items()},
        settings=shown(settings),
    )


def shown(settings: Settings) -> dict[str, int | None]:
    """Return the settings that the outbox statistics show: plain numbers, no secrets."""
    retry = settings.retry
    return {
        "poll_ms": settings.idle_min // _MS,
        "batch_size": settings.batch_size,
        "max_attempts": retry.max_attempts,
        "processing_timeout_ms": settings.lease // _MS,
        "retry_base_ms": retry.delay(1) // _MS,
        "retry_max_ms": max(retry.steps, default=retry.maximum) // _MS,
    }


# One to claim and one to finish; one for the heartbeat; and one that listens.
LINKS, HEARTBEAT, LISTEN = 2, 1, 1

Fits: TypeAlias = Literal["yes", "not now", "never"]


class Headroom(NamedTuple):
    """Whether a process fits, and an explanation for people."""

    fits: Fits
    says: str


def connections_held(settings: Settings) -> int:
    """Return how many connections a worker holds permanently."""
    return LINKS + HEARTBEAT + (LISTEN if settings.listen else 0)


def headroom(server: ServerInfo, settings: Settings) -> Headroom:
    """Compare the budget of a process with the server's limits. The connection that read them is not counted."""
    need, least = settings.max_connections, connections_held(settings)
    if need < least:
        return Headroom("never", f"HOLDFAST_MAX_CONNECTIONS is {need}, and a worker holds {least} all the time")
    limits = [limit for limit in (server.database_limit, server.user_limit) if limit is not None]
    said = (
        f"{need} per process; the server allows {server.max_connections}, {server.reserved} of them reserved, "
        f"{server.used} in use" + (f"; this database or user at most {min(limits)}" if limits else "")
    )
    if need > min([server.max_connections - server.reserved, *limits]):
        return Headroom("never", f"{said}: not one process fits. Lower HOLDFAST_MAX_CONNECTIONS or raise the limit.")
    more = max(0, (server.free + 1) // need)
    if more == 0:
        return Headroom("not now", f"{said}: no room for a process now. Close some, or raise the limit.")
    return Headroom("yes", f"{said}: room for {more} more {'process' if more == 1 else 'processes'}")


async def check_headroom(conn: psycopg.AsyncConnection[Any], *, settings: Settings) -> None:
    """Raise if a process can never fit. Log a warning if it does not fit now: other processes may end soon."""
    server = await drivers.run(conn, read_server())
    if server.backend_pid != conn.info.backend_pid:
        return  # behind a pooler, the connections counted are not ours
    found = headroom(server, settings)
    if found.fits == "never":
        raise SettingsError([f"connections to {conn.info.dbname}: {found.says}"])
    if found.fits == "not now":
        log.warning("connections: %s", found.says, extra={"database": conn.info.dbname})
