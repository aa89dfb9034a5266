"""The work of a registered worker for one database: claim, hold, run, finish, renew, reap."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from holdfast._engine.jobs.claim import Claimer
from holdfast._engine.jobs.heartbeat import Heartbeat
from holdfast._engine.jobs.held_jobs import Attempts, HeldJobs
from holdfast._engine.jobs.isolation import Isolation
from holdfast._engine.jobs.reap import Reaper
from holdfast._engine.keeper import in_thread
from holdfast._engine.wake.broker import waker
from holdfast._engine.wake.listen import EVENTS, Polling
from holdfast._logs.log import Log
from holdfast._model.kind import retries_of
from holdfast._model.work import Lease
from holdfast._store.claim import Shards

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from holdfast._engine.application import Application
    from holdfast._engine.jobs.dispatch import Dispatcher
    from holdfast._engine.jobs.heartbeat import Vitals
    from holdfast._engine.keeper import Keeper, Kept
    from holdfast._engine.link import Links
    from holdfast._engine.report.transition import Transitions
    from holdfast._engine.wake.listen import Waker
    from holdfast._store.lease import Held, ReapedJob
    from holdfast._store.worker import Beat, QueueControlRow


log = Log(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerParts:
    """The parts of a worker that its pipelines share: its application, its slots, and how they are to serve."""

    name: str
    application: Application
    dispatcher: Dispatcher
    transitions: Transitions
    claiming: bool
    """Whether there is a claim loop. Without it, only `claim_due` claims."""
    relaying: bool
    reaping_others: bool
    """Whether expired leases are reaped also of kinds that this worker does not serve."""
    lending: Callable[[], bool]
    """Returns whether other databases share the slots."""
    on_broken: Callable[[str], None]
    """Called with the name of a loop that cannot continue."""

    @property
    def listening(self) -> bool:
        """Whether its pipelines are woken by notifications. If not, they poll."""
        application = self.application
        return (self.claiming or self.relaying) and (application.wake is not None or application.settings.listen)


class Registered(NamedTuple):
    """The answers of a database when the worker registered there."""

    worker: int
    """The id of the worker's row."""
    identity: UUID
    queues: Sequence[QueueControlRow]
    """The rows of the control table."""
    database: str
    """The identity of the database, by which brokers know it; empty without one."""
    schema: str
    """The random identity of the schema, a part of every idempotency key."""


