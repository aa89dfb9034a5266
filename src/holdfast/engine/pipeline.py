"""A worker's way to one database: its connections, its registration, and what it serves once registered."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

from holdfast.abort import AbortReason
from holdfast.engine.connections import check_isolation, check_room
from holdfast.engine.holding import Holding
from holdfast.engine.keeper import Keeper
from holdfast.engine.link import LOST, Link, refusal
from holdfast.engine.outage import Outage
from holdfast.engine.serving import Serving
from holdfast.engine.vitals import Vitals, database_of
from holdfast.engine.wake import EVENTS
from holdfast.engine.wakers.station import waker
from holdfast.errors import DatabaseRefused, SchemaMissing
from holdfast.lease import Lease
from holdfast.logs import Log
from holdfast.store.identity import identify_database
from holdfast.store.lease import release_strays
from holdfast.store.schema import check_async
from holdfast.store.worker import ensure_partitions, read_queues, register_worker, stop_worker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from holdfast.codec import JsonCodec
    from holdfast.engine.dispatch import Dispatcher
    from holdfast.engine.hook import Hooks
    from holdfast.engine.keeper import Kept, Turn
    from holdfast.engine.transition import Transitions
    from holdfast.engine.wake import Waker
    from holdfast.engine.wakers import Carrier
    from holdfast.kind import Kind
    from holdfast.settings import Settings
    from holdfast.store.claim import Shards
    from holdfast.store.lease import Held
    from holdfast.store.statement import Statement

log = Log(__name__)

# A claim that is under way at the stop is waited for this long, and so is any last statement.
STOP_SECONDS = 5.0
LISTEN_SECONDS = 1.0
# Loops that are cancelled when the worker leaves have this long to end.
LEAVE_SECONDS = 1.0


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
        lending: bool = False,
        wake: Carrier | None = None,
        patience: float | None = None,
        on_broken: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Without `claiming` there is no claim loop: only `claim_due` claims.

        A pipeline that neither claims nor is `relaying` does not listen for notifications. `lending`: other databases
        share the slots. `patience`: a database that has not answered within so many seconds is served when it does.
        `on_broken(name)`: a loop of it cannot go on.
        """
        self.url = url
        self._name = name
        self._kinds = kinds
        self._codec = codec
        self._dispatcher = dispatcher
        self._settings = settings
        self._transitions = transitions
        self._shards = shards
        self._claiming = claiming
        self._relaying = relaying
        self._lending = lending
        self._patience = patience
        self._wake = wake
        self._outage = Outage(log, "a database cannot be served yet", database=database_of(url))
        timeout = settings.lease.total_seconds()
        self._claim_link = Link(url, timeout=timeout)
        self._finish_link = Link(url, timeout=timeout)
        self.keeper = Keeper(name, on_broken=on_broken, database=database_of(url))
        self._on_broken = on_broken
        self._starting: Kept | None = None
        self._stopping = False
        self._holding = Holding(transitions, hooks)
        self.held = self._holding.held
        self.counts = self._holding.counts
        self._waker: Waker | None = None
        self.serving: Serving | None = None
        """None while the database has never answered."""
        self.on_events: Callable[[], None] = lambda: None
        """Called when something may have been published."""
        self.refused: DatabaseRefused | None = None
        """Why this database will never be served, found after the start."""
        self.worker = 0
        """The id of this worker's row in this database; 0 while the database has never answered."""
        self._identity = uuid4()
        self._renaming: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        try:
            async with asyncio.timeout(self._patience):
                await self._start()
        except (*LOST, TimeoutError) as exc:
            # One of several harms no other: it is tried again.
            if not self._lending and (why := refusal(exc)) is not None:
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
        self._holding.journal.sum_up()

    async def _end_loops(self) -> None:
        # A statement that is cancelled waits for the server; one that is cut off does not.
        await self._close_links()
        await self.keeper.stop(LEAVE_SECONDS)

    async def _close_links(self) -> None:
        await asyncio.gather(self._claim_link.abandon(), self._finish_link.abandon())

    async def listening(self) -> None:
        """Wait until notifications arrive, but at most a second: jobs are polled for, too."""
        if self._waker is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(LISTEN_SECONDS):
                    await self._waker.listening.wait()

    @property
    def link(self) -> Link:
        """For short statements of others: they wait their turn between two finishes."""
        return self._finish_link

    def stop_claiming(self) -> None:
        """Take nothing more, and give back what has not started, uncounted."""
        self._stopping = True
        if self._starting is not None:
            self._starting.cancel()
        if self.serving is not None:
            self.serving.stop_claiming()

    async def claims_ended(self, seconds: float) -> None:
        """Wait so long for a claim under way: what it takes is given back."""
        seconds = min(seconds, STOP_SECONDS)
        waits = [] if self._starting is None else [self._starting.wait(seconds)]
        claims = [] if self.serving is None else [self.serving.claims_ended(seconds)]
        await asyncio.gather(*waits, *claims)

    def give_back_waiting(self) -> None:
        """Give back what has not started, uncounted."""
        if self.serving is not None:
            self.serving.give_back_waiting()

    async def claim_due(self, items: int, until: float) -> bool:
        """Claim and start what is due: at most `items` jobs, nothing after `until` by the monotonic clock.

        Return whether more may be due than that many.
        """
        return self.serving is not None and await self.serving.claim_due(items, until)

    async def run_suspects(self, items: int, until: float) -> int:
        """Run jobs that were lost with their worker while nothing else runs; return how many."""
        return 0 if self.serving is None else await self.serving.run_suspects(items, until)

    def abort_all(self, reason: AbortReason) -> None:
        self._holding.abort_all(reason)

    def give_up_running(self) -> None:
        """Write the endings of aborted attempts whose handlers go on all the same."""
        if self.serving is not None:
            self.serving.give_up_running()

    def outlasted(self, why: str) -> int:
        """Abort what runs: its time is up. Return how many jobs that were."""
        return self._holding.outlasted(why)

    async def flush(self, seconds: float) -> None:
        """Wait until every ending is written, but not for ever: what is left, the reaper takes."""
        if self.serving is not None:
            try:
                async with asyncio.timeout(seconds):
                    await self.serving.finisher.flushed()
            except TimeoutError:
                log.warning("endings left to the reaper", extra={"jobs": len(self.held)})

    async def say_stopped(self, reason: str, seconds: float) -> None:
        """Record the end of the worker, if that takes no longer than this."""
        seconds = min(seconds, STOP_SECONDS)
        for link in (self._claim_link, self._finish_link):
            link.hurry(seconds)
        if self.worker:
            timer = asyncio.get_running_loop().call_later(seconds, self._finish_link.hurry, 0.0)
            try:
                # A claim that was called off because its answer took too long may have taken something all the same.
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
            except Exception as exc:  # noqa: BLE001 - whatever it is, it is said, and the others are served
                rest = self._outage.failed(exc)
                if not self._lending and ((why := refusal(exc)) is not None or isinstance(exc, SchemaMissing)):
                    # The server was away at the start; now that it answers, it will not answer otherwise.
                    self.refused = DatabaseRefused(f"{database_of(self.url)}: {why or exc}")
                    self._on_broken("start")
                    return

    async def _start(self) -> None:
        """Start as a whole or not at all: once the worker is registered, nothing more is waited for."""
        await self._claim_link.run_with(check_async)
        await self._claim_link.run_with(check_isolation)
        await self._claim_link.run_with(partial(check_room, settings=self._settings))
        await self._claim_link.run(ensure_partitions())
        queues = await self._claim_link.run(read_queues())
        database = "" if self._wake is None else await self._claim_link.run(identify_database())
        worker = await self._claim_link.run(self._registration())
        if self._stopping:
            await self._claim_link.run(stop_worker(worker, "stopped"))
            return
        self._waker = self._make_waker(database, worker)
        self.serving = Serving(
            self.url,
            worker=worker,
            identity=self._identity,
            claim_link=self._claim_link,
            finish_link=self._finish_link,
            kinds=self._kinds,
            codec=self._codec,
            dispatcher=self._dispatcher,
            holding=self._holding,
            settings=self._settings,
            transitions=self._transitions,
            shards=self._shards,
            queues=queues,
            waker=self._waker,
            woken=self._woken,
            on_disowned=self.disowned,
        )
        self.worker = worker
        self.serving.start(self.keeper, claiming=self._claiming, lending=self._lending)

    def _make_waker(self, database: str, worker: int) -> Waker | None:
        if not self._claiming and not self._relaying:
            return None
        return waker(
            self._wake,
            self.url,
            database,
            worker,
            self._settings.listen,
            on_wake=self._woken,
            on_lost=self._doubted,
        )

    def _registration(self) -> Statement[int]:
        queues = self._dispatcher.slots.queues
        versions = {name: kind.version for name, kind in self._kinds.items() if kind.version > 1}
        lease = Lease(self._settings.lease.total_seconds())
        return register_worker(
            self._name,
            queues=queues,
            kinds=self._kinds,
            identity=self._identity,
            versions=versions,
            limits={name: kind.work.limit(lease) for name, kind in self._kinds.items()},
        )

    def disowned(self, worker: int) -> None:
        """Register anew: the row with this id is gone or another's, as after a restore from a backup.

        A beat under the old id may be answered when the worker has its new one: then there is nothing to do.
        """
        if worker == self.worker and not self._stopping and (self._renaming is None or self._renaming.done()):
            log.error("the row of this worker is gone or another's: registering anew", extra={"worker": worker})
            self._holding.abort_all(AbortReason.not_found)
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
        # What was claimed since that was noticed is another's by its id, too.
        self._holding.abort_all(AbortReason.not_found)

    @property
    def vitals(self) -> Vitals:
        """How long ago this database was last heard of. From any thread."""
        vitals, serving = Vitals(database_of(self.url), loops=tuple(self.keeper.vitals)), self.serving
        return vitals if serving is None else serving.add_to(vitals)

    @property
    def heard(self) -> bool:
        """Whether notifications reach us."""
        return self._waker is not None and self._waker.listening.is_set()

    def _woken(self, text: str) -> None:
        if text in {"", EVENTS}:
            self.on_events()
        if text != EVENTS and self.serving is not None:
            self.serving.wake()

    def _doubted(self, claim: Held) -> None:
        if self.serving is not None and claim in self._holding.held:
            self.serving.heartbeat.doubt(claim)
