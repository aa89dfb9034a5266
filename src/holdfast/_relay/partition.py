"""One held partition: read a page, deliver it or make jobs of it, advance the position."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from holdfast._logs.log import Log
from holdfast._relay.publisher import DeliveryResult, LeaseOver
from holdfast._store.enqueue import EnqueuedJob
from holdfast._store.event import Cut, LogPage, read_events
from holdfast._store.subscription import advance_position, feed_jobs, parked_keys, released_events, settle_parked

if TYPE_CHECKING:
    from holdfast._engine.link import Link
    from holdfast._engine.runner import Budget
    from holdfast._relay.publisher import Participation, Publisher
    from holdfast._relay.subscription import Feed
    from holdfast._store.event import Position
    from holdfast._store.subscription import FeedResult, HeldPartition

log = Log(__name__)

PAGE = 2_000
# With a time budget the first page has one event, so that a short pass makes progress even with a slow sink. Pages
# grow while they are delivered within QUICK seconds, and shrink when they take longer than SLOW seconds.
QUICK, SLOW = 0.5, 3.0
GROWTH = 4
RELEASED = 1_000
# Pages read ahead of the one being delivered.
AHEAD = 1
# While pages arrive, check for events due for a retry this often, in seconds.
LOOK = 1.0


class Partition:
    """Reads ahead of the delivery. Only delivery advances the stored position."""

    def __init__(  # noqa: PLR0913 - the fence needs subscription, worker and token
        self, link: Link, *, subscription: int, worker: int, cut: Cut, held: HeldPartition, publisher: Publisher
    ) -> None:
        self._link = link
        self._subscription = subscription
        self._worker = worker
        self._cut = cut
        self._publisher = publisher
        self.held = held
        self._size = PAGE

    async def hand_over_all(self, budget: Budget) -> int:
        """Deliver all available events and return how many were confirmed. Raise LeaseOver if the lease was lost."""
        self._size = PAGE if budget.seconds_left is None else 1
        confirmed = await self._hand_over_released(budget)
        looked = time.monotonic()
        pages: asyncio.Queue[LogPage | None] = asyncio.Queue(AHEAD)
        reading = asyncio.create_task(self._read(pages, budget))
        try:
            while not budget.over and (page := await self._next(pages, reading)) is not None:
                started = time.monotonic()
                handed = await self._publisher.hand_over(page.events)
                confirmed += handed.confirmed
                await self._move(page.after, handed)
                self._pace(budget, time.monotonic() - started, full=not page.last)
                if time.monotonic() - looked > LOOK:
                    confirmed += await self._hand_over_released(budget)
                    looked = time.monotonic()
        finally:
            reading.cancel()
            # A cancellation of this task takes effect. Only the result of the reading task is ignored.
            await asyncio.gather(reading, return_exceptions=True)
        return confirmed

    async def _read(self, pages: asyncio.Queue[LogPage | None], budget: Budget) -> None:
        position = self.held.position
        while not budget.spent:
            page = await self._link.run(read_events(self._cut, position, limit=budget.limit(self._size)))
            budget.spend(len(page.events))
            if not page.events and page.last and not _moved(position, page.after):
                break
            await pages.put(page)
            position = page.after
        await pages.put(None)

    async def _next(self, pages: asyncio.Queue[LogPage | None], reading: asyncio.Task[None]) -> LogPage | None:
        """Return the next page, or raise the error that stopped the reading."""
        getting = asyncio.ensure_future(pages.get())
        try:
            await asyncio.wait({getting, reading}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            getting.cancel()
            raise
        if not getting.done() and reading.done() and pages.empty():
            getting.cancel()
            reading.result()
            return None
        return await getting

    async def _move(self, position: Position, handed: DeliveryResult) -> None:
        moved = await self._link.run(
            advance_position(
                self._subscription,
                self._worker,
                self.held,
                position,
                parked=handed.parked,
                deliveries=handed.deliveries.values(),
            )
        )
        if moved is None:
            raise LeaseOver
        self.held = moved

    async def _hand_over_released(self, budget: Budget) -> int:
        """Retry the released events, in order per key, before newer events of those keys."""
        confirmed = 0
        while not budget.spent:
            started, limit = time.monotonic(), budget.limit(min(RELEASED, self._size))
            released = await self._link.run(released_events(self._subscription, self._cut.partition, limit=limit))
            budget.spend(len(released.events))
            if not released.events:
                break
            self._publisher.parked.difference_update(key for _, _, key, *_ in released.events if key is not None)
            handed = await self._publisher.hand_over(released.events, released.tried)
            kept = {event.event_id: event for event in handed.parked}
            done = [event_id for event_id, *_ in released.events if event_id not in kept]
            settled = await self._link.run(
                settle_parked(self._subscription, self._worker, self.held, done=done, kept=kept.values())
            )
            if not settled:
                raise LeaseOver
            if handed.deliveries:
                await self._move(self.held.position, DeliveryResult(0, [], handed.deliveries))
            confirmed += handed.confirmed
            self._publisher.parked = await self._link.run(parked_keys(self._subscription, self._cut.partition))
            self._pace(budget, time.monotonic() - started, full=len(released.events) == limit)
        return confirmed

    def _pace(self, budget: Budget, seconds: float, *, full: bool) -> None:
        if budget.seconds_left is not None:
            self._size = next_size(self._size, seconds, full=full)


class FeedPartition:
    """The only partition of a feed. One statement reads events, creates their jobs and advances the position."""

    def __init__(self, feed: Feed, link: Link, participation: Participation, *, subscription: int, worker: int) -> None:
        self._feed = feed
        self._link = link
        self._participation = participation
        self._subscription = subscription
        self._worker = worker

    async def hand_over_all(self, budget: Budget) -> int:
        """Create jobs for all available events and return how many. Raise LeaseOver if the lease was lost."""
        made, envelope = 0, self._feed.envelope
        while not budget.spent:
            fed = await self._link.run(
                feed_jobs(
                    self._subscription,
                    self._worker,
                    kind=envelope.kind,
                    queue=envelope.queue,
                    priority=envelope.priority,
                    max_attempts=envelope.max_attempts,
                    ordered=self._feed.ordered,
                    limit=budget.limit(PAGE),
                    limits=envelope.limits,
                )
            )
            if fed is None:
                raise LeaseOver
            made += fed.events
            if fed.events:
                self._participation.confirmed(fed.events)
                self._report_made(fed)
            budget.spend(fed.events)
            if not fed.more:
                break
        return made

    def _report_made(self, fed: FeedResult) -> None:
        """Report the jobs that were made of events."""
        transitions, envelope = self._participation.transitions, self._feed.envelope
        if transitions:
            made = [EnqueuedJob(id_, envelope.kind, envelope.queue, self._feed.name) for id_ in fed.made]
            transitions.enqueued(made, "subscription")


def next_size(size: int, seconds: float, *, full: bool) -> int:
    """Return the size of the next page, given the delivery time of the last one. `full`: more events were available."""
    if seconds > SLOW:
        return max(1, size // 2)
    return min(PAGE, size * GROWTH) if full and seconds < QUICK else size


def _moved(before: Position, after: Position) -> bool:
    """Return whether a new position must be stored. Skipped events count too, or old days could not be deleted."""
    return before.phase is not None or after.seen_id > before.seen_id
