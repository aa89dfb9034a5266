"""Taking part in one subscription: the lease, a fair share of its partitions, and a task for each that is held."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import psycopg

from holdfast.engine.link import LOST, pause
from holdfast.engine.runner import Budget
from holdfast.relay.delivery import Courier, LeaseOver
from holdfast.relay.feed import FeedPartition
from holdfast.relay.partition import Partition
from holdfast.relay.subscription import Feed
from holdfast.store.identity import identify_database
from holdfast.store.position import Cut
from holdfast.store.subscription import (
    Subscribed,
    join_subscription,
    leave_subscription,
    parked_keys,
    subscribe,
)

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import AsyncIterator, Callable

    from holdfast.codec import JsonCodec
    from holdfast.engine.link import Link
    from holdfast.engine.transition import Transitions
    from holdfast.relay.bell import Bell
    from holdfast.relay.subscription import Relay
    from holdfast.store.subscription import Held, Membership

log = logging.getLogger(__name__)

# A lease is renewed this many times in its length, so that one failure does not end it.
RENEWALS = 4
# Who is told to stop may hand over the page it is at.
GENTLE_SECONDS = 5.0

# Which partition, under which token.
Key: TypeAlias = tuple[int, int]


class Serving(NamedTuple):
    task: asyncio.Task[None]
    budget: Budget
    """Ended when it shall stop."""


class Member:
    """One process's part in a subscription, on one database."""

    def __init__(  # noqa: PLR0913 - what taking part depends on
        self,
        what: Feed | Relay,
        link: Link,
        *,
        worker: Callable[[], int],
        bell: Bell,
        lease: float,
        codec: JsonCodec,
        counts: Counter[str],
        transitions: Transitions,
    ) -> None:
        """`lease`: in seconds."""
        self._what = what
        self._link = link
        self._worker = worker
        self._bell = bell
        self._lease = lease
        self._codec = codec
        self._counts = counts
        self._transitions = transitions
        self._subscribed: Subscribed | None = None
        self._database = ""
        self._alive_until = 0.0
        self._serving: dict[Key, Serving] = {}
        self._ended = asyncio.Event()
        self._told: str | None = None

    async def run(self) -> None:
        """Take part until cancelled; then hand over what was read, and leave."""
        failures = 0
        try:
            while True:
                self._ended.clear()
                try:
                    self._keep(await self.join())
                    failures = 0
                except (*LOST, TimeoutError) as exc:
                    log.warning("a subscription cannot reach its database", extra=self._extra(error=type(exc).__name__))
                    failures += 1
                except Exception:
                    log.exception("a subscription cannot take part", extra=self._extra())
                    failures += 1
                await self._rest(failures)
        finally:
            await self._leave()

    async def drain(self, budget: Budget) -> int:
        """Hand over what is there of what can be taken, once, and leave the rest to others."""
        try:
            membership = await self.join()
            renewing = asyncio.create_task(self._renew())
            try:
                done = 0
                for held in _ours(membership).values():
                    async with self._open(held, membership.base_id) as partition:
                        done += await partition.hand_over_all(budget)
                return done
            finally:
                renewing.cancel()
                await asyncio.gather(renewing, return_exceptions=True)
        finally:
            await self._leave()

    async def join(self) -> Membership:
        """Make the subscription if need be, renew the lease, and take what is free."""
        if not self._worker():
            raise TimeoutError("the worker is not registered yet")
        subscribed = self._subscribed or await self._subscribe()
        begun = time.monotonic()
        joining = join_subscription(subscribed.id, self._worker(), lease_ms=round(self._lease * 1000))
        membership = await self._link.run(joining)
        if membership is None:
            # Somebody has deleted it, and we are still here: it begins anew.
            log.warning("a subscription was deleted while it is in use", extra=self._extra())
            self._subscribed = None
            return await self.join()
        self._alive_until = begun + self._lease
        self._say(membership, subscribed)
        return membership

    async def _subscribe(self) -> Subscribed:
        self._database = await self._link.run(identify_database())
        self._subscribed = await self._link.run(
            subscribe(
                self._what.name,
                target=self._what.target,
                topics=self._what.topics,
                partitions=self._what.partitions,
                beginning=self._what.start == "beginning",
            )
        )
        return self._subscribed

    @property
    def _alive(self) -> bool:
        """Nobody can have taken what is held."""
        return time.monotonic() < self._alive_until

    def _keep(self, membership: Membership) -> None:
        """Have a task for every partition that is ours, up to our share, and none for another."""
        held = _ours(membership)
        self._serving = {key: serving for key, serving in self._serving.items() if not serving.task.done()}
        ours = [key for key in self._serving if key in held]
        locked = {(one.partition, one.token) for one in membership.held}
        for key in {*self._serving} - {*ours[: membership.share]}:
            if key in locked:
                self._stop(self._serving[key])
            else:
                # Nothing that it does counts any more; and where it hangs, nobody need wait for it.
                self._serving[key].task.cancel()
        for key, mine in held.items():
            if key not in self._serving and len(ours) < membership.share:
                budget = Budget()
                task = asyncio.create_task(self._serve(mine, membership.base_id, budget))
                task.add_done_callback(lambda _: self._ended.set())
                self._serving[key] = Serving(task, budget)
                ours.append(key)

    async def _serve(self, held: Held, base_id: int, budget: Budget) -> None:
        """Hand over what comes, until told to stop or the lease is lost."""
        try:
            async with self._open(held, base_id) as partition:
                sleeper = self._bell.sleeper()
                while not budget.spent:
                    sleeper.listen()
                    done = await partition.hand_over_all(budget)
                    self._counts[self._what.name] += done
                    if done:
                        sleeper.begin()
                    if await sleeper.may_sleep() and not budget.spent:
                        await sleeper.sleep(self._lease)
        except LeaseOver:
            log.info("a partition is in other hands", extra=self._extra(partition=held.partition))
        except (*LOST, TimeoutError) as exc:
            log.warning("a subscription lost its database", extra=self._extra(error=type(exc).__name__))
        except Exception:
            log.exception("a partition stopped, and is tried again", extra=self._extra(partition=held.partition))

    @asynccontextmanager
    async def _open(self, held: Held, base_id: int) -> AsyncIterator[Partition | FeedPartition]:
        """Have what hands over; at the end it is given up, so that others need not wait for the lease to end."""
        subscribed, what = self._subscribed, self._what
        assert subscribed is not None  # noqa: S101 - joined before anything is held
        if isinstance(what, Feed):
            yield FeedPartition(
                what,
                self._link,
                subscription=subscribed.id,
                worker=self._worker(),
                transitions=self._transitions,
            )
            return
        async with what.to.open() as publish:
            courier = Courier(
                what,
                publish,
                database=self._database,
                codec=self._codec,
                parked=await self._link.run(parked_keys(subscribed.id, held.partition)),
                alive=lambda: self._alive,
                transitions=self._transitions,
            )
            cut = Cut(what.topics, subscribed.partitions, held.partition, base_id)
            partition = Partition(
                self._link, subscription=subscribed.id, worker=self._worker(), cut=cut, held=held, courier=courier
            )
            try:
                yield partition
            finally:
                with suppress(*LOST, TimeoutError):
                    await partition.give_up()

    def _stop(self, serving: Serving) -> None:
        serving.budget.end()
        self._bell.ring()

    async def _rest(self, failures: int) -> None:
        """Until the lease is to be renewed; or, when something failed or a partition ended, a moment."""
        moment = pause(max(0, failures - 1))
        with suppress(TimeoutError):
            async with asyncio.timeout(min(moment, self._lease / RENEWALS) if failures else self._lease / RENEWALS):
                await self._ended.wait()
                await asyncio.sleep(moment)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._lease / RENEWALS)
            await self.join()

    async def _leave(self) -> None:
        for serving in self._serving.values():
            self._stop(serving)
        tasks = [serving.task for serving in self._serving.values()]
        self._serving.clear()
        if tasks:
            tasks.append(asyncio.create_task(self._renew()))
            await asyncio.wait(tasks[:-1], timeout=GENTLE_SECONDS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._subscribed is not None:
            with suppress(*LOST, TimeoutError, psycopg.Error):
                await self._link.run(leave_subscription(self._subscribed.id, self._worker()))

    def _say(self, membership: Membership, subscribed: Subscribed) -> None:
        """Tell once what keeps a subscription from being read as the code asks for."""
        told = "elsewhere" if membership.elsewhere else "cut" if subscribed.partitions != self._what.partitions else ""
        if told == self._told:
            return
        self._told = told
        if told == "elsewhere":
            log.error(
                "this database was restored from another server: run `holdfast events rebase %s`",
                self._what.name,
                extra=self._extra(),
            )
        elif told == "cut":
            log.warning(
                "a subscription has %s partitions, and the code asks for %s: run `holdfast events repartition %s %s`",
                subscribed.partitions,
                self._what.partitions,
                self._what.name,
                self._what.partitions,
                extra=self._extra(),
            )

    def _extra(self, **more: object) -> dict[str, object]:
        return {"subscription": self._what.name} | more


def _ours(membership: Membership) -> dict[Key, Held]:
    if membership.paused or membership.elsewhere:
        return {}
    return {(held.partition, held.token): held for held in membership.held}
