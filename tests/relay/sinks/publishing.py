"""The tests that every sink to a broker must pass, against a server of the test's own."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from abc import ABC, abstractmethod
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pytest

from holdfast._relay.message import Message, Refused, Unavailable
from holdfast._relay.sinks.cloud_events import CloudEvents
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from contextlib import AbstractAsyncContextManager

    from cloudevents.core.base import BaseCloudEvent

    from holdfast._relay.message import Publish, Sink
    from tools.broker import Broker

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "sinks.md"
MANY = 2_000
WINDOW = 256
KEYS = 300
AT = datetime(2026, 5, 4, 10, 30, 0, 123456, tzinfo=UTC)
HEADERS = {"holdfast-event-id": "7", "holdfast-topic": "invoice.paid", "holdfast-version": "1", "colour": "grün"}


class Received(NamedTuple):
    """A message as a consumer of the broker finds it."""

    id: str | None
    key: str | None
    headers: dict[str, str]
    body: bytes
    content_type: str | None


def a_message(number: int = 7, **changes: Any) -> Message:
    values: dict[str, Any] = {
        "id": f"event-{number}",
        "topic": "invoice.paid",
        "key": f"customer {number % KEYS}",
        "body": json.dumps({"number": number}).encode(),
        "headers": HEADERS,
        "published_at": AT,
    }
    return Message(**(values | changes))


async def publish_all(publish: Publish, messages: Iterable[Message]) -> None:
    """As a relay does: a window of calls at once, one of each key."""
    window = asyncio.Semaphore(WINDOW)
    turns: dict[str | None, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def one(message: Message) -> None:
        async with turns[message.key], window:
            await publish(message)

    async with asyncio.TaskGroup() as group:
        for message in messages:
            group.create_task(one(message))


async def works(publish: Publish, message: Message) -> bool:
    try:
        await publish(message)
    except Unavailable:
        return False
    return True


async def shown(section: str, broker: Broker) -> AbstractAsyncContextManager[Publish]:
    """Run what the page shows of a sink, with the address of a server of ours, and open that sink."""
    text = PAGE.read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    code = "".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    code = re.sub(r"([a-z]+://)?[a-z]+\.example(:[0-9]+)?/?", broker.url, code)
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102 - our own page
    if "prepare" in names:
        await names["prepare"]()
    sink: Sink = names["sink"]
    return sink.open()


class Publishing(ABC):
    """Subclasses give the fixtures `broker`, `sink`, and `received`, which reads what the broker has for consumers."""

    survives: bool = True
    """What was confirmed is there after a kill."""

    @pytest.fixture
    def consumers(self) -> Callable[[], Awaitable[None]]:
        """Return when the consumers are back, where they must be for a message to be kept."""

        async def back() -> None:
            pass

        return back

    @abstractmethod
    def cloud_event(self, received: Received) -> BaseCloudEvent:
        """Read it with the official library."""

    section: str
    """Of the page on sinks."""

    async def test_the_page_is_true(self, broker: Broker) -> None:
        async with await shown(self.section, broker) as publish:
            await publish(a_message())

    async def test_a_message_arrives_whole(self, sink: Sink, received: Callable[[], Awaitable[list[Received]]]) -> None:
        async with sink.open() as publish:
            assert await publish(a_message()) is None
            await publish(a_message(8, key=None))
        first, second = await received()
        assert (first.id, first.key, first.body) == ("event-7", "customer 7", b'{"number": 7}')
        assert first.content_type == "application/json"
        assert HEADERS.items() <= first.headers.items()
        assert (second.id, second.key) == ("event-8", None)

    async def test_half_a_character_is_refused_alone(
        self, sink: Sink, received: Callable[[], Awaitable[list[Received]]]
    ) -> None:
        halves: list[dict[str, Any]] = [{"headers": {"a": "\ud800"}}, {"id": "\ud800"}, {"key": "\ud800"}]
        async with sink.open() as publish:
            calls = [publish(a_message(number, **half)) for number, half in enumerate([*halves, {}])]
            *refused, confirmed = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(outcome) for outcome in refused] == [Refused] * 3
        assert confirmed is None
        assert [message.id for message in await received()] == ["event-3"]

    async def test_many_at_once_arrive_once_and_in_order(
        self, sink: Sink, received: Callable[[], Awaitable[list[Received]]]
    ) -> None:
        async with sink.open() as publish:
            await publish_all(publish, (a_message(number) for number in range(MANY)))
        arrived = await received()
        assert sorted(message.id or "" for message in arrived) == sorted(f"event-{n}" for n in range(MANY))
        of_key: dict[str | None, list[int]] = defaultdict(list)
        for message in arrived:
            of_key[message.key].append(json.loads(message.body)["number"])
        assert len(of_key) == KEYS
        assert all(numbers == sorted(numbers) for numbers in of_key.values())

    async def test_a_broker_that_is_killed_and_comes_back(
        self,
        broker: Broker,
        sink: Sink,
        received: Callable[[], Awaitable[list[Received]]],
        consumers: Callable[[], Awaitable[None]],
    ) -> None:
        async with sink.open() as publish:
            await publish(a_message(1))
            # Under way when the connection breaks: the broker hangs, then dies.
            broker.freeze()
            under_way = [asyncio.ensure_future(publish(a_message(number))) for number in range(2, 12)]
            await asyncio.sleep(0)
            broker.stop(signal.SIGKILL)
            async with asyncio.timeout(20):
                outcomes = await asyncio.gather(*under_way, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [Unavailable] * 10
            with pytest.raises(Unavailable):
                await publish(a_message(12))
            async with sink.open() as another:
                with pytest.raises(Unavailable):
                    await another(a_message(12))
                broker.start()
                await consumers()
                await until(lambda: works(publish, a_message(13)))
                await until(lambda: works(another, a_message(14)))
        ids = {message.id for message in await received()}
        assert {"event-13", "event-14"} <= ids
        assert "event-1" in ids or not self.survives

    @pytest.mark.parametrize("mode", ["binary", "structured"])
    async def test_cloud_events(
        self,
        sink: Sink,
        received: Callable[[], Awaitable[list[Received]]],
        mode: Literal["binary", "structured"],
    ) -> None:
        envelope = CloudEvents(source="/shop", mode=mode, schema="https://example.com/{topic}/{version}")
        async with sink.open() as publish:
            await publish(envelope(a_message(key='Käthe "100 %"')))
        (message,) = await received()
        event = self.cloud_event(message)
        assert event.get_data() == {"number": 7}
        assert event.get_attributes() == {
            "specversion": "1.0",
            "id": "event-7",
            "source": "/shop",
            "type": "invoice.paid",
            "time": AT,
            "subject": 'Käthe "100 %"',
            "dataschema": "https://example.com/invoice.paid/1",
            "datacontenttype": "application/json",
        }
        assert (message.id, message.key) == ("event-7", 'Käthe "100 %"')
