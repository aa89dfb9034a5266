"""Delivery of one page to a sink: in order per key, keys concurrently, each event confirmed or parked."""

from __future__ import annotations

import asyncio
import json
import random
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from holdfast._engine.report.job_log import Flood
from holdfast._logs.failure import Failure
from holdfast._logs.log import Log
from holdfast._model.errors import HoldfastError
from holdfast._relay.message import LONGEST_REST, Gone, Message, Refused, Unavailable
from holdfast._store.subscription import Delivery, ParkedEvent

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence

    from holdfast._engine.report.transition import Transitions
    from holdfast._engine.runner import Budget
    from holdfast._engine.worker_report import WorkerReport
    from holdfast._model.codec import JsonCodec
    from holdfast._model.retry import Retry
    from holdfast._relay.message import Publish, Receipt
    from holdfast._relay.subscription import Relay
    from holdfast._store.event import LoggedEvent

log = Log(__name__)

# The event's id, the message, and the trace of the transaction that published it.
OutgoingEvent: TypeAlias = tuple[int, Message, str | None]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
SHORTEST_PAUSE = 0.05
LONGEST_PAUSE = 5.0
# An event whose next retry is later than this, in seconds, is parked so that the others go on.
PATIENCE = 5.0
# A waiting delivery checks its lease this often, in seconds.
STEP = 0.5


class LeaseOver(HoldfastError):  # noqa: N818 - named for what happened
    """The partition may be in other hands by now, or is to be given up.

    Cure: Nothing to do: another process takes over the partition.
    """


class DeliveryResult(NamedTuple):
    confirmed: int
    parked: list[ParkedEvent]
    deliveries: dict[tuple[int, int], Delivery]
    """By event and attempt. Of attempts that do not count, only the last answer is kept."""


@dataclass(slots=True, eq=False)
class Participation:
    """The part of a process in one subscription: until when it holds its leases, and what it has delivered."""

    name: str
    """The name of the subscription."""
    counts: Counter[str]
    """Delivered events, by subscription."""
    transitions: Transitions
    report: WorkerReport
    alive_until: float = 0.0
    """Until when the leases are certainly held, by the monotonic clock."""

    @property
    def alive(self) -> bool:
        """Whether the lease has not expired, so that no other process can have claimed the held partitions."""
        return time.monotonic() < self.alive_until

    def confirmed(self, events: int) -> None:
        """Count and report delivered events."""
        self.counts[self.name] += events
        self.transitions.relayed(self.name, confirmed=events)


