"""MQTT, against a Mosquitto of the test's own."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from paho.mqtt.client import Client, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from holdfast._relay.message import Refused, Unavailable
from holdfast._relay.sinks.cloud_events import percent_encoded
from holdfast._relay.sinks.mqtt import MqttSink
from tests.engine.waiting import until
from tests.relay.sinks.publishing import Publishing, Received, a_message
from tools.mosquitto import FORBIDDEN, LARGEST, MosquittoServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from cloudevents.core.base import BaseCloudEvent

ATTRIBUTES = {"specversion", "id", "source", "type", "time", "subject", "dataschema"}


@pytest.fixture(scope="module")
def broker() -> Iterator[MosquittoServer]:
    with MosquittoServer() as server:
        yield server


class Subscriber:
    """Of everything; it comes back by itself."""

    def __init__(self, port: int) -> None:
        self.messages: list[Any] = []
        self.subscribed = threading.Event()
        self.client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTv5)
        self.client.reconnect_delay_set(1, 1)
        self.client.on_connect = self._subscribe
        self.client.on_subscribe = lambda *_: self.subscribed.set()
        self.client.on_disconnect = lambda *_: self.subscribed.clear()
        self.client.on_message = lambda _client, _data, message: self.messages.append(message)
        properties: Any = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.ReceiveMaximum = 1000
        self.client.connect("127.0.0.1", port, properties=properties)

    def _subscribe(self, *_: object) -> None:
        self.client.subscribe("#", qos=1)


@pytest.fixture
def subscriber(broker: MosquittoServer) -> Iterator[Subscriber]:
    subscriber = Subscriber(broker.port)
    subscriber.client.loop_start()
    assert subscriber.subscribed.wait(10)
    yield subscriber
    subscriber.client.disconnect()
    subscriber.client.loop_stop()


@pytest.fixture
def received(broker: MosquittoServer, subscriber: Subscriber) -> Callable[[], Awaitable[list[Received]]]:
    async def received() -> list[Received]:
        # What comes after all that was confirmed ends the list.
        async with MqttSink(broker.url).open() as publish:
            await publish(a_message(0, topic="end"))
        messages = subscriber.messages
        await until(lambda: messages and messages[-1].topic == "end")
        found = []
        for message in messages[:-1]:
            headers = dict(message.properties.UserProperty)
            known = headers.pop("message-id"), headers.pop("holdfast-key", None)
            found.append(Received(*known, headers, message.payload, message.properties.ContentType))
        return found

    return received


@pytest.fixture
def sink(broker: MosquittoServer) -> MqttSink:
    return MqttSink(broker.url)


class TestMqtt(Publishing):
    section = "MQTT"

    survives = False  # this server writes nothing to disk, and forgets its subscribers

    @pytest.fixture
    def consumers(self, subscriber: Subscriber) -> Callable[[], Awaitable[None]]:
        async def back() -> None:
            await until(subscriber.subscribed.is_set)

        return back

    def cloud_event(self, received: Received) -> BaseCloudEvent:
        # The official library does not know MQTT, where attributes have no prefix and any text.
        headers = {
            f"ce-{name}" if name in ATTRIBUTES else name: percent_encoded(value)
            for name, value in received.headers.items()
        }
        return from_http_event(HTTPMessage(headers | {"content-type": received.content_type or ""}, received.body))

    async def test_a_topic_of_ones_own_retained(self, broker: MosquittoServer, subscriber: Subscriber) -> None:
        async with MqttSink(broker.url, topic="shop/{topic}/{key}", retain=True).open() as publish:
            await publish(a_message(key="7"))
            for key in (None, "a+b", "#"):
                with pytest.raises(Refused):
                    await publish(a_message(key=key))
            await until(lambda: subscriber.messages)
            assert [message.topic for message in subscriber.messages] == ["shop/invoice.paid/7"]
            assert subscriber.messages[0].qos == 1
            # An empty message ends the keeping; what one test leaves the next would be given.
            await publish(a_message(key="7", body=b""))

    async def test_what_is_refused(self, sink: MqttSink) -> None:
        async with sink.open() as publish:
            with pytest.raises(Refused, match=f"bytes, and the server takes {LARGEST}"):
                await publish(a_message(body=b"1" * LARGEST))
            with pytest.raises(Refused, match="cannot be sent"):
                await publish(a_message(headers={"a": "\0"}))
            with pytest.raises(Refused, match="cannot be sent"):
                await publish(a_message(headers={"a": "x" * 65_536}))
            await publish(a_message())

    async def test_a_confirmation_that_says_no(self, sink: MqttSink) -> None:
        async with sink.open() as publish:
            with pytest.raises(Unavailable, match="reason 0x87"):
                await publish(a_message(topic=FORBIDDEN))
            await publish(a_message())

    async def test_nothing_is_left_running(self, sink: MqttSink) -> None:
        before = threading.active_count()
        async with sink.open() as publish:
            await publish(a_message())
            assert threading.active_count() > before
        await until(lambda: not [thread for thread in threading.enumerate() if "paho" in thread.name])
        assert len(asyncio.all_tasks()) == 1


def test_the_name_has_no_password() -> None:
    sink = MqttSink("mqtts://me:s3cret@mq.example")
    assert sink.name == "mqtts://mq.example"
    assert "s3cret" not in repr(sink)


@pytest.mark.parametrize("url", ["mq.example:1883", "http://mq.example", "mqtt://"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(ValueError, match="an address of MQTT is"):
        MqttSink(url)


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "paho.mqtt.client", None)
    with pytest.raises(ImportError, match=r"pip install 'holdfast-pg\[mqtt\]'"):
        MqttSink("mqtt://127.0.0.1")
