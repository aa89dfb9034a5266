"""A subscription whose events become jobs: one statement reads them, makes the jobs and moves on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.relay.delivery import LeaseOver
from holdfast.relay.partition import PAGE
from holdfast.store.subscription import feed_jobs

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.engine.link import Link
    from holdfast.engine.runner import Budget
    from holdfast.relay.subscription import Feed


class FeedPartition:
    """The only partition of a feed."""

    def __init__(
        self, feed: Feed, link: Link, *, subscription: int, worker: int, confirmed: Callable[[int], None]
    ) -> None:
        """`confirmed(count)`: is told of how many events there are jobs now."""
        self._feed = feed
        self._link = link
        self._subscription = subscription
        self._worker = worker
        self._confirmed = confirmed

    async def hand_over_all(self, budget: Budget) -> int:
        """Make jobs of all that is there; LeaseOver: it is not ours to do."""
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
                self._confirmed(fed.events)
            budget.spend(fed.events)
            if not fed.more:
                break
        return made

    async def give_up(self) -> None:
        """Whoever comes next takes it when we have left."""