class Serving:
    """Everything that a worker does for one database after its registration: the parts and their connections."""

    def __init__(
        self,
        parts: WorkerParts,
        links: Links,
        registered: Registered,
        *,
        on_events: Callable[[], None],
        on_disowned: Callable[[int], None],
    ) -> None:
        """Nothing runs before `start`. `on_events()`: an event may have been published.

        `on_disowned(worker)`: the row with this id is gone or another worker's.
        """
        worker = registered.worker
        kinds, settings = parts.application.kinds, parts.application.settings
        self.worker = worker
        """The id of the worker's row."""
        self._parts = parts
        self._kinds = kinds
        self._settings = settings
        self._dispatcher = dispatcher = parts.dispatcher
        self.links = links
        self._on_events = on_events
        self.held_jobs = held_jobs = HeldJobs(parts.transitions)
        self.attempts = attempts = Attempts(
            parts.application,
            dispatcher,
            held_jobs,
            links,
            worker,
            schema=registered.schema,
            several=parts.lending,
        )
        self.finisher = attempts.finisher
        self._obey(registered.queues)
        self._interval = self._heartbeat_interval()
        self._claim_loops: list[Kept] = []
        self._keeper: Keeper | None = None
        self._lending: Kept | None = None
        self._left = False
        self.waker = self._make_waker(registered)
        self.claimer = Claimer(
            links.claim,
            worker=worker,
            identity=registered.identity,
            leases=attempts.leases,
            queues=dispatcher.slots.queues,
            limit=dispatcher.slots.batch,
            queue_leases=lambda: attempts.queue_leases,
            wanted=self._wanted,
            hold=attempts.hold,
            held=held_jobs.held,
            listener=self.waker,
            idle_min=settings.idle_min.total_seconds(),
            idle_max=settings.idle_max.total_seconds(),
            jitter=settings.jitter.total_seconds(),
            shards=Shards(settings.shard_index or 0, settings.shard_count or 1),
            on_claim=parts.transitions.looked,
        )
        attempts.on_written = self.claimer.capacity_freed
        self._isolation = Isolation(
            links.claim,
            worker=worker,
            dispatcher=dispatcher,
            claimer=self.claimer,
            queues=lambda: [name for name in dispatcher.slots.openings() if name not in attempts.paused],
            leases=lambda: attempts.leases,
            held=held_jobs.held,
            start=attempts.hold_apart,
            give_back=attempts.give_back_waiting,
            flushed=attempts.finisher.flushed,
            several=parts.lending,
            idle_max=settings.idle_max.total_seconds(),
        )
        self._reaper = Reaper(
            links.claim,
            worker=worker,
            retries=retries_of(kinds, settings.retry),
            default=settings.retry,
            interval=settings.reap_interval.total_seconds(),
            longest=settings.lease.total_seconds(),
            others=parts.reaping_others,
            on_reaped=self._reaped,
        )
        self.heartbeat = Heartbeat(
            links.url,
            worker=worker,
            interval=self._interval,
            held=held_jobs.held,
            counters=self.counters,
            on_beat=self._beaten,
            identity=registered.identity,
            on_disowned=on_disowned,
            on_outage=self._doubt_server,
        )

    @property
    def reaped(self) -> Counter[str]:
        """The jobs that this worker reaped, by what they became."""
        return self._reaper.counts

    def counters(self) -> dict[str, int]:
        """Return the counts of this worker since its start."""
        return {**self.held_jobs.counts, "ticks": self.claimer.claims}

    def start(self, keeper: Keeper) -> None:
        """Start all loops."""
        self._keeper = keeper
        self._dispatcher.join(self.attempts.ready)
        self._dispatcher.held.append(self.held_jobs.held)
        self._dispatcher.on_capacity.append(self.claimer.capacity_freed)
        self.heartbeat.start(keeper)
        if self._parts.lending():
            self.lend()
        keeper.start("reaper", self._reaper.run)
        keeper.start("finisher", self.finisher.run)
        keeper.start("progress", self.attempts.completer.run)
        keeper.start("heartbeat watch", self.heartbeat.watch)
        if self._parts.listening:
            keeper.start("listener", self.waker.run)
        if self._parts.claiming:
            self._claim_loops = [keeper.start("claimer", self.claimer.run)]
            keeper.start("isolation", self._isolation.run)

    def lend(self) -> None:
        """From now on, lend the slots of running jobs to the other databases while this one does not answer."""
        if self._lending is None and self._keeper is not None:
            self._lending = self._keeper.start("lending", self.attempts.lending.run)

    def _make_waker(self, registered: Registered) -> Waker:
        if not self._parts.listening:
            return Polling()
        found = waker(
            self._parts.application.wake,
            self.links.url,
            registered.database,
            registered.worker,
            self._settings.listen,
            on_wake=self._woken,
            on_lost=self._doubted,
        )
        return found or Polling()

    def _woken(self, text: str) -> None:
        if text in {"", EVENTS}:
            self._on_events()
        if text != EVENTS:
            self.claimer.wake()
            self._isolation.wake()

    def _doubt_server(self) -> None:
        """Replace connections without an answer: a server that hangs closes none, and another may have its place."""
        self.links.doubt(self._interval)
        self.waker.doubt(self.heartbeat.beat_at)

    def _doubted(self, claim: Held) -> None:
        if claim in self.held_jobs.held:
            self.heartbeat.doubt(claim)

    def rename(self, worker: int) -> None:
        """Continue under another worker id."""
        claiming = (self.claimer, self._isolation, self._reaper, self.heartbeat)
        for part in (self, self.finisher, self.attempts.completer, *claiming):
            part.worker = worker
        self.waker.rename(worker)

    def stop_claiming(self) -> None:
        """Claim nothing more, and give back jobs that have not started. Their attempts do not count."""
        self.claimer.stop()
        self._isolation.stop()
        self.attempts.stop()

    async def claims_ended(self, seconds: float) -> None:
        """Wait at most `seconds` for a claim under way. The jobs it takes are given back."""
        for loop in self._claim_loops:
            await loop.wait(seconds)
            loop.cancel()

    async def drained(self, seconds: float) -> bool:
        """Wait until no handler of this database runs. Return False if that takes longer than `seconds`."""
        return await self._dispatcher.ended(self.attempts.ready, seconds)

    def leave(self) -> None:
        """Give up its part of the slots: this database is no longer served."""
        self._left = True
        self._dispatcher.slots.uncontrol(self)
        self._dispatcher.leave(self.attempts.ready, self.held_jobs.held, self.claimer.capacity_freed)

    async def flush(self, seconds: float) -> None:
        """Wait at most `seconds` until every outcome is written. The reaper recovers the remaining jobs."""
        try:
            async with asyncio.timeout(seconds):
                await self.finisher.flushed()
        except TimeoutError:
            log.warning("endings left to the reaper", extra={"jobs": len(self.held_jobs.held)})

    async def end_heartbeat(self) -> None:
        self.heartbeat.stop()
        await in_thread(self.heartbeat.end, name="heartbeat")

    def add_to(self, vitals: Vitals) -> Vitals:
        """Return the vitals with the values of this object filled in. Safe to call from any thread."""
        now = time.monotonic()
        return vitals._replace(
            beat=now - self.heartbeat.beat_at,
            reap=max(0.0, now - self._reaper.reaped_at - self._reaper.turns.others),
            unwritten=self.finisher.unwritten,
        )

    async def claim_due(self, items: int, until: float) -> bool:
        """Claim and start at most `items` due jobs, none after `until` (monotonic clock).

        Return True when more than that many may be due.
        """
        return await self.claimer.claim_due(items, until, self._dispatcher.slots.queues, stalled=self._stalled)

    async def run_suspects(self, items: int, until: float) -> int:
        """Run suspects, jobs whose worker was lost, while nothing else runs. Return how many."""
        return await self._isolation.run_apart(until, items, until - time.monotonic())

    def _stalled(self, seconds: float, queues: set[str]) -> bool:
        """Return whether none of these queues can start a job within `seconds`: each is paused or rests for longer."""
        return not self.finisher.full and self._dispatcher.stalled(seconds, queues - self.attempts.paused)

    def _wanted(self) -> dict[str, int]:
        if self.finisher.full:
            return {}
        wanted = self._dispatcher.slots.wanted(of=self.attempts.ready)
        return {queue: count for queue, count in wanted.items() if queue not in self.attempts.paused}

    def _reaped(self, jobs: Sequence[ReapedJob]) -> None:
        self.held_jobs.reaped(jobs)
        if jobs:
            self._woken("")

    def _beaten(self, beat: Beat) -> None:
        if self._left:
            return  # the answer to the last heartbeat
        if beat.own:
            self._reaper.turns.learn(beat.place, beat.peers, beat.at)
        self._obey(beat.queues)
        # A longer interval takes effect one beat later: leases from the shorter interval need one more renewal.
        before, self._interval = self._interval, self._heartbeat_interval()
        self.heartbeat.beat_every(min(before, self._interval))

    def _obey(self, queues: Sequence[QueueControlRow]) -> None:
        """Apply the control table."""
        attempts = self.attempts
        attempts.paused = frozenset(queue.name for queue in queues if queue.paused)
        served = self._dispatcher.slots.queues
        leases = {q.name: Lease(q.lease_ms / 1000) for q in queues if q.lease_ms and q.name in served}
        if leases != attempts.queue_leases:
            attempts.use_queue_leases(leases)
            for name, lease in leases.items():
                for said in self._settings.too_long_for(f"queue {name}", lease.duration):
                    log.warning("settings do not go with the lease of a queue: %s", said)
        tighter = self._dispatcher.slots.control(
            {q.name: q.concurrency for q in queues if q.concurrency is not None},
            {q.name: q.rate for q in queues if q.rate is not None},
            of=self,
        )
        self._dispatcher.give_back(attempts.ready, attempts.paused)
        self._dispatcher.give_back_of(tighter)
        self._dispatcher.dispatch()

    def _heartbeat_interval(self) -> float:
        """Return the setting, or a quarter of the shortest lease in use if that is less: it must stay below a third."""
        leases = [*self.attempts.leases.values(), *self.attempts.queue_leases.values()]
        return min([self._settings.heartbeat.total_seconds(), *(lease.seconds / 4 for lease in leases)])
