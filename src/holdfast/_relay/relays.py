"""The relays of a process on one database: one consumer per subscription, one shared link and one LogWaker."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Self

from holdfast._engine.link import Link
from holdfast._relay.consumer import Consumer, RelayParts, side_by_side
from holdfast._relay.sleep import LogWaker
from holdfast._relay.subscription import Feed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast._engine.keeper import Kept, Turn
    from holdfast._engine.report.transition import Transitions
    from holdfast._engine.runner import Budget
    from holdfast._engine.session import Session
    from holdfast._model.codec import JsonCodec
    from holdfast._model.settings import Settings
    from holdfast._relay.subscription import Relay

STATEMENT_SECONDS = 30.0
# On exit, work in progress has this many seconds to end. A cancelled statement waits for its server.
LEAVE_SECONDS = 2.0


class Relays:
    """Relays events while its `async with` block runs. Other workers repeat deliveries that the exit interrupts."""

    def __init__(
        self,
        session: Session,
        transitions: Transitions,
        *,
        subscriptions: Sequence[Feed | Relay],
        settings: Settings,
        codec: JsonCodec,
    ) -> None:
        self._subscriptions = subscriptions
        self._lease = settings.lease
        self._link = Link(session.links.url, timeout=STATEMENT_SECONDS)
        topics = [topic for what in subscriptions for topic in what.topics]
        self._waker = LogWaker(
            self._link,
            session,
            topics=() if any(not what.topics for what in subscriptions) else tuple(dict.fromkeys(topics)),
            idle=(settings.idle_min.total_seconds(), settings.idle_max.total_seconds()),
        )
        self.counts: Counter[str] = Counter()
        """Delivered events, by subscription."""
        self._keeper = session.keeper
        self._parts = RelayParts(
            link=self._link,
            row=session.row,
            waker=self._waker,
            codec=codec,
            counts=self.counts,
            transitions=transitions,
            keeper=self._keeper,
            report=session.report,
        )
        self._kept: list[Kept] = []

    async def __aenter__(self) -> Self:
        self._kept = [
            self._keeper.start("relay", partial(self._run, what), detail=what.name) for what in self._subscriptions
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        for kept in self._kept:
            kept.cancel()
        await asyncio.gather(*(kept.wait(LEAVE_SECONDS) for kept in self._kept))
        await self._link.abandon()

    async def drain(self, budget: Budget) -> dict[str, int]:
        """Deliver all available events once, and return the number of events by subscription."""
        try:
            shares = zip(self._subscriptions, budget.shares(len(self._subscriptions)), strict=True)
            done = await side_by_side(self._member(what).drain(share) for what, share in shares)
        finally:
            await self._link.close()
        return {what.name: count for what, count in zip(self._subscriptions, done, strict=True)}

    async def _run(self, what: Feed | Relay, turn: Turn) -> None:
        await self._member(what).run(turn)

    def _member(self, what: Feed | Relay) -> Consumer:
        lease = self._lease if isinstance(what, Feed) or what.lease is None else what.lease
        return Consumer(what, self._parts, lease=lease.total_seconds())
