"""Mistakes in Python code that concern events."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from holdfast._relay.partition import PAGE, FeedPartition, Partition, _moved
from holdfast._relay.publisher import DeliveryResult, LeaseOver, Publisher
from holdfast._store.event import Cut, read_events
from holdfast._store.statement import Statement
from holdfast._store.subscription import advance_position, join_subscription
from labs.chaos.breaks.mistake import substitute

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast._engine.runner import Budget
    from holdfast._relay.message import Message
    from holdfast._store.event import LoggedEvent, LogPage
    from holdfast._store.statement import Parameter

# How long after the jobs the position follows when that is a transaction of its own, in seconds.
APART = 0.8
LEASE_MS = 2000
_JOBS = """
    INSERT INTO holdfast.job (created_at, available_at, max_attempts, queue, kind, payload, unique_key)
    SELECT now(), now(), %(max_attempts)s, %(queue)s, %(kind)s, json_build_object('event', e),
        %(kind)s || ':' || (e ->> 'id')
    FROM json_array_elements(%(events)s::json) AS e
    ON CONFLICT DO NOTHING RETURNING id
"""
_WAKE = "SELECT holdfast.wake_sleepers(ARRAY[%(queue)s::text], ARRAY[%(kind)s::text])::text"


def move_before_the_confirmation() -> None:
    async def hand_over_all(self: Partition, budget: Budget) -> int:  # noqa: ARG001 - has no limit
        confirmed = 0
        while True:
            page = await self._link.run(read_events(self._cut, self.held.position, limit=PAGE))
            if not page.events and page.last and not _moved(self.held.position, page.after):
                return confirmed
            await self._move(page.after, DeliveryResult(0, [], {}))
            confirmed += (await self._publisher.hand_over(page.events)).confirmed

    substitute(Partition, "hand_over_all", hand_over_all)


def feed_in_two_transactions() -> None:
    async def hand_over_all(self: FeedPartition, budget: Budget) -> int:  # noqa: ARG001 - has no limit
        feed = self._feed
        membership = await self._link.run(join_subscription(self._subscription, self._worker, lease_ms=LEASE_MS))
        if membership is None or not membership.held:
            raise LeaseOver
        held = membership.held[0]
        page = await self._link.run(read_events(Cut(feed.topics, 1, 0, membership.base_id), held.position, limit=PAGE))
        if page.events:
            to: dict[str, Parameter] = {"queue": feed.envelope.queue, "kind": feed.envelope.kind}
            given: dict[str, Parameter] = {"max_attempts": feed.envelope.max_attempts, "events": _as_json(page)}
            await self._link.run(Statement(_JOBS, given | to, list))
            await self._link.run(Statement(_WAKE, to, list))
            await asyncio.sleep(APART)
        if await self._link.run(advance_position(self._subscription, self._worker, held, page.after)) is None:
            raise LeaseOver
        self._participation.confirmed(len(page.events))
        return len(page.events)

    substitute(FeedPartition, "hand_over_all", hand_over_all)


def number_without_time() -> None:
    message_of = Publisher._outgoing

    def timeless(self: Publisher, event: LoggedEvent) -> tuple[int, Message, str | None]:
        event_id, message, trace = message_of(self, event)
        return event_id, replace(message, id=f"{self._identity}-{event_id}"), trace

    substitute(Publisher, "_outgoing", timeless)


def _as_json(page: LogPage) -> str:
    names = ("id", "topic", "key", "payload", "headers", "published_at", "version", "trace")
    events: list[dict[str, object]] = [dict(zip(names, event, strict=True)) for event in page.events]
    return json.dumps(
        [one | {"payload": json.loads(str(one["payload"])), "headers": {}} for one in events], default=str
    )


PATCHES: Final[dict[str, Callable[[], None]]] = {
    "relay that moves on before the confirmation": move_before_the_confirmation,
    "message ids without a time": number_without_time,
    "feed with its position in another transaction": feed_in_two_transactions,
}
