"""Membership in one subscription: the lease, a fair share of its partitions, and one task per held partition."""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, cast

import psycopg

from holdfast._engine.keeper import unwatched
from holdfast._engine.link import LOST, Outage, pause
from holdfast._engine.runner import Budget
from holdfast._logs.failure import Failure
from holdfast._logs.log import Log
from holdfast._relay.message import Gone
from holdfast._relay.partition import FeedPartition, Partition
from holdfast._relay.publisher import LeaseOver, Participation, Publisher
from holdfast._relay.subscription import Feed
from holdfast._store.event import Cut
from holdfast._store.subscription import (
    Subscribed,
    advance_position,
    join_subscription,
    leave_subscription,
    parked_keys,
    pause_subscription,
    subscribe,
)
from holdfast._store.worker import read_identity

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping

    from holdfast._engine.keeper import Keeper, Kept, Turn
    from holdfast._engine.link import Link
    from holdfast._engine.own_row import OwnRow
    from holdfast._engine.report.transition import Transitions
    from holdfast._engine.worker_report import WorkerReport
    from holdfast._model.codec import JsonCodec
    from holdfast._relay.sleep import LogWaker
    from holdfast._relay.subscription import Relay
    from holdfast._store.subscription import HeldPartition, Membership

log = Log(__name__)

# A lease is renewed this many times during its length, so that one failure does not end it.
RENEWALS = 4
# A consumer that stops may finish its current page within this time, in seconds, if nothing has to be retried.
GENTLE_SECONDS = 5.0
# The reason of a pause has at most this many characters.
PAUSE_REASON = 500

# The partition's number and its fencing token.
Key: TypeAlias = tuple[int, int]


