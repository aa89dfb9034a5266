"""The life of a worker in one database: connect, check, register, serve, stop."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from holdfast._engine.headroom import check_headroom
from holdfast._engine.jobs.heartbeat import Vitals
from holdfast._engine.keeper import Keeper
from holdfast._engine.link import LOST, Links, Outage, check_isolation
from holdfast._engine.own_row import OwnRow
from holdfast._engine.registration import Registration
from holdfast._engine.runners.builtin import RUN_NAMES, Minutes, in_background
from holdfast._engine.runners.database import RunnerDatabase
from holdfast._engine.server_refusal import refusal, refused
from holdfast._engine.serving import Found, Serving
from holdfast._engine.session import Control, Session
from holdfast._logs.log import Log
from holdfast._model.errors import AbortReason, SchemaMissing
from holdfast._model.work import Lease
from holdfast._store.schema import check_async
from holdfast._store.worker import ensure_partitions, identify_database, read_identity, read_queues

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from typing import Literal

    from holdfast._engine.attempt import Attempt
    from holdfast._engine.keeper import Kept, Turn
    from holdfast._engine.runners.loop import Background
    from holdfast._engine.serving import WorkerParts
    from holdfast._model.errors import DatabaseRefused
    from holdfast._store.lease import Held

log = Log(__name__)

# A handler whose signal was aborted has this many seconds to stop; after that its job is released without it.
ABORT_GRACE = 1.0
# Outcomes that are not written within this many seconds are left to the reaper.
FLUSH_SECONDS = 5.0
# A stop exceeds the shutdown timeout by at most this many seconds: to abort, to write outcomes, to record the end.
LAST_SECONDS = 5.0
# At the stop, a claim under way and any last statement get this many seconds.
STOP_SECONDS = 5.0
LISTEN_SECONDS = 1.0
# Loops that are cancelled at the end have this many seconds to finish.
LEAVE_SECONDS = 1.0


class Pipeline:
    """A worker's part in one database. `start` begins its life, `stop` ends it gracefully, and `close` at once."""

    def __init__(self, name: str, url: str, worker: WorkerParts, *, patience: float | None, added: bool) -> None:
        """`patience`: seconds to wait at the start; one that answers later is served from then on. None: no limit.

        `added`: while the worker runs. Such a database is tried again if it refuses the worker, as one of several is.
        """
        self.name = name
        self.url = url
        self._worker = worker
        self._patience = patience
        self._added = added
        self.session = session = new_session(name, url, worker)
        queues = worker.dispatcher.slots.queues
        self._registration = Registration(worker.name, queues, worker.application, session)
        self.serving: Serving | None = None
        """None until the database has answered for the first time."""
        self.refused: DatabaseRefused | None = None
        """Why this database will never be served, if that was found after the start."""
        self._outage = Outage(log, "a database cannot be served yet", database=name)
        self._trying: Kept | None = None
        """Tries again to serve a database that did not answer at the start."""
        self._life = AsyncExitStack()
        self._starting: asyncio.Task[None] | None = None
        self._runners = AsyncExitStack()
        self._home = False
        self._switching = asyncio.Lock()
        self.background: Background | None = None
        """The loops of its runners; None while they do not run."""
        self._database = database = RunnerDatabase(url, session.links.finish, session.row, name=name)
        self._jobs = Minutes(database, "outbox", session.counts, names=RUN_NAMES)
        self._reaped = Minutes(database, "reaper", session.reaped)
        self._events: Minutes | None = None

    def start(self, *, home: bool) -> asyncio.Task[None]:
        """Start, in a task of its own. `home`: whether the application's own runners run here."""
        self._home = home
        self._starting = asyncio.create_task(self._start(), name=f"holdfast-start-{self.name}")
        return self._starting

    async def _start(self) -> None:
        """Live in this database. `close` leaves these blocks again, the last one first."""
        await self._life.enter_async_context(self._jobs_served())
        await self._wait_until_listening()
        await self._life.enter_async_context(self._events_relayed())
        await self._life.enter_async_context(self._runners_run())

    async def _serve(self) -> None:
        """Serve completely or not at all: nothing is awaited after the worker is registered."""
        await self._check()
        found = await self._read()
        if await self._registration.register():
            self.serving = Serving(self._worker, self.session, self._registration, found)
            self.serving.start()

    async def _check(self) -> None:
        """Raise if this database cannot be served: its schema, its settings, or too few connections."""
        link = self.session.links.claim
        await link.run_with(check_async)
        await link.run_with(check_isolation)
        await link.run_with(partial(check_headroom, settings=self._worker.application.settings))

    async def _read(self) -> Found:
        """Make partitions ahead, and read the control table and the identities of the database."""
        link = self.session.links.claim
        await link.run(ensure_partitions())
        queues = await link.run(read_queues())
        has_broker = self._worker.listening and self._worker.application.wake is not None
        identity = await link.run(identify_database()) if has_broker else ""
        self.session.schema = await link.run(read_identity())
        return Found(queues, identity)

    @asynccontextmanager
    async def _jobs_served(self) -> AsyncIterator[None]:
        """Connect, check, register and serve jobs: at once, or as soon as the database answers. End it at once."""
        try:
            async with asyncio.timeout(self._patience):
                await self._serve()
        except Exception as exc:
            # With several databases, a failure of one must not affect the others: it is retried.
            if not self._keeps_trying:
                if (why := refusal(exc)) is not None:
                    await self.session.links.abandon()
                    raise refused(self.url, why) from None
                if not isinstance(exc, (*LOST, TimeoutError)):
                    await self.session.links.abandon()
                    raise
            self._trying = self.session.keeper.start("start", partial(self._serve_later, self._outage.failed(exc)))
        except BaseException:
            await self.session.links.abandon()
            raise
        try:
            yield
        finally:
            heartbeat = [] if self.serving is None else [self.serving.end_heartbeat()]
            await asyncio.gather(self._end_loops(), *heartbeat)

    async def _serve_later(self, rest: float, turn: Turn) -> None:
        while self.serving is None:
            turn(rest)
            await asyncio.sleep(rest)
            try:
                await self._serve()
                self._outage.over()
            except Exception as exc:  # noqa: BLE001 - every error is logged, and the other databases are served
                rest = self._outage.failed(exc)
                if not self._keeps_trying and ((why := refusal(exc)) is not None or isinstance(exc, SchemaMissing)):
                    # The server was unreachable at the start. Now it answers, and its answer will not change.
                    self.refused = refused(self.url, why or exc)
                    self._worker.broken.set()
                    return

    @property
    def _keeps_trying(self) -> bool:
        """Whether a database that refuses the worker is tried again, because others are served."""
        return self._added or self._worker.sharing.several

    async def _end_loops(self) -> None:
        # Cancelling a statement waits for the server. Closing its connection does not.
        await self.session.links.abandon()
        await self.session.keeper.stop(LEAVE_SECONDS)

    async def _wait_until_listening(self) -> None:
        """Wait until notifications arrive, at most one second: jobs are also polled for."""
        if self.serving is not None and self._worker.listening:
            with suppress(TimeoutError):
                async with asyncio.timeout(LISTEN_SECONDS):
                    await self.session.listening.wait()

    @asynccontextmanager
    async def _events_relayed(self) -> AsyncIterator[None]:
        """Relay events to the subscriptions."""
        if self._worker.relays is None or self.session.stopping:
            yield
            return
        async with self._worker.relays(self.session, self._worker.transitions) as relaying:
            self._events = Minutes(self._database, "relay", relaying.counts)
            yield

    @asynccontextmanager
    async def _runners_run(self) -> AsyncIterator[None]:
        """Run the built-in runners of this database, and the application's own if it is the home of those."""
        async with self._switching:
            await self._start_runners()
        try:
            yield
        finally:
            async with self._switching:
                await self._runners.aclose()

    async def _start_runners(self) -> None:
        if self._worker.has_runners and not self.session.stopping:
            background = in_background(
                self._worker.application,
                self._database,
                home=self._home,
                state=self._worker.dispatcher.handlers.state,
                transitions=self._worker.transitions,
                keeper=self.session.keeper,
                jobs=self._jobs,
                reaped=self._reaped,
                events=self._events,
            )
            self.background = await self._runners.enter_async_context(background)

    async def set_home(self, *, home: bool) -> None:
        """Take over the application's own runners, or leave them to another database."""
        async with self._switching:
            if home != self._home:
                self._home = home
                if self.background is not None:
                    await self._runners.aclose()
                    await self._start_runners()

    def lend(self) -> None:
        """From now on, lend the slots of running jobs to the other databases while this one does not answer."""
        if self.serving is not None:
            self.serving.lend()

    async def stop(self, timeout: float) -> None:  # noqa: ASYNC109 - not a limit: it aborts running jobs then
        """Stop within the timeout plus `LAST_SECONDS`. Each step may use the time that is left."""
        last = time.monotonic() + timeout + LAST_SECONDS
        self._stop_claiming()
        await self._start_ended(min(timeout, ABORT_GRACE))
        jobs = asyncio.create_task(self._end_jobs(timeout))
        await asyncio.gather(jobs, self._stop_runners(timeout), self._claims_ended(max(timeout, ABORT_GRACE)))
        if self.serving is not None:
            await self.serving.flush(max(ABORT_GRACE, min(FLUSH_SECONDS, last - time.monotonic() - ABORT_GRACE)))
        await self._record_end(jobs.result(), max(ABORT_GRACE, last - time.monotonic()))

    async def close(self) -> None:
        """End its loops and connections at once, and give up its part of the slots."""
        self._stop_claiming()
        await self._start_ended(0.0)
        await self._life.aclose()
        if self.serving is not None:
            self.serving.leave()

    def _stop_claiming(self) -> None:
        """Claim nothing more, and give back jobs that have not started. Their attempts do not count."""
        self.session.stopping = True
        if self._trying is not None:
            self._trying.cancel()
        if self.serving is not None:
            self.serving.stop_claiming()

    async def _start_ended(self, seconds: float) -> None:
        """Wait for a start under way. One that the database does not answer within `seconds` is called off."""
        if self._starting is not None and not self._starting.done():
            await asyncio.wait({self._starting}, timeout=seconds)
            self._starting.cancel()
            await asyncio.wait({self._starting})

    async def _end_jobs(self, timeout: float) -> str:  # noqa: ASYNC109 - as above
        """Wait for running jobs, then abort them. Return the reason to record."""
        if self.serving is None or await self.serving.drained(timeout):
            return "stopped"
        self.session.abort_all(AbortReason.shutdown)
        if await self.serving.drained(ABORT_GRACE):
            return "stopped, with jobs aborted"
        extra = {"database": self.name}
        log.warning("handlers did not stop when asked to; their jobs are left to the reaper", extra=extra)
        return "stopped, with handlers that ignored it"

    async def _stop_runners(self, seconds: float) -> None:
        if self.background is not None:
            await self.background.stop(seconds)

    async def _claims_ended(self, seconds: float) -> None:
        """Wait at most `seconds` for a claim under way. The jobs it takes are given back."""
        seconds = min(seconds, STOP_SECONDS)
        waits = [] if self._trying is None else [self._trying.wait(seconds)]
        claims = [] if self.serving is None else [self.serving.claims_ended(seconds)]
        await asyncio.gather(*waits, *claims)

    async def _record_end(self, reason: str, seconds: float) -> None:
        """Record that the worker stopped, within `seconds`."""
        seconds = min(seconds, STOP_SECONDS)
        self.session.links.hurry(seconds)
        if self.session.links.claim.unanswered:
            reason += ", with a claim unanswered"
        if self.serving is not None:
            await self._registration.end(reason, seconds)

    def tell(self, name: Literal["database_added", "database_removed"]) -> None:
        """Tell the listeners."""
        self._worker.transitions.tell(name, database=self.name)

    @property
    def worker(self) -> int:
        """The id of this worker's row in this database; 0 until the database has answered for the first time."""
        return self.session.row.id

    @property
    def held(self) -> Mapping[Held, Attempt]:
        return self.session.held

    @property
    def vitals(self) -> Vitals:
        """The health of this database's pipeline. Safe to read from any thread."""
        vitals, serving = Vitals(self.name, loops=tuple(self.session.keeper.vitals)), self.serving
        return vitals if serving is None else serving.add_to(vitals)


def new_session(name: str, url: str, worker: WorkerParts) -> Session:
    """Return the session of a worker with this database."""
    lease = Lease(worker.application.settings.lease.total_seconds())
    leases = {name: kind.work.lease or lease for name, kind in worker.application.kinds.items()}
    return Session(
        Links(url, name=name, timeout=lease.seconds),
        OwnRow(identity=uuid4()),
        Keeper(worker.name, worker.broken, database=name),
        worker.sharing,
        Control(leases),
    )
