"""One database served by one worker: claim, hold, run, finish; renewed by the heartbeat, woken by the listener."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Self

from holdfast.abort import AbortReason
from holdfast.engine.attempt import Attempt
from holdfast.engine.claim import Claimer
from holdfast.engine.connections import check_isolation, check_room
from holdfast.engine.desk import Desk
from holdfast.engine.dispatch import Bench
from holdfast.engine.finish import Finisher
from holdfast.engine.heartbeat import Heartbeat
from holdfast.engine.holding import Holding
from holdfast.engine.link import LOST, Link
from holdfast.engine.outage import Outage
from holdfast.engine.reap import Reaper
from holdfast.engine.vitals import Vitals, database_of
from holdfast.engine.wake import EVENTS, Listener, Waker
from holdfast.engine.wakers.station import Station
from holdfast.kind import retries_of
from holdfast.lease import Lease
from holdfast.outcome import Released
from holdfast.store.identity import identify_database
from holdfast.store.lease import release_strays
from holdfast.store.schema import check_async
from holdfast.store.worker import ensure_partitions, read_queues, register_worker, stop_worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import TracebackType

    from holdfast.codec import JsonCodec
    from holdfast.engine.dispatch import Dispatcher
    from holdfast.engine.finish import Ended
    from holdfast.engine.hook import Hooks
    from holdfast.engine.transition import Transitions
    from holdfast.engine.wakers import Carrier
    from holdfast.job import Blocker
    from holdfast.kind import Kind
    from holdfast.outcome import Outcome
    from holdfast.settings import Settings
    from holdfast.store.claim import ClaimedJob, Shards
    from holdfast.store.finish import Answer
    from holdfast.store.lease import Held
    from holdfast.store.reap import ReapedJob
    from holdfast.store.worker import QueueControl

log = logging.getLogger(__name__)

# A claim that is under way at the stop is waited for this long, and so is any last statement.
STOP_SECONDS = 5.0
LISTEN_SECONDS = 1.0


class Pipeline:
    """`async with` starts it, and stops it at once: see `Worker` for stopping gently."""

    def __init__(  # noqa: PLR0913 - what one database's share of a worker is made of
        self,
        url: str,
        *,
        name: str,
        kinds: Mapping[str, Kind[..., Any]],
        codec: JsonCodec,
        dispatcher: Dispatcher,
        settings: Settings,
        transitions: Transitions,
        hooks: Hooks,
        shards: Shards,
        claiming: bool = True,
        relaying: bool = False,
        wake: Carrier | None = None,
        patience: float | None = None,
    ) -> None:
        """Without `claiming` there is no claim loop: only `claim_due` claims. Who neither claims nor relays is deaf.

        `patience`: a database that has not answered within so many seconds is served when it does.
        """
        self.url = url
        self._name = name
        self._kinds = kinds
        self._codec = codec
        self._dispatcher = dispatcher
        self._settings = settings
        self._shards = shards
        self._claiming = claiming
        self._relaying = relaying
        self._patience = patience
        self._wake = wake
        lease = Lease(settings.lease.total_seconds())
        self._leases = {name: kind.work.lease or lease for name, kind in kinds.items()}
        self._queue_leases: dict[str, Lease] = {}
        self._interval = self._heartbeat_interval()
        self._paused: frozenset[str] = frozenset()
        self._bench = Bench(self._ended)
        self._outage = Outage(log, "a database cannot be served yet", database=database_of(url))
        timeout = settings.lease.total_seconds()
        self._claim_link = Link(url, timeout=timeout)
        self._finish_link = Link(url, timeout=timeout)
        self._starting: asyncio.Task[None] | None = None
        self._loops: list[asyncio.Task[None]] = []
        self._stopping = False
        self._claim_loop: asyncio.Task[None] | None = None
        self._claimer: Claimer | None = None
        self._finisher: Finisher | None = None
        self._desk: Desk | None = None
        self._heartbeat: Heartbeat | None = None
        self._transitions = transitions
        self._reaper: Reaper | None = None
        self._holding = Holding(transitions, hooks)
        self.held = self._holding.held
        self.counts = self._holding.counts
        self._waking: Waker | None = None
        self.on_events: Callable[[], None] = lambda: None
        """Called when something may have been published."""
        self.worker = 0
        """The id of this worker's row in this database; 0 while the database has never answered."""

    async def __aenter__(self) -> Self:
        self._dispatcher.join(self._bench)
        try:
            async with asyncio.timeout(self._patience):
                await self._start()
        except (*LOST, TimeoutError) as exc:
            self._starting = asyncio.create_task(self._start_later(self._outage.failed(exc)))
            self._loops.append(self._starting)
        except BaseException:
            await self._close_links()
            raise
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._heartbeat is not None:
            self._heartbeat.stop()
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        self._holding.journal.sum_up()
        await self._close_links()
        if self._heartbeat is not None:
            await asyncio.to_thread(self._heartbeat.end)

    async def _close_links(self) -> None:
        await self._claim_link.close()
        await self._finish_link.close()

    async def listening(self) -> None:
        """Wait until it can be told things; but not for long, since it looks by itself too."""
        if self._waking is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(LISTEN_SECONDS):
                    await self._waking.listening.wait()

    @property
    def link(self) -> Link:
        """For short statements of others: they wait their turn between two finishes."""
        return self._finish_link

    async def stop_claiming(self) -> None:
        """Take nothing more, and give back what has not started, uncounted."""
        self._stopping = True
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait([self._starting], timeout=STOP_SECONDS)
        if self._claimer is not None and self._claim_loop is not None:
            self._claimer.stop()
            await asyncio.wait([self._claim_loop], timeout=STOP_SECONDS)
            self._claim_loop.cancel()
        self.give_back_waiting()

    def give_back_waiting(self) -> None:
        """Give back what has not started, uncounted."""
        self._give_back(self._dispatcher.clear(self._bench))

    def _give_back(self, attempts: Iterable[Attempt]) -> None:
        for attempt in attempts:
            attempt.signal.abort(AbortReason.shutdown)
            self._ended(attempt, Released())

    async def claim_due(self, items: int, until: float) -> bool:
        """Claim and start what is due: at most `items` jobs, nothing after `until` by the monotonic clock.

        Return whether more may be due than that many.
        """
        if self._claimer is None:
            return False
        return await self._claimer.claim_due(items, until, self._dispatcher.slots.queues, stalled=self._stalled)

    def _stalled(self, seconds: float, queues: set[str]) -> bool:
        """Whether none of these queues will be wanted within so many seconds: they are paused, or rest for longer."""
        if self._finisher is not None and self._finisher.full:
            return False
        return self._dispatcher.stalled(seconds, queues - self._paused)

    def abort_all(self, reason: AbortReason) -> None:
        self._holding.abort_all(reason)

    async def flush(self, seconds: float) -> None:
        """Wait until every ending is written, but not for ever: what is left, the reaper takes."""
        if self._finisher is not None:
            try:
                async with asyncio.timeout(seconds):
                    await self._finisher.flushed()
            except TimeoutError:
                log.warning("endings left to the reaper", extra={"jobs": len(self.held)})

    async def say_stopped(self, reason: str) -> None:
        for link in (self._claim_link, self._finish_link):
            link.hurry(STOP_SECONDS)
        if self.worker:
            try:
                # A claim that was called off because its answer took too long may have taken something all the same.
                await self._finish_link.run(release_strays(self.worker, self.held))
                await self._finish_link.run(stop_worker(self.worker, reason))
            except (*LOST, TimeoutError):
                log.warning("could not record that the worker stopped: %s", reason)

    async def _start_later(self, rest: float) -> None:
        while not self.worker:
            await asyncio.sleep(rest)
            try:
                await self._start()
                self._outage.over()
            except Exception as exc:  # noqa: BLE001 - whatever it is, it is said, and the others are served
                rest = self._outage.failed(exc)

    async def _start(self) -> None:
        """Start as a whole or not at all: once the worker is registered, nothing more is waited for."""
        queues = self._dispatcher.slots.queues
        await self._claim_link.run_with(check_async)
        await self._claim_link.run_with(check_isolation)
        await self._claim_link.run_with(partial(check_room, settings=self._settings))
        await self._claim_link.run(ensure_partitions())
        self._control(await self._claim_link.run(read_queues()))
        database = "" if self._wake is None else await self._claim_link.run(identify_database())
        worker = await self._claim_link.run(register_worker(self._name, queues=queues, kinds=self._kinds))
        if self._stopping:
            await self._claim_link.run(stop_worker(worker, "stopped"))
            return
        settings = self._settings
        listener = self._waking = self._waker(worker, database) if self._claiming or self._relaying else None
        self._finisher = Finisher(self._finish_link, worker, self._written)
        self._desk = Desk(self._finish_link, worker, self._codec)
        self._claimer = Claimer(
            self._claim_link,
            worker=worker,
            leases=lambda: self._leases,
            queue_leases=lambda: self._queue_leases,
            wanted=self._wanted,
            hold=self._hold,
            held=self.held,
            listener=listener,
            idle_min=settings.idle_min.total_seconds(),
            idle_max=settings.idle_max.total_seconds(),
            jitter=settings.jitter.total_seconds(),
            shards=self._shards,
            on_claim=self._transitions.claimed,
        )
        self._dispatcher.room.append(self._claimer.room)
        reaper = self._reaper = Reaper(
            self._claim_link,
            worker=worker,
            retries=retries_of(self._kinds, settings.retry),
            otherwise=settings.retry,
            interval=settings.reap_interval.total_seconds(),
            on_reaped=self._reaped,
        )
        self._heartbeat = Heartbeat(
            self.url,
            worker=worker,
            interval=self._interval,
            held=self.held,
            counters=lambda: {**self.counts, "ticks": 0 if self._claimer is None else self._claimer.claims},
            on_queues=self._control,
        )
        self._heartbeat.start()
        self.worker = worker
        loops = [reaper.run(), self._finisher.run(), self._desk.run(), self._heartbeat.watch()]
        if listener is not None:
            loops.append(listener.run())
        self._loops += [asyncio.create_task(loop) for loop in loops]
        if self._claiming:
            self._claim_loop = asyncio.create_task(self._claimer.run())
            self._loops.append(self._claim_loop)

    def _waker(self, worker: int, database: str) -> Waker | None:
        listen = self._settings.listen
        if self._wake is None:
            return (
                Listener(self.url, worker=worker, on_wake=self._woken, on_lost=self._holding.told) if listen else None
            )
        return Station(
            self._wake,
            self.url,
            database=database,
            worker=worker,
            listen=listen,
            on_wake=self._woken,
            on_lost=self._holding.told,
        )

    def _heartbeat_interval(self) -> float:
        """Return the setting, or a quarter of the shortest lease in use: it must stay below a third."""
        shortest = min(
            (lease.seconds for lease in (*self._leases.values(), *self._queue_leases.values())), default=60.0
        )
        return min(self._settings.heartbeat.total_seconds(), shortest / 4)

    def _wanted(self) -> dict[str, int]:
        if self._finisher is not None and self._finisher.full:
            return {}
        wanted = self._dispatcher.slots.wanted()
        return {queue: count for queue, count in wanted.items() if queue not in self._paused}

    def _hold(self, jobs: Sequence[ClaimedJob], blockers: Mapping[int, Sequence[Blocker]]) -> None:
        assert self._desk is not None  # noqa: S101 - nothing is claimed before it is there
        attempts = []
        for job in sorted(jobs, key=_URGENCY):
            lease = self._queue_leases.get(job.queue) or self._leases[job.kind]
            attempts.append(Attempt(job, self._kinds[job.kind], lease, self._desk, blockers.get(job.id, ())))
        self._holding.add(attempts)
        if self._stopping:
            self._give_back(attempts)
        else:
            self._dispatcher.hold(self._bench, attempts)

    def _ended(self, attempt: Attempt, outcome: Outcome | None) -> None:
        """Write how a handler ended, unless the claim is lost."""
        if attempt.busy is not None:
            seconds = attempt.busy.retry_after.total_seconds()
            self._dispatcher.slots.rest(attempt.claimed.queue, seconds)
            asyncio.get_running_loop().call_later(seconds, self._dispatcher.dispatch)
        assert self._finisher is not None  # noqa: S101 - nothing ends before something started
        if outcome is None:
            self._holding.forget(attempt)
        else:
            self._finisher.add(attempt, outcome)

    def _written(self, batch: Sequence[Ended], answers: Mapping[Held, Answer]) -> None:
        self._holding.written(batch, answers)
        if self._claimer is not None:
            self._claimer.room()

    @property
    def vitals(self) -> Vitals:
        """How long ago this database was last heard of. From any thread."""
        now, beat, reaper = time.monotonic(), self._heartbeat, self._reaper
        if not self.worker or beat is None or reaper is None:
            return Vitals(database_of(self.url))
        return Vitals(database_of(self.url), beat=now - beat.beat_at, reap=now - reaper.reaped_at)

    @property
    def heard(self) -> bool:
        """Whether notifications reach us."""
        return self._waking is not None and self._waking.listening.is_set()

    def _woken(self, text: str) -> None:
        if text in {"", EVENTS}:
            self.on_events()
        if text != EVENTS and self._claimer is not None:
            self._claimer.wake()

    def _reaped(self, jobs: Sequence[ReapedJob]) -> None:
        self._holding.reaped(jobs)
        if jobs:
            self._woken("")

    def _control(self, queues: Sequence[QueueControl]) -> None:
        """Obey the control table."""
        self._paused = frozenset(queue.name for queue in queues if queue.paused)
        served = self._dispatcher.slots.queues
        leases = {q.name: Lease(q.lease_ms / 1000) for q in queues if q.lease_ms and q.name in served}
        if leases != self._queue_leases:
            self._queue_leases = leases
            for attempt in self.held.values():
                attempt.lease = leases.get(attempt.claimed.queue) or self._leases[attempt.claimed.kind]
        before, self._interval = self._interval, self._heartbeat_interval()
        if self._heartbeat is not None:
            # A slower pace begins when what was claimed at the quicker one has been renewed once more.
            self._heartbeat.beat_every(min(before, self._interval))
        self._dispatcher.slots.control(
            {q.name: q.concurrency for q in queues if q.concurrency is not None},
            {q.name: q.rate for q in queues if q.rate is not None},
            of=self.url,
        )
        self._dispatcher.dispatch()


_URGENCY = attrgetter("priority", "available_at", "id")
