"""NATS JetStream, against a server of the test's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import nats
import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event

from holdfast._relay.message import Refused, Unavailable
from holdfast._relay.sinks.nats import NatsSink
from tests.relay.sinks.publishing import Publishing, Received, a_message
from tools.nats import NatsServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from cloudevents.core.base import BaseCloudEvent
    from nats.js import JetStreamContext

OURS = {"nats-msg-id", "holdfast-key", "content-type"}


@pytest.fixture(scope="module")
def broker() -> Iterator[NatsServer]:
    with NatsServer(jetstream=True) as server:
        yield server


@pytest.fixture
async def jetstream(broker: NatsServer) -> AsyncIterator[JetStreamContext]:
    """A stream for invoices, new in each test."""
    client = await nats.connect(broker.url, max_reconnect_attempts=-1, reconnect_time_wait=0)
    context = client.jetstream()
    await context.add_stream(name="INVOICES", subjects=["invoice.>"], max_msg_size=500_000)
    yield context
    if not client.is_connected:
        await client.close()
        client = await nats.connect(broker.url)
        context = client.jetstream()
    await context.delete_stream("INVOICES")
    await client.close()


@pytest.fixture
def received(broker: NatsServer, jetstream: JetStreamContext) -> Callable[[], Awaitable[list[Received]]]:
    async def received() -> list[Received]:
        client = await nats.connect(broker.url)
        context = client.jetstream()
        left = (await context.stream_info("INVOICES")).state.messages
        found = []
        subscription = await context.subscribe("invoice.>", ordered_consumer=True)
        for _ in range(left):
            message = await subscription.next_msg(timeout=5)
            headers: dict[str, Any] = dict(message.headers or {})
            content_type = headers.pop("Content-Type", None)
            key = headers.pop("Holdfast-Key", None)
            found.append(Received(headers.pop("Nats-Msg-Id", None), key, headers, message.data, content_type))
        await client.close()
        return found

    return received


@pytest.fixture
def sink(broker: NatsServer) -> NatsSink:
    return NatsSink(broker.url)


class TestNats(Publishing):
    section = "NATS JetStream"

    def cloud_event(self, received: Received) -> BaseCloudEvent:
        headers = received.headers | {"content-type": received.content_type or ""}
        return from_http_event(HTTPMessage(headers, received.body))

    async def test_the_same_id_is_stored_once(
        self, sink: NatsSink, received: Callable[[], Awaitable[list[Received]]]
    ) -> None:
        async with sink.open() as publish:
            for _ in range(3):
                await publish(a_message())
        assert len(await received()) == 1

    async def test_a_subject_of_ones_own(self, broker: NatsServer, jetstream: JetStreamContext) -> None:
        async with NatsSink(broker.url, subject="invoice.{key}.{topic}", stream="INVOICES").open() as publish:
            await publish(a_message(key="customer7"))
            for key in (None, "a customer", "a..b", "*"):
                with pytest.raises(Refused):
                    await publish(a_message(key=key))
        message = await jetstream.get_msg("INVOICES", 1)
        assert message.subject == "invoice.customer7.invoice.paid"

    @pytest.mark.usefixtures("jetstream")
    async def test_what_is_refused(self, sink: NatsSink, broker: NatsServer) -> None:
        async with sink.open() as publish:
            with pytest.raises(Refused, match="bytes, and the server takes 1048576"):
                await publish(a_message(body=b"1" * 1_048_576))
            with pytest.raises(Refused, match="JetStream refused: message size exceeds maximum"):
                await publish(a_message(body=b"1" * 600_000))
            with pytest.raises(Refused, match="cannot be sent"):
                await publish(a_message(headers={"a": "b\r\nNats-Rollup: all"}))
            with pytest.raises(Refused, match="cannot be sent"):
                await publish(a_message(headers={"a: b": "c"}))
            await publish(a_message())
        async with NatsSink(broker.url, stream="OTHERS").open() as publish:
            with pytest.raises(Refused, match="expected stream does not match"):
                await publish(a_message(8))

    async def test_an_event_cannot_steer_the_server(
        self, sink: NatsSink, received: Callable[[], Awaitable[list[Received]]]
    ) -> None:
        async with sink.open() as publish:
            await publish(a_message(1))
            await publish(a_message(2, headers={"Nats-Rollup": "all", "nats-msg-id": "event-1"}))
        assert [message.id for message in await received()] == ["event-1", "event-2"]

    async def test_a_subject_without_a_stream_may_have_one_later(self, sink: NatsSink) -> None:
        async with sink.open() as publish:
            with pytest.raises(Unavailable, match="no stream"):
                await publish(a_message(topic="nobody.listens"))

    async def test_a_full_stream_takes_nothing_for_now(self, sink: NatsSink, jetstream: JetStreamContext) -> None:
        await jetstream.update_stream(name="INVOICES", subjects=["invoice.>"], max_msgs=1, discard="new")
        async with sink.open() as publish:
            await publish(a_message(1))
            with pytest.raises(Unavailable, match="maximum messages"):
                await publish(a_message(2))
            await jetstream.purge_stream("INVOICES")
            await publish(a_message(2))
