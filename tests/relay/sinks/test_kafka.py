"""Kafka, against the mock cluster of librdkafka: the real protocol, without a real broker behind it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka_event
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from holdfast._relay.message import Refused, Unavailable
from holdfast._relay.sinks.kafka import KafkaSink
from tests.kit.waiting import until
from tests.relay.sinks.publishing import AT, Publishing, Received, a_message, works
from tools.kafka import KafkaServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from cloudevents.core.base import BaseCloudEvent
    from confluent_kafka import Message

TOPIC = "invoice.paid"


@pytest.fixture
def broker() -> Iterator[KafkaServer]:
    with KafkaServer() as server:
        yield server


def take_all(servers: str) -> list[Message]:
    """Read each partition to the end that it has now."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "test", "enable.auto.commit": False})
    try:
        partitions = consumer.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions
        ends = {number: consumer.get_watermark_offsets(TopicPartition(TOPIC, number), 10)[1] for number in partitions}
        consumer.assign([TopicPartition(TOPIC, number, OFFSET_BEGINNING) for number in partitions])
        taken: list[Message] = []
        while left := sum(ends.values()) - len(taken):
            batch = consumer.consume(min(left, 1000), timeout=5)
            assert batch, "the end of a partition was not reached"
            assert not [message for message in batch if message.error()]
            taken.extend(batch)
        return taken
    finally:
        consumer.close()


@pytest.fixture
def received(broker: KafkaServer) -> Callable[[], Awaitable[list[Received]]]:
    async def received() -> list[Received]:
        found = []
        for message in await asyncio.to_thread(take_all, broker.servers):
            reported: Any = message
            headers = {name: value.decode() for name, value in reported.headers()}
            key = reported.key().decode() if reported.key() is not None else None
            known = headers.pop("message-id", None), headers.pop("content-type", None)
            found.append(Received(known[0], key, headers, reported.value(), known[1]))
        return sorted(found, key=lambda message: message.id or "") if len(found) < 10 else found

    return received


@pytest.fixture
def sink(broker: KafkaServer) -> KafkaSink:
    return KafkaSink(broker.servers, timeout=timedelta(seconds=5))


class TestKafka(Publishing):
    section = "Kafka"

    def cloud_event(self, received: Received) -> BaseCloudEvent:
        headers = received.headers | {"content-type": received.content_type or ""}
        key = (received.key or "").encode()
        message = KafkaMessage({name: value.encode() for name, value in headers.items()}, key, received.body)
        event = from_kafka_event(message)
        # The library takes Kafka's key for an extension attribute of its own.
        event.get_attributes().pop("partitionkey", None)
        return event

    async def test_a_broker_that_is_killed_and_comes_back(self, broker: KafkaServer) -> None:  # type: ignore[override]
        """The mock cluster cannot come back on its port: it hangs, goes on, and then dies."""
        sink = KafkaSink(broker.servers, timeout=timedelta(seconds=2))
        async with sink.open() as publish:
            await until(lambda: works(publish, a_message(1)))
            broker.freeze()
            under_way = [asyncio.ensure_future(publish(a_message(number))) for number in range(2, 12)]
            async with asyncio.timeout(20):
                outcomes = await asyncio.gather(*under_way, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [Unavailable] * 10
            with pytest.raises(Unavailable):
                await publish(a_message(12))
            broker.thaw()
            await until(lambda: works(publish, a_message(13)))
            broker.stop()
            with pytest.raises(Unavailable):
                await publish(a_message(14))
            async with sink.open() as another:
                with pytest.raises(Unavailable):
                    await another(a_message(14))
        await until(lambda: len(asyncio.all_tasks()) == 1)

    async def test_a_message_has_its_time(self, broker: KafkaServer, sink: KafkaSink) -> None:
        async with sink.open() as publish:
            await publish(a_message())
        (message,) = await asyncio.to_thread(take_all, broker.servers)
        assert message.timestamp()[1] == int(AT.timestamp() * 1000)

    async def test_what_is_refused(self, broker: KafkaServer) -> None:
        async with KafkaSink(broker.servers, max_size=1000).open() as publish:
            with pytest.raises(Refused, match="too large"):
                await publish(a_message(body=b"1" * 1000))
            with pytest.raises(Refused, match="is no topic"):
                await publish(a_message(topic="no topic!"))
            with pytest.raises(Refused, match="needs a key"):
                async with KafkaSink(broker.servers, topic="{key}").open() as another:
                    await another(a_message(key=None))
            await publish(a_message())
