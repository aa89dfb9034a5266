"""A worker's connections to one database, its registration there, and what it serves once registered."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Self
from uuid import uuid4

from holdfast._engine.connections import check_headroom, check_isolation
from holdfast._engine.jobs.heartbeat import Vitals, database_of
from holdfast._engine.jobs.held_jobs import HeldJobs
from holdfast._engine.keeper import Keeper
from holdfast._engine.link import LOST, Link, Outage, refusal
from holdfast._engine.serving import Serving
from holdfast._engine.wake.broker import waker
from holdfast._engine.wake.listen import EVENTS
from holdfast._logs.log import Log
from holdfast._model.errors import AbortReason, DatabaseRefused, SchemaMissing
from holdfast._model.work import Lease
from holdfast._store.lease import release_strays
from holdfast._store.schema import check_async
from holdfast._store.worker import ensure_partitions, identify_database, read_queues, register_worker, stop_worker

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from holdfast._engine.keeper import Kept, Turn
    from holdfast._engine.serving import WorkerParts
    from holdfast._engine.wake.listen import Waker
    from holdfast._model.settings import Settings
    from holdfast._store.lease import Held
    from holdfast._store.statement import Statement

log = Log(__name__)

# At the stop, a claim under way and any last statement get this many seconds.
STOP_SECONDS = 5.0
LISTEN_SECONDS = 1.0
# Loops that are cancelled at the end have this many seconds to finish.
LEAVE_SECONDS = 1.0


class Pipeline:
    """One database's part of a worker. `async with` starts it and stops it at once; `Worker` stops gracefully."""

    def __init__(self, url: str, parts: WorkerParts) -> None:
        self.url = url
        self._parts = parts
        self._application = parts.application
        self._outage = Outage(log, "a database cannot be served yet", database=database_of(url))
        timeout = self._application.settings.lease.total_seconds()
        self._claim_link = Link(url, timeout=timeout)
        self._finish_link = Link(url, timeout=timeout)
        self.keeper = Keeper(parts.name, on_broken=parts.on_broken, database=database_of(url))
        self._starting: Kept | None = None
        self._stopping = False
        self._held_jobs = HeldJobs(parts.transitions, parts.hooks)
        self.held = self._held_jobs.held
        self.counts = self._held_jobs.counts
        self._waker: Waker | None = None
        self.serving: Serving | None = None
        """None until the database has answered for the first time."""
        self.on_events: Callable[[], None] = lambda: None
        """Called when an event may have been published."""
        self.refused: DatabaseRefused | None = None
        """Why this database will never be served, if that was found after the start."""
        self.worker = 0
        """The id of this worker's row in this database; 0 until the database has answered for the first time."""
        self._identity = uuid4()
        self._renaming: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        try:
            async with asyncio.timeout(self._parts.patience):
                await self._start()
        except (*LOST, TimeoutError) as exc:
            # With several databases, a failure of one must not affect the others: it is retried.
            if not self._parts.lending and (why := refusal(exc)) is not None:
                await self._close_links()
                raise DatabaseRefused(f"{database_of(self.url)}: {why}") from None
            self._starting = self.keeper.start("start", partial(self._start_later, self._outage.failed(exc)))
        except BaseException:
            await self._close_links()
            raise
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        ends = [self._end_loops()]
        if self.serving is not None:
            ends.append(self.serving.end_heartbeat())
        await asyncio.gather(*ends)
        self._held_jobs.job_log.sum_up()

    async def _end_loops(self) -> None:
        # Cancelling a statement waits for the server. Closing its connection does not.
        await self._close_links()
        await self.keeper.stop(LEAVE_SECONDS)

    async def _close_links(self) -> None:
        await asyncio.gather(self._claim_link.abandon(), self._finish_link.abandon())

    async def listening(self) -> None:
        """Wait until notifications arrive, at most one second: jobs are also polled for."""
        if self._waker is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(LISTEN_SECONDS):
                    await self._waker.listening.wait()

    @property
    def link(self) -> Link:
        """A connection for short statements of other parts. They run between two batches of outcomes."""
        return self._finish_link

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

    def give_back_waiting(self) -> None:
        """Give back jobs that have not started. Their attempts do not count."""
        if self.serving is not None:
            self.serving.give_back_waiting()

    async def claim_due(self, items: int, until: float) -> bool:
        """Claim and start at most `items` due jobs, none after `until` (monotonic clock).

        Return True when more than that many may be due.
        """
        return self.serving is not None and await self.serving.claim_due(items, until)

    async def run_suspects(self, items: int, until: float) -> int:
        """Run suspects, jobs whose worker was lost, while nothing else runs. Return how many."""
        return 0 if self.serving is None else await self.serving.run_suspects(items, until)

    def abort_all(self, reason: AbortReason) -> None:
        self._held_jobs.abort_all(reason)

    def give_up_running(self) -> None:
        """Write the outcomes of aborted attempts whose handlers still run."""
        if self.serving is not None:
            self.serving.give_up_running()

    def outlasted(self, why: str) -> int:
        """Abort running jobs whose time is up, with `why` as their error. Return how many."""
        return self._held_jobs.outlasted(why)

    async def flush(self, seconds: float) -> None:
        """Wait at most `seconds` until every outcome is written. The reaper recovers the remaining jobs."""
        if self.serving is not None:
            try:
                async with asyncio.timeout(seconds):
                    await self.serving.finisher.flushed()
            except TimeoutError:
                log.warning("endings left to the reaper", extra={"jobs": len(self.held)})

    async def say_stopped(self, reason: str, seconds: float) -> None:
        """Record that the worker stopped, within `seconds`."""
        seconds = min(seconds, STOP_SECONDS)
        for link in (self._claim_link, self._finish_link):
            link.hurry(seconds)
        if self.worker:
            timer = asyncio.get_running_loop().call_later(seconds, self._finish_link.hurry, 0.0)
            try:
                # A claim that was cancelled because its answer took too long may still have taken jobs.
                await self._finish_link.run(release_strays(self.worker, self.held, self._identity))
                done = None if self.serving is None else self.serving.counters()
                await self._finish_link.run(stop_worker(self.worker, reason, self._identity, counters=done))
            except (*LOST, TimeoutError):
                log.warning("could not record that the worker stopped: %s", reason)
            finally:
                timer.cancel()

    async def _start_later(self, rest: float, turn: Turn) -> None:
        while not self.worker:
            turn(rest)
            await asyncio.sleep(rest)
            try:
                await self._start()
                self._outage.over()
            except Exception as exc:  # noqa: BLE001 - every error is logged, and the other databases are served
                rest = self._outage.failed(exc)
                if not self._parts.lending and ((why := refusal(exc)) is not None or isinstance(exc, SchemaMissing)):
                    # The server was unreachable at the start. Now it answers, and its answer will not change.
                    self.refused = DatabaseRefused(f"{database_of(self.url)}: {why or exc}")
                    self._parts.on_broken("start")
                    return

    async def _start(self) -> None:
        """Start completely or not at all: nothing is awaited after the worker is registered."""
        await self._claim_link.run_with(check_async)
        await self._claim_link.run_with(check_isolation)
        await self._claim_link.run_with(partial(check_headroom, settings=self._application.settings))
        await self._claim_link.run(ensure_partitions())
        queues = await self._claim_link.run(read_queues())
        database = ""
        if self._parts.listening and self._application.wake is not None:
            database = await self._claim_link.run(identify_database())
        worker = await self._claim_link.run(self._registration())
        if self._stopping:
            await self._claim_link.run(stop_worker(worker, "stopped"))
            return
        self._waker = self._make_waker(database, worker)
        self.serving = Serving(
            self.url,
            self._parts,
            worker=worker,
            identity=self._identity,
            claim_link=self._claim_link,
            finish_link=self._finish_link,
            held_jobs=self._held_jobs,
            queues=queues,
            waker=self._waker,
            woken=self._woken,
            on_disowned=self.disowned,
        )
        self.worker = worker
        self.serving.start(self.keeper)

    def _make_waker(self, database: str, worker: int) -> Waker | None:
        if not self._parts.listening:
            return None
        return waker(
            self._application.wake,
            self.url,
            database,
            worker,
            self._application.settings.listen,
            on_wake=self._woken,
            on_lost=self._doubted,
        )

    def _registration(self) -> Statement[int]:
        """Return the statement that registers the worker and returns its new id."""
        kinds, settings = self._application.kinds, self._application.settings
        lease = Lease(settings.lease.total_seconds())
        return register_worker(
            self._parts.name,
            queues=self._parts.dispatcher.slots.queues,
            kinds=kinds,
            identity=self._identity,
            versions={name: kind.version for name, kind in kinds.items() if kind.version > 1},
            limits={name: kind.work.limit(lease) for name, kind in kinds.items()},
            settings=shown(settings),
        )

    def disowned(self, worker: int) -> None:
        """Register again: the row with this id is gone or another worker's, for example after a restore from a backup.

        The answer to a beat under the old id may arrive after the worker has its new id. It is ignored.
        """
        if worker == self.worker and not self._stopping and (self._renaming is None or self._renaming.done()):
            log.error("the row of this worker is gone or another's: registering anew", extra={"worker": worker})
            self._held_jobs.abort_all(AbortReason.not_found)
            self._renaming = asyncio.create_task(self._rename())

    async def _rename(self) -> None:
        try:
            worker = await self._claim_link.run(self._registration())
            if self._stopping:
                await self._claim_link.run(stop_worker(worker, "stopped"))
                return
        except (*LOST, TimeoutError) as exc:
            log.warning("could not register anew, trying again", extra={"why": str(exc)})
            return
        if self.serving is not None:
            self.serving.rename(worker)
        self.worker = worker
        # Jobs claimed since then carry the old id, which belongs to another worker.
        self._held_jobs.abort_all(AbortReason.not_found)

    @property
    def vitals(self) -> Vitals:
        """The health of this database's pipeline. Safe to read from any thread."""
        vitals, serving = Vitals(database_of(self.url), loops=tuple(self.keeper.vitals)), self.serving
        return vitals if serving is None else serving.add_to(vitals)

    @property
    def heard(self) -> bool:
        """Whether notifications arrive."""
        return self._waker is not None and self._waker.listening.is_set()

    def _woken(self, text: str) -> None:
        if text in {"", EVENTS}:
            self.on_events()
        if text != EVENTS and self.serving is not None:
            self.serving.wake()

    def _doubted(self, claim: Held) -> None:
        if self.serving is not None and claim in self._held_jobs.held:
            self.serving.heartbeat.doubt(claim)


_MS = timedelta(milliseconds=1)


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
