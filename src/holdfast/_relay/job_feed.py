"""A subscription whose events become jobs: one statement reads them, creates the jobs and advances the position."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._relay.partition import PAGE
from holdfast._relay.publisher import LeaseOver
from holdfast._store.subscription import feed_jobs

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast._engine.link import Link
    from holdfast._engine.runner import Budget
    from holdfast._relay.subscription import Feed
    from holdfast._store.subscription import Fed


class FeedPartition:
    """The only partition of a feed."""

    def __init__(
        self, feed: Feed, link: Link, *, subscription: int, worker: int, confirmed: Callable[[Fed], None]
    ) -> None:
        """`confirmed(fed)` is called with the result of each statement that found events."""
        self._feed = feed
        self._link = link
        self._subscription = subscription
        self._worker = worker
        self._confirmed = confirmed

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
                    most=budget.most(PAGE),
                )
            )
            if fed is None:
                raise LeaseOver
            made += fed.events
            if fed.events:
                self._confirmed(fed)
            budget.spend(fed.events)
            if not fed.more:
                break
        return made

    async def give_up(self) -> None:
        """Do nothing: the next consumer takes the feed once this one has left."""