@dataclass(slots=True)
class HeldTask:
    kept: Kept
    budget: Budget
    """Ended to ask the task to stop."""
    partition: Partition | None = None
    """Keeps the position in memory. None: not opened yet, or it reads the position in each statement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayParts:
    """The parts that all consumers of a process share, on one database."""

    link: Link
    row: OwnRow
    waker: LogWaker
    codec: JsonCodec
    counts: Counter[str]
    """Delivered events, by subscription."""
    transitions: Transitions
    keeper: Keeper
    report: WorkerReport


class Consumer:
    """One process's membership in a subscription, on one database."""

    def __init__(self, what: Feed | Relay, parts: RelayParts, *, lease: float) -> None:
        """`lease` is in seconds."""
        self._what = what
        self._parts = parts
        self._link = parts.link
        self._lease = lease
        self._subscribed: Subscribed | None = None
        self._identity = ""
        self._participation = Participation(what.name, parts.counts, parts.transitions, parts.report)
        self._serving: dict[Key, HeldTask] = {}
        self._outages: dict[int, Outage] = {}
        """By partition."""
        self._ended = asyncio.Event()
        self._reported: str | None = None

    async def run(self, turn: Turn = unwatched) -> None:
        """Consume until cancelled, then deliver what was read and leave the subscription."""
        outage = Outage(log, "a subscription cannot take part", **self._extra())
        try:
            while True:
                turn(self._lease / RENEWALS)
                self._ended.clear()
                rest = None
                try:
                    known = self._known()
                    for unserved in self._keep(await self.join(), known):
                        await self._give_up(unserved)
                    outage.over()
                except Exception as exc:  # noqa: BLE001 - any error is logged and retried
                    rest = outage.failed(exc)
                await self._rest(rest)
        finally:
            await self._leave()

    async def drain(self, budget: Budget) -> int:
        """Deliver the events available in free partitions once, and return how many. Other consumers serve the rest."""
        try:
            membership = await self.join()
            renewing = asyncio.create_task(self._renew())
            try:
                ours = _ours(membership)
                shares = zip(ours.values(), budget.shares(len(ours)), strict=True)
                return sum(await side_by_side(self._drain(held, membership, share) for held, share in shares))
            finally:
                renewing.cancel()
                await asyncio.gather(renewing, return_exceptions=True)
        finally:
            await self._leave()

    async def _drain(self, held: HeldPartition, membership: Membership, budget: Budget) -> int:
        async with self._open(held, membership, budget) as partition:
            return await partition.hand_over_all(budget)

    async def join(self) -> Membership:
        """Create the subscription if it does not exist, renew the lease, and claim free partitions."""
        if not self._parts.row.id:
            raise TimeoutError("the worker is not registered yet")
        subscribed = self._subscribed or await self._subscribe()
        asked_at = time.monotonic()
        joining = join_subscription(subscribed.id, self._parts.row.id, lease_ms=round(self._lease * 1000))
        membership = await self._link.run(joining)
        if membership is None:
            # It was deleted while this consumer still serves it: create it again.
            log.warning("a subscription was deleted while it is in use", extra=self._extra())
            self._subscribed = None
            return await self.join()
        self._participation.alive_until = asked_at + self._lease
        self._log_membership(membership)
        return membership

    async def _subscribe(self) -> Subscribed:
        self._identity = await self._link.run(read_identity())
        self._subscribed = await self._link.run(
            subscribe(
                self._what.name,
                target=self._what.target,
                topics=self._what.topics,
                partitions=self._what.partitions,
                beginning=self._what.start == "beginning",
                makes_jobs=isinstance(self._what, Feed),
            )
        )
        return self._subscribed

    def _known(self) -> dict[Key, int]:
        """Return the number of the position that each running task has stored last."""
        opened = ((key, serving.partition) for key, serving in self._serving.items())
        return {key: partition.held.seq for key, partition in opened if partition is not None}

    def _keep(self, membership: Membership, known: Mapping[Key, int]) -> list[HeldPartition]:
        """Run one task per held partition, up to the fair share, and stop all other tasks.

        `known`: the numbers of the positions before the membership was read. Returns the partitions to release: those
        held above the share without a task, whose task ended while the database was unreachable, and those whose
        stored position went back.
        """
        held = _ours(membership)
        rewound = [held.pop(key) for key, seq in known.items() if key in held and held[key].seq < seq]
        for one in rewound:
            # Events published since would be taken for ones that were seen. A new token fences the task's last writes.
            self._serving.pop((one.partition, one.token)).kept.cancel()
            log.error(
                "the position of a partition went back: the database was restored to an earlier moment",
                extra=self._extra(partition=one.partition),
            )
        self._serving = {key: serving for key, serving in self._serving.items() if not serving.kept.done}
        ours = [key for key in self._serving if key in held]
        locked = {(one.partition, one.token) for one in membership.held}
        for key in {*self._serving} - {*ours[: membership.share]}:
            if key in locked:
                self._stop(self._serving[key])
            else:
                # Its token is no longer valid, so nothing it does counts; do not wait for it in case it hangs.
                self._serving[key].kept.cancel()
        unserved = [key for key in held if key not in self._serving]
        free = max(0, membership.share - len(ours))
        for key in unserved[:free]:
            budget = Budget()
            serve = partial(self._serve, held[key], membership, budget)
            kept = self._parts.keeper.start("partition", serve, detail=f"{self._what.name} {key[0]}", once=True)
            kept.on_end = self._ended.set
            self._serving[key] = HeldTask(kept, budget)
        return rewound + [held[key] for key in unserved[free:]]

    async def _give_up(self, held: HeldPartition) -> None:
        """Release the partition at once: while this lease lives, no other consumer would claim it."""
        assert self._subscribed is not None  # noqa: S101 - joined before anything is held
        await self._link.run(advance_position(self._subscribed.id, self._parts.row.id, held, held.position, free=True))

    async def _serve(self, held: HeldPartition, membership: Membership, budget: Budget, turn: Turn) -> None:
        """Deliver events as they arrive, until asked to stop or the lease is lost."""
        turn(math.inf)
        extra = self._extra(partition=held.partition)
        new = Outage(log, "a partition stopped, and is tried again", **extra)
        outage = self._outages.setdefault(held.partition, new)
        try:
            async with self._open(held, membership, budget) as partition:
                if isinstance(partition, Partition) and (key := (held.partition, held.token)) in self._serving:
                    self._serving[key].partition = partition
                sleeper = self._parts.waker.sleeper()
                while not budget.spent:
                    sleeper.listen()
                    done = await partition.hand_over_all(budget)
                    outage.over()
                    self._parts.report.sink_answered(self._what.name)
                    if done:
                        sleeper.begin()
                    if await sleeper.may_sleep() and not budget.spent:
                        await sleeper.sleep(self._lease)
        except LeaseOver:
            message = "a partition is given up" if budget.ended else "a partition is in other hands"
            log.info(message, extra=extra)
        except Exception as exc:  # noqa: BLE001 - any error is logged, and `run` tries again
            rest = outage.failed(exc)
            if not isinstance(exc, psycopg.Error):
                self._parts.report.sink_failed(self._what.name, Failure.of(exc), rest, tries=outage.failures)

    @asynccontextmanager
    async def _open(
        self, held: HeldPartition, membership: Membership, budget: Budget
    ) -> AsyncIterator[Partition | FeedPartition]:
        """Yield the opened partition, and release it at the end so that others need not wait for the lease."""
        subscribed, what = self._subscribed, self._what
        assert subscribed is not None  # noqa: S101 - joined before anything is held
        if isinstance(what, Feed):
            yield FeedPartition(
                what,
                self._link,
                self._participation,
                subscription=subscribed.id,
                worker=self._parts.row.id,
            )
            return
        async with what.to.open() as publish:
            publisher = Publisher(
                what,
                publish,
                self._participation,
                identity=self._identity,
                codec=self._parts.codec,
                parked=await self._link.run(parked_keys(subscribed.id, held.partition)),
                budget=budget,
            )
            cut = Cut(membership.topics, membership.partitions, held.partition, membership.base_id)
            partition = Partition(
                self._link,
                subscription=subscribed.id,
                worker=self._parts.row.id,
                cut=cut,
                held=held,
                publisher=publisher,
            )
            try:
                yield partition
            except Gone as gone:
                await self._pause(gone)
                raise LeaseOver from gone
            finally:
                with suppress(*LOST, TimeoutError):
                    await self._give_up(partition.held)

    async def _pause(self, gone: Gone) -> None:
        """Pause the subscription until an operator resumes it."""
        assert self._subscribed is not None  # noqa: S101 - joined before anything is held
        failure = Failure.of(gone)
        reason = f"the other side is gone: {failure.text}"[:PAUSE_REASON]
        await self._link.run(pause_subscription(self._subscribed.id, paused=True, by="the relay itself", reason=reason))
        message = "a subscription is paused, since the other side is gone: `holdfast events resume %s` lets it go on"
        log.error(message, self._what.name, extra=self._extra(error=failure.code, why=failure.text))

    def _stop(self, serving: HeldTask) -> None:
        if not serving.budget.ended:
            serving.budget.end()
            asyncio.get_running_loop().call_later(GENTLE_SECONDS, serving.kept.cancel)
        self._parts.waker.wake()

    async def _rest(self, failed: float | None) -> None:
        """Wait until the lease must be renewed, or only briefly after a failure or when a partition's task ended."""
        renewal = self._lease / RENEWALS
        with suppress(TimeoutError):
            async with asyncio.timeout(renewal if failed is None else min(failed, renewal)):
                await self._ended.wait()
                failures = max((outage.failures for outage in self._outages.values()), default=0)
                await asyncio.sleep(failed or pause(failures))

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._lease / RENEWALS)
            await self.join()

    async def _leave(self) -> None:
        for serving in self._serving.values():
            self._stop(serving)
        kept = [serving.kept for serving in self._serving.values()]
        self._serving.clear()
        if kept:
            renewing = asyncio.create_task(self._renew())
            await asyncio.gather(*(one.wait(GENTLE_SECONDS) for one in kept))
            for one in kept:
                one.cancel()
            renewing.cancel()
            await asyncio.gather(renewing, *(one.wait() for one in kept), return_exceptions=True)
        if self._subscribed is not None:
            with suppress(*LOST, TimeoutError, psycopg.Error):
                await self._link.run(leave_subscription(self._subscribed.id, self._parts.row.id))

    def _log_membership(self, membership: Membership) -> None:
        """Log once why a subscription cannot be read as the code configures it."""
        if membership.moved:
            log.warning(
                "the server's identifier changed and its transactions did not: taken for a pg_upgrade",
                extra=self._extra(),
            )
        state = "elsewhere" if membership.elsewhere else "cut" if membership.partitions != self._what.partitions else ""
        if state == self._reported:
            return
        self._reported = state
        if state == "elsewhere":
            log.error(
                "this database was restored from another server: run `holdfast events rebase %s`",
                self._what.name,
                extra=self._extra(),
            )
        elif state == "cut":
            log.warning(
                "a subscription has %s partitions, and the code asks for %s: run `holdfast events repartition %s %s`",
                membership.partitions,
                self._what.partitions,
                self._what.name,
                self._what.partitions,
                extra=self._extra(),
            )

    def _extra(self, **more: object) -> dict[str, object]:
        return {"subscription": self._what.name} | more


def _ours(membership: Membership) -> dict[Key, HeldPartition]:
    if membership.paused or membership.elsewhere:
        return {}
    return {(held.partition, held.token): held for held in membership.held}


async def side_by_side(passes: Iterable[Coroutine[None, None, int]]) -> list[int]:
    """Run all passes to their end, even if some fail, then raise the errors."""
    ended = await asyncio.gather(*passes, return_exceptions=True)
    if len(wrong := [error for error in ended if isinstance(error, BaseException)]) > 1:
        raise BaseExceptionGroup("several passes failed", wrong)
    if wrong:
        raise wrong[0]
    return cast("list[int]", ended)
