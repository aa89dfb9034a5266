"""RabbitMQ, against a server of the test's own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aio_pika
import pytest
from cloudevents.core.bindings.amqp import AMQPMessage, from_amqp_event

from holdfast._relay.message import Refused, Unavailable
from holdfast._relay.sinks.rabbitmq import RabbitMQSink
from tests.kit.waiting import until
from tests.relay.sinks.publishing import AT, Publishing, Received, a_message, works
from tools.rabbitmq import LARGEST, RabbitMqServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from aio_pika.abc import AbstractChannel, AbstractIncomingMessage
    from cloudevents.core.base import BaseCloudEvent

pytestmark = pytest.mark.nightly

QUEUE = "invoice.paid"


@pytest.fixture(scope="module")
def broker() -> Iterator[RabbitMqServer]:
    with RabbitMqServer() as server:
        yield server


async def take_all(channel: AbstractChannel) -> list[AbstractIncomingMessage]:
    queue = await channel.declare_queue(QUEUE, passive=True)
    count = queue.declaration_result.message_count or 0
    taken: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
    await queue.consume(taken.put, no_ack=True)
    async with asyncio.timeout(10):
        return [await taken.get() for _ in range(count)]


@pytest.fixture
async def queue(broker: RabbitMqServer) -> AsyncIterator[None]:
    async with await aio_pika.connect(broker.url) as connection, connection.channel() as channel:
        await channel.declare_queue(QUEUE, durable=True)
    yield
    async with await aio_pika.connect(broker.url) as connection, connection.channel() as channel:
        await channel.queue_delete(QUEUE)


@pytest.fixture
def received(broker: RabbitMqServer, queue: None) -> Callable[[], Awaitable[list[Received]]]:
    async def received() -> list[Received]:
        async with await aio_pika.connect(broker.url) as connection, connection.channel() as channel:
            found = []
            for message in await take_all(channel):
                headers: dict[str, Any] = dict(message.headers)
                key = headers.pop("holdfast-key", None)
                found.append(Received(message.message_id, key, headers, message.body, message.content_type))
            return found

    return received


@pytest.fixture
def sink(broker: RabbitMqServer) -> RabbitMQSink:
    return RabbitMQSink(broker.url, max_size=LARGEST)


class TestRabbitMq(Publishing):
    section = "RabbitMQ"

    def cloud_event(self, received: Received) -> BaseCloudEvent:
        properties = {"content-type": received.content_type or ""}
        return from_amqp_event(AMQPMessage(properties, dict(received.headers), received.body))

    @pytest.mark.usefixtures("queue")
    async def test_a_message_is_persistent_and_has_its_time(self, broker: RabbitMqServer, sink: RabbitMQSink) -> None:
        async with sink.open() as publish:
            await publish(a_message())
        async with await aio_pika.connect(broker.url) as connection, connection.channel() as channel:
            (message,) = await take_all(channel)
        assert message.delivery_mode == aio_pika.DeliveryMode.PERSISTENT
        assert message.timestamp == AT.replace(microsecond=0)

    async def test_a_quorum_queue_confirms_too(self, broker: RabbitMqServer) -> None:
        async with await aio_pika.connect(broker.url) as connection, connection.channel() as channel:
            queue = await channel.declare_queue("quorum", durable=True, arguments={"x-queue-type": "quorum"})
            async with RabbitMQSink(broker.url, routing_key="quorum").open() as publish:
                await publish(a_message())
            message = await queue.get(no_ack=True)
            assert message.message_id == "event-7"
            await channel.queue_delete("quorum")

    @pytest.mark.usefixtures("queue")
    async def test_what_is_refused(self, sink: RabbitMQSink) -> None:
        async with sink.open() as publish:
            with pytest.raises(Refused, match="no queue takes what is published as nobody"):
                await publish(a_message(topic="nobody.reads"))
            with pytest.raises(Refused, match="1000001 bytes, and the broker takes 1000000"):
                await publish(a_message(body=b"1" * (LARGEST + 1)))
            with pytest.raises(Refused, match="longer than 255 bytes"):
                await publish(a_message(topic="x" * 256))
            with pytest.raises(Refused, match="longer than 255 bytes"):
                await publish(a_message(headers={"x" * 256: ""}))
            await publish(a_message())

    @pytest.mark.usefixtures("queue")
    async def test_more_than_the_server_takes_harms_no_later_message(self, broker: RabbitMqServer) -> None:
        async with RabbitMQSink(broker.url).open() as publish:
            with pytest.raises(Unavailable, match="ChannelPreconditionFailed"):
                await publish(a_message(body=b"1" * (LARGEST + 1)))
            await until(lambda: works(publish, a_message()))

    async def test_an_exchange_and_a_routing_key_of_ones_own(
        self, broker: RabbitMqServer, received: Callable[[], Awaitable[list[Received]]]
    ) -> None:
        sink = RabbitMQSink(broker.url, exchange="own", routing_key="de.{topic}.{key}")
        async with (
            await aio_pika.connect(broker.url) as connection,
            connection.channel() as channel,
            sink.open() as publish,
        ):
            with pytest.raises(Unavailable, match="ChannelNotFoundEntity"):
                await publish(a_message())
            exchange = await channel.declare_exchange("own", aio_pika.ExchangeType.TOPIC, auto_delete=True)
            await (await channel.get_queue(QUEUE)).bind(exchange, "de.invoice.*.7")
            await until(lambda: works(publish, a_message(key="7")))
            with pytest.raises(Refused):
                await publish(a_message(key="8"))
        assert [message.key for message in await received()] == ["7"]

    async def test_a_full_queue_takes_nothing_for_now(self, broker: RabbitMqServer) -> None:
        async with await aio_pika.connect(broker.url) as connection, connection.channel() as channel:
            limits: dict[str, Any] = {"x-max-length": 1, "x-overflow": "reject-publish"}
            queue = await channel.declare_queue("small", arguments=limits, auto_delete=True)
            async with RabbitMQSink(broker.url, routing_key="small").open() as publish:
                await publish(a_message(1))
                with pytest.raises(Unavailable, match="did not take"):
                    await publish(a_message(2))
                await queue.purge()
                await publish(a_message(2))
            await queue.delete(if_empty=False)
