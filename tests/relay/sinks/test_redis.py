"""Redis Streams, against a server of the test's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from redis import Redis

from holdfast._relay.message import Refused, Unavailable
from holdfast._relay.sinks.cloud_events import percent_encoded
from holdfast._relay.sinks.redis import RedisSink
from tests.relay.sinks.publishing import MANY, Publishing, Received, a_message, publish_all
from tools.redis import RedisServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from cloudevents.core.base import BaseCloudEvent

STREAM = "invoice.paid"


@pytest.fixture(scope="module")
def broker() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def client(broker: RedisServer) -> Iterator[Redis]:
    with Redis.from_url(broker.url, decode_responses=True) as client:
        client.flushall()
        client.config_resetstat()
        yield client


@pytest.fixture
def received(client: Redis) -> Callable[[], Awaitable[list[Received]]]:
    async def received() -> list[Received]:
        found = []
        entries: Any = client.xrange(STREAM)
        for _, fields in entries:
            body = fields.pop("body").encode()
            known = [fields.pop(name, None) for name in ("id", "key", "content-type")]
            found.append(Received(known[0], known[1], fields, body, known[2]))
        return found

    return received


@pytest.fixture
def sink(broker: RedisServer) -> RedisSink:
    return RedisSink(broker.url)


class TestRedis(Publishing):
    section = "Redis Streams"

    survives = False  # this server writes nothing to disk

    def cloud_event(self, received: Received) -> BaseCloudEvent:
        # Redis has no binding of its own; the fields have the names of HTTP's headers, and carry any text.
        headers = {name: percent_encoded(value) for name, value in received.headers.items()}
        return from_http_event(HTTPMessage(headers | {"content-type": received.content_type or ""}, received.body))

    async def test_many_at_once_take_few_round_trips(self, sink: RedisSink, client: Redis) -> None:
        before = client.info("stats")["total_reads_processed"]
        async with sink.open() as publish:
            await publish_all(publish, (a_message(number) for number in range(MANY)))
        assert client.info("stats")["total_reads_processed"] - before < MANY / 20
        assert client.xlen(STREAM) == MANY

    async def test_the_same_id_is_stored_twice(
        self, sink: RedisSink, received: Callable[[], Awaitable[list[Received]]]
    ) -> None:
        async with sink.open() as publish:
            await publish(a_message())
            await publish(a_message())
        assert [message.id for message in await received()] == ["event-7", "event-7"]

    async def test_a_header_does_not_replace_a_field(
        self, sink: RedisSink, received: Callable[[], Awaitable[list[Received]]]
    ) -> None:
        async with sink.open() as publish:
            await publish(a_message(headers={"id": "another", "body": "another"}))
        assert [(message.id, message.body) for message in await received()] == [("event-7", b'{"number": 7}')]

    async def test_a_stream_of_bounded_length(self, broker: RedisServer, client: Redis) -> None:
        async with RedisSink(broker.url, stream="shop:{topic}", maxlen=100).open() as publish:
            await publish_all(publish, (a_message(number) for number in range(MANY)))
        assert client.xlen("shop:invoice.paid") < 300

    async def test_what_is_refused(self, broker: RedisServer, client: Redis) -> None:
        client.set(STREAM, "no stream")
        async with RedisSink(broker.url).open() as publish:
            with pytest.raises(Refused, match="WRONGTYPE"):
                await publish(a_message())
            client.delete(STREAM)
            await publish(a_message())

    async def test_a_full_server_takes_nothing_for_now(self, sink: RedisSink, client: Redis) -> None:
        async with sink.open() as publish:
            client.config_set("maxmemory", 1)
            try:
                with pytest.raises(Unavailable, match="command not allowed"):
                    await publish(a_message())
            finally:
                client.config_set("maxmemory", 0)
            await publish(a_message())
