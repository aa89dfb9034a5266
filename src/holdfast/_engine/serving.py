"""The parts that serve one database, put together: who passes what on to whom is seen here."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from holdfast._engine.jobs.claim import Claimer
from holdfast._engine.jobs.complete import Completer
from holdfast._engine.jobs.demand import Demand
from holdfast._engine.jobs.finish import Finisher
from holdfast._engine.jobs.heartbeat import DoubtedClaims, Heartbeat
from holdfast._engine.jobs.heartbeat_answers import HeartbeatAnswers
from holdfast._engine.jobs.held_jobs import HeldJobs
from holdfast._engine.jobs.intake import Intake
from holdfast._engine.jobs.isolation import Isolation
from holdfast._engine.jobs.lending import Lending
from holdfast._engine.jobs.queue_control import QueueControl
from holdfast._engine.jobs.ready import ReadyJobs
from holdfast._engine.jobs.reap import Reaper, ReapSchedule
from holdfast._engine.jobs.wakeups import Wakeups
from holdfast._engine.keeper import in_thread
from holdfast._engine.wake.broker import waker
from holdfast._engine.wake.listen import Polling
from holdfast._logs.log import Log
from holdfast._model.kind import retries_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast._engine.application import Application, MakeRelaying
    from holdfast._engine.jobs.dispatch import Dispatcher
    from holdfast._engine.jobs.heartbeat import Vitals
    from holdfast._engine.jobs.loop_watch import LoopWatch
    from holdfast._engine.keeper import Kept
    from holdfast._engine.registration import Registration
    from holdfast._engine.report.transition import Transitions
    from holdfast._engine.session import Session, Sharing
    from holdfast._engine.wake.listen import Waker
    from holdfast._store.worker import QueueControlRow


log = Log(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerParts:
    """The parts of a worker that its pipelines share: its application, its slots, and how they are to serve."""

    name: str
    application: Application
    dispatcher: Dispatcher
    transitions: Transitions
    loop_watch: LoopWatch
    claiming: bool
    """Whether there is a claim loop. Without it, only `claim_due` claims."""
    relays: MakeRelaying | None
    """Makes the relays of its subscriptions; None: it relays nothing."""
    has_runners: bool
    reaping_others: bool
    """Whether expired leases are reaped also of kinds that this worker does not serve."""
    sharing: Sharing
    broken: asyncio.Event
    """Set when a loop cannot continue."""

    @property
    def listening(self) -> bool:
        """Whether its pipelines are woken by notifications. If not, they poll."""
        application = self.application
        return (self.claiming or self.relays is not None) and (
            application.wake is not None or application.settings.listen
        )


class Found(NamedTuple):
    """The answers of a database when the worker registered there."""

    queues: Sequence[QueueControlRow]
    """The rows of the control table."""
    identity: str
    """The identity of the database, by which brokers know it; empty without one."""


class Serving:
    """Everything that a worker does for one database after its registration."""

    def __init__(self, worker: WorkerParts, session: Session, registration: Registration, found: Found) -> None:
        """Nothing runs before `start`. Each part is given the parts that it calls, and calls no others."""
        application, dispatcher = worker.application, worker.dispatcher
        settings = application.settings
        self.session = session
        self._worker = worker
        self._dispatcher = dispatcher
        demand = Demand(dispatcher.slots, session.control)
        held_jobs = HeldJobs(session, worker.transitions)
        self.held_jobs = held_jobs
        # A job's walk: claimed, taken in, started when there is a slot, finished.
        self.finisher = Finisher(session, held_jobs, demand, tracebacks=settings.tracebacks)
        self.ready = ReadyJobs(held_jobs, self.finisher, demand)
        self.completer = Completer(session, application.codec)
        self.intake = Intake(
            session,
            application.kinds,
            dispatcher=dispatcher,
            held_jobs=held_jobs,
            ready=self.ready,
            completer=self.completer,
        )
        self.claimer = Claimer(session, settings, demand, self.intake, worker.transitions)
        # Jobs whose worker was lost.
        self._isolation = Isolation(
            session,
            dispatcher=dispatcher,
            demand=demand,
            claimer=self.claimer,
            intake=self.intake,
            finisher=self.finisher,
            idle_max=settings.idle_max.total_seconds(),
        )
        schedule = ReapSchedule(settings.reap_interval.total_seconds(), settings.lease.total_seconds())
        doubted = DoubtedClaims()
        self.wakeups = Wakeups(
            session,
            held_jobs=held_jobs,
            claimer=self.claimer,
            isolation=self._isolation,
            reap_schedule=schedule,
            doubted=doubted,
        )
        self._reaper = Reaper(
            session.links.claim,
            session.row,
            schedule,
            self.wakeups,
            retries=retries_of(application.kinds, settings.retry),
            default=settings.retry,
            others=worker.reaping_others,
        )
        # News from the database: notifications, and the answers to heartbeats.
        self.waker: Waker = Polling()
        if worker.listening:
            self.waker = waker(application.wake, session, self.wakeups, database=found.identity, listen=settings.listen)
        self._queue_control = QueueControl(session, settings, dispatcher, self.ready)
        self._queue_control.apply(found.queues)
        self.answers = HeartbeatAnswers(session, self._queue_control, schedule, registration, self.waker)
        self.heartbeat = Heartbeat(session, self.answers, doubted, worker.loop_watch, dispatcher.slots)
        self._lending = Lending(session, dispatcher, self.ready)
        self._lending_loop: Kept | None = None
        self._claim_loop: Kept | None = None

    def start(self) -> None:
        """Start all loops."""
        keeper = self.session.keeper
        self._dispatcher.join(self.ready)
        self.heartbeat.start(keeper)
        if self.session.sharing.several:
            self.lend()
        keeper.start("reaper", self._reaper.run)
        keeper.start("finisher", self.finisher.run)
        keeper.start("finisher apart", self.finisher.run_apart)
        keeper.start("progress", self.completer.run)
        keeper.start("heartbeat watch", self.heartbeat.watch)
        if self._worker.listening:
            keeper.start("listener", self.waker.run)
        if self._worker.claiming:
            self._claim_loop = keeper.start("claimer", self.claimer.run)
            keeper.start("isolation", self._isolation.run)

    def lend(self) -> None:
        """From now on, lend the slots of running jobs to the other databases while this one does not answer."""
        if self._lending_loop is None:
            self._lending_loop = self.session.keeper.start("lending", self._lending.run)

    def stop_claiming(self) -> None:
        """Claim nothing more, and give back jobs that have not started. Their attempts do not count."""
        self.claimer.stop()
        self.intake.give_back_waiting()

    async def claims_ended(self, seconds: float) -> None:
        """Wait at most `seconds` for a claim under way. The jobs it takes are given back."""
        if self._claim_loop is not None:
            await self._claim_loop.wait(seconds)
            self._claim_loop.cancel()

    async def drained(self, seconds: float) -> bool:
        """Wait until no handler of this database runs. Return False if that takes longer than `seconds`."""
        return await self._dispatcher.ended(self.ready, seconds)

    def leave(self) -> None:
        """Give up its part of the slots: this database is no longer served."""
        self._queue_control.leave()

    async def flush(self, seconds: float) -> None:
        """Wait at most `seconds` until every outcome is written. The reaper recovers the remaining jobs."""
        try:
            async with asyncio.timeout(seconds):
                await self.finisher.flushed()
        except TimeoutError:
            log.warning("endings left to the reaper", extra={"jobs": len(self.session.held)})

    async def end_heartbeat(self) -> None:
        self.heartbeat.stop()
        await in_thread(self.heartbeat.end, name="heartbeat")

    def add_to(self, vitals: Vitals) -> Vitals:
        """Return the vitals with the values of this object filled in. Safe to call from any thread."""
        now = time.monotonic()
        return vitals._replace(
            beat=now - self.heartbeat.beat_at,
            reap=max(0.0, now - self._reaper.reaped_at - self._reaper.schedule.others),
            unwritten=self.finisher.unwritten,
        )

    async def claim_due(self, items: int, until: float) -> bool:
        """Claim and start at most `items` due jobs, none after `until` (monotonic clock).

        Return True when more than that many may be due.
        """
        await self._reaper.release(until)
        return await self.claimer.claim_due(items, until, self._dispatcher)

    async def run_suspects(self, items: int, until: float) -> int:
        """Run suspects, jobs whose worker was lost, while nothing else runs. Return how many."""
        return await self._isolation.run_apart(until, items, until - time.monotonic())
