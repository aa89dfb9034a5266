"""The relays of a process on one database: one part in each subscription, a link for all, and a bell."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Self

from holdfast.engine.keeper import Keeper
from holdfast.engine.link import Link
from holdfast.relay.bell import Bell
from holdfast.relay.member import Member, side_by_side
from holdfast.relay.subscription import Feed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from holdfast.codec import JsonCodec
    from holdfast.engine.keeper import Kept, Turn
    from holdfast.engine.runner import Budget
    from holdfast.engine.transition import Transitions
    from holdfast.relay.subscription import Relay
    from holdfast.settings import Settings

STATEMENT_SECONDS = 30.0
# What is under way when it is left has this long to end; a statement that is cancelled waits for its server.
LEAVE_SECONDS = 2.0


class Relays:
    """Runs while its `async with` block does. What is under way when it is left is handed over again by others."""

    def __init__(  # noqa: PLR0913 - what reading depends on
        self,
        url: str,
        *,
        subscriptions: Sequence[Feed | Relay],
        settings: Settings,
        codec: JsonCodec,
        worker: Callable[[], int],
        heard: Callable[[], bool],
        transitions: Transitions,
        keeper: Keeper | None = None,
    ) -> None:
        """`worker()`: the id of the worker's row. `heard()`: whether its notifications reach us."""
        self._subscriptions = subscriptions
        self._settings = settings
        self._codec = codec
        self._worker = worker
        self._transitions = transitions
        self._keeper = keeper or Keeper(transitions.worker)
        self._link = Link(url, timeout=STATEMENT_SECONDS)
        topics = [topic for what in subscriptions for topic in what.topics]
        self._bell = Bell(
            self._link,
            worker=worker,
            topics=() if any(not what.topics for what in subscriptions) else tuple(dict.fromkeys(topics)),
            heard=heard,
            idle=(settings.idle_min.total_seconds(), settings.idle_max.total_seconds()),
        )
        self._kept: list[Kept] = []
        self.counts: Counter[str] = Counter()
        """Events handed over, by subscription."""

    async def __aenter__(self) -> Self:
        self._kept = [
            self._keeper.start("relay", partial(self._run, what), detail=what.name) for what in self._subscriptions
        ]
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        for kept in self._kept:
            kept.cancel()
        await asyncio.gather(*(kept.wait(LEAVE_SECONDS) for kept in self._kept))
        await self._link.abandon()

    def wake(self) -> None:
        """Let everybody look now."""
        self._bell.ring()

    async def drain(self, budget: Budget) -> dict[str, int]:
        """Hand over what is there, once; answer how many events, by subscription."""
        try:
            shares = zip(self._subscriptions, budget.shares(len(self._subscriptions)), strict=True)
            done = await side_by_side(self._member(what).drain(share) for what, share in shares)
        finally:
            await self._link.close()
        return {what.name: count for what, count in zip(self._subscriptions, done, strict=True)}

    async def _run(self, what: Feed | Relay, turn: Turn) -> None:
        await self._member(what).run(turn)

    def _member(self, what: Feed | Relay) -> Member:
        lease = self._settings.lease if isinstance(what, Feed) or what.lease is None else what.lease
        return Member(
            what,
            self._link,
            worker=self._worker,
            bell=self._bell,
            lease=lease.total_seconds(),
            codec=self._codec,
            counts=self.counts,
            transitions=self._transitions,
            keeper=self._keeper,
        )