class Publisher:
    """Publishes for one partition. Its set of parked keys mirrors the table."""

    def __init__(  # noqa: PLR0913 - the dependencies of a delivery
        self,
        relay: Relay,
        publish: Publish,
        participation: Participation,
        *,
        identity: str,
        codec: JsonCodec,
        parked: set[str],
        budget: Budget,
    ) -> None:
        """`identity`: of the schema, a part of every message's id. When the `budget` ends, all waiting stops."""
        self._relay = relay
        self._publish = publish
        self._participation = participation
        self._transitions = participation.transitions
        self._identity = identity
        self._codec = codec
        self._budget = budget
        self._retry: Retry | None = getattr(relay.to, "retry", None)
        self._rests_until = 0.0
        self._flood = Flood(self._left_out)
        self.parked = parked
        """Keys whose events wait for an operator or a retry."""

    async def hand_over(self, events: Sequence[LoggedEvent], tried: Mapping[int, int] | None = None) -> DeliveryResult:
        """Return when every event is confirmed or parked. Raise LeaseOver if the lease may be lost, and Gone.

        `tried`: earlier attempts of events that were parked.
        """
        handed = DeliveryResult(0, [], {})
        lanes = iter(_lanes(map(self._outgoing, events)))
        walks = min(self._relay.window, len(events))
        counts = await _all(self._walk(lanes, handed, tried or {}) for _ in range(walks))
        confirmed = sum(counts)
        if confirmed:
            self._participation.confirmed(confirmed)
        return handed._replace(confirmed=confirmed)

    async def _walk(
        self, lanes: Iterator[list[OutgoingEvent]], handed: DeliveryResult, tried: Mapping[int, int]
    ) -> int:
        """Deliver one lane after another, and each lane's messages in order."""
        confirmed = 0
        for lane in lanes:
            for event_id, message, trace in lane:
                if message.key in self.parked:
                    handed.parked.append(ParkedEvent(event_id, message.key, holds_key=True))
                elif await self._deliver(event_id, message, trace, handed, tried.get(event_id, 0)):
                    confirmed += 1
        return confirmed

    async def _deliver(
        self, event_id: int, message: Message, trace: str | None, handed: DeliveryResult, attempt: int
    ) -> bool:
        """Try until the event is confirmed (True) or parked (False)."""
        outages = 0
        while True:
            await self._rested()
            attempt += 1
            try:
                receipt = await self._try(message, trace)
            except Gone:
                raise
            except Exception as exc:  # noqa: BLE001 - any error of a broker's library is retried
                refusal = exc
            else:
                self._keep(handed, event_id, attempt, receipt)
                self._participation.report.sink_answered(self._relay.name)
                return True
            self._keep(handed, event_id, attempt, getattr(refusal, "receipt", None))
            self._transitions.relayed(self._relay.name, refused=1)
            if isinstance(refusal, Unavailable) or (self._retry is None and not isinstance(refusal, Refused)):
                # The event is not at fault: all events wait, and the attempt does not count.
                self._report_refusal(event_id, attempt + outages, refusal)
                attempt, outages = attempt - 1, outages + 1
                rest = _pause(refusal, outages)
                self._rests_until = max(self._rests_until, time.monotonic() + rest)
                self._participation.report.sink_failed(self._relay.name, Failure.of(refusal), rest, tries=outages)
                continue
            wait = self._wait(refusal, attempt)
            rest = _pause(refusal, attempt) if wait is None else wait
            self._participation.report.sink_failed(self._relay.name, Failure.of(refusal), rest, tries=attempt)
            self._report_refusal(
                event_id, attempt + outages, refusal, parked=wait is None and self._relay.poison != "block"
            )
            if wait is None and self._relay.poison == "block":
                await self._alone(rest)
            elif wait is None or wait > PATIENCE:
                self._set_aside(ParkedEvent.of(event_id, message.key, attempt, wait, refusal), handed)
                return False
            else:
                await self._alone(wait)

    async def _try(self, message: Message, trace: str | None) -> Receipt | None:
        message = self._dressed(message)
        if (spans := self._transitions.spans) is None:
            return await self._publish(message)
        with spans.publish(self._relay.name, message.topic, message.id, trace):
            return await self._publish(message)

    def _wait(self, refusal: Exception, attempt: int) -> float | None:
        """Return the seconds until the next attempt, or None if a retry is useless."""
        if isinstance(refusal, Refused) or self._retry is None or self._retry.is_last(attempt):
            return None
        asked: float | None = getattr(refusal, "retry_after", None)
        return max(asked or 0.0, self._retry.jittered(attempt).total_seconds())

    def _keep(self, handed: DeliveryResult, event_id: int, attempt: int, receipt: Receipt | None) -> None:
        if receipt is not None:
            handed.deliveries[event_id, attempt] = Delivery(event_id, attempt, receipt.status, receipt.text)

    def _set_aside(self, event: ParkedEvent, handed: DeliveryResult) -> None:
        """Park the event. Its key is held back until the retry, or for good if the policy is `park_key`."""
        holds = event.key is not None and (event.retry_ms is not None or self._relay.poison == "park_key")
        handed.parked.append(event._replace(holds_key=holds))
        if holds and event.key is not None:
            self.parked.add(event.key)

    def _report_refusal(self, event_id: int, attempt: int, refusal: Exception, *, parked: bool = False) -> None:
        """Log the 1st, 2nd, 4th, … failure, and each event that is parked until an operator acts."""
        if not (parked or attempt & (attempt - 1) == 0) or not self._flood.may_say():
            return
        failure = Failure.of(refusal)
        extra = {"subscription": self._relay.name, "event": event_id, "attempt": attempt}
        extra |= {"error": failure.code, "why": failure.text}
        if parked:
            log.error("an event was parked: see `holdfast events parked %s`", self._relay.name, extra=extra)
        else:
            log.warning("an event was not taken", extra=extra)

    def _left_out(self, events: int) -> None:
        extra = {"subscription": self._relay.name, "events": events}
        log.error("more events were not taken than are logged one by one", extra=extra)

    async def _rested(self) -> None:
        """Wait while the sink is unavailable, and raise LeaseOver if the lease is lost."""
        while (rest := self._rests_until - time.monotonic()) > 0:
            await self._alone(rest)
        if not self._participation.alive:
            raise LeaseOver

    async def _alone(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self._budget.ended or not self._participation.alive:
                raise LeaseOver
            await asyncio.sleep(min(left, STEP))

    def _outgoing(self, event: LoggedEvent) -> OutgoingEvent:
        event_id, topic, key, payload, headers, published_at, version, trace = event
        given = _texts(json.loads(headers)) if headers else {}
        given["holdfast-event-id"] = str(event_id)
        given["holdfast-topic"] = topic
        given["holdfast-version"] = str(version)
        if trace is not None:
            given["traceparent"] = trace
        body = self._codec.plain(payload).encode()
        # A database that was restored gives ids again, and a broker would drop the new event: its time differs.
        message_id = f"{self._identity}-{(published_at - EPOCH) // MICROSECOND}-{event_id}"
        return event_id, Message(message_id, topic, key, body, given, published_at), trace

    def _dressed(self, message: Message) -> Message:
        if self._relay.envelope is None:
            return message
        try:
            return self._relay.envelope(message)
        except Exception as exc:
            raise Refused(f"its envelope failed: {type(exc).__name__}") from exc


def _texts(headers: dict[str, object]) -> dict[str, str]:
    """Convert header values to text: events published from SQL may have numbers and other JSON values."""
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in headers.items()}


def _lanes(events: Iterable[OutgoingEvent]) -> list[list[OutgoingEvent]]:
    """Group the messages of each key into a lane. Each message without a key gets its own lane."""
    by_key: dict[str, list[OutgoingEvent]] = {}
    lanes: list[list[OutgoingEvent]] = []
    for event in events:
        key = event[1].key
        if key is None:
            lanes.append([event])
        elif (lane := by_key.get(key)) is None:
            by_key[key] = lane = [event]
            lanes.append(lane)
        else:
            lane.append(event)
    return lanes


def _pause(refusal: Exception, failures: int) -> float:
    """Return the pause in seconds: exponential backoff, or the sink's own `retry_after` up to LONGEST_REST."""
    asked: float | None = getattr(refusal, "retry_after", None)
    growing = min(LONGEST_PAUSE, SHORTEST_PAUSE * 2.0 ** min(failures, 10))
    return max(min(LONGEST_REST, asked or 0.0), growing * random.uniform(0.5, 1))  # noqa: S311 - spreads load


async def _all(walks: Iterable[Coroutine[None, None, int]]) -> list[int]:
    """Run all concurrently. If one fails, cancel the others and raise the first error."""
    tasks = [asyncio.ensure_future(walk) for walk in walks]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
