"""MQTT 5, quality of service 1. Needs the extra `holdfast-pg[mqtt]`."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote, urlsplit

from holdfast._engine.keeper import in_thread
from holdfast._relay.message import Refused, Unavailable
from holdfast._relay.sinks.cloud_events import renamed
from holdfast._relay.sinks.session import BrokerSink, Confirmations, Pattern, timeout_seconds

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

    from holdfast._relay.message import Message
    from holdfast._relay.sinks.session import BrokerSession

_PORTS = {"mqtt": 1883, "mqtts": 8883}
_LONGEST_STRING = 65_535
# The packet limit if the server announces none, and the packet's overhead beside topic, properties and body, in bytes.
_LARGEST_PACKET = 268_435_455
_FRAME = 13
# Seconds of silence after which the server is pinged.
_KEEPALIVE = 10
_MOST_UNCONFIRMED = 65_535
_FAILED = 0x80
# PUBACK reason codes that concern the message: invalid topic name, invalid payload format.
_REFUSALS = {0x90, 0x99}


@dataclass(frozen=True)
class MqttSink(BrokerSink):
    """Publishes to `mqtt://` or `mqtts://`. Confirmed by PUBACK, not deduplicated; the id is a user property.

    MQTT keeps a message only for persistent sessions that subscribed. Without any it is confirmed and dropped.
    """

    needs: ClassVar[tuple[str, str, str]] = ("MQTT", "mqtt", "paho.mqtt.client")

    _: KW_ONLY
    topic: str = "{topic}"
    """The topic of each message; `{topic}` and `{key}` are filled in. Default `{topic}`."""
    retain: bool = False
    """Whether the server keeps the last message of each topic for new subscribers. Default no."""
    tls: ssl.SSLContext | None = None
    """Defaults to the system's certificates for `mqtts://`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        parts = urlsplit(self.url)
        if parts.scheme not in _PORTS or not parts.hostname:
            raise ValueError("an address of MQTT is mqtt://host:port or mqtts://host:port")

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[BrokerSession]:
        parts = urlsplit(self.url)
        session = _MqttSession(self)
        client = session.client
        if parts.username:
            client.username_pw_set(unquote(parts.username), unquote(parts.password or ""))
        if parts.scheme == "mqtts":
            client.tls_set_context(self.tls)
        client.connect_timeout = timeout_seconds(self.timeout)
        try:
            # The library resolves the name and connects synchronously, so it runs in a thread.
            port = parts.port or _PORTS[parts.scheme]
            await in_thread(lambda: client.connect(parts.hostname or "", port, _KEEPALIVE), name="mqtt")
            client.loop_start()
            await session.connected
            yield session
        finally:
            session.fail()
            client.disconnect()
            await in_thread(client.loop_stop, name="mqtt")


class _MqttSession:
    """The library calls back in its own thread; the state here is changed only in the event loop's thread."""

    def __init__(self, sink: MqttSink) -> None:
        from paho.mqtt.client import Client, MQTTv5
        from paho.mqtt.enums import CallbackAPIVersion

        self._topic = Pattern(sink.topic)
        self._retain = sink.retain
        self._largest = _LARGEST_PACKET
        self._confirmations = Confirmations[int]("MQTT")
        self._loop = asyncio.get_running_loop()
        self._room = asyncio.Semaphore(1)
        self._lost = asyncio.Event()
        self.connected: asyncio.Future[None] = self._loop.create_future()
        self.client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTv5, reconnect_on_failure=False)
        # The library ignores the server's limit of unconfirmed messages; `_room` enforces it.
        self.client.max_inflight_messages_set(_MOST_UNCONFIRMED)
        self.client.on_socket_open = _without_delay
        self.client.on_connect = self._on_connect
        self.client.on_publish = self._on_publish
        self.client.on_disconnect = self._on_disconnect

    async def lost(self) -> None:
        await self._lost.wait()

    def fail(self) -> None:
        self._confirmations.fail()
        self.connected.cancel()

    async def publish(self, message: Message) -> None:
        topic = self._topic.fill(message)
        _check(topic)
        properties = _properties(message)
        size = len(topic.encode()) + len(properties.pack()) + len(message.body) + _FRAME
        if size > self._largest:
            raise Refused(f"{size} bytes, and the server takes {self._largest}")
        async with self._room:
            reason = await self._exchange(topic, message.body, properties)
        if reason in _REFUSALS:
            raise Refused(f"the server refused the message: reason {reason:#x}")
        if reason >= _FAILED:
            raise Unavailable(f"the server does not take the message: reason {reason:#x}")

    async def _exchange(self, topic: str, body: bytes, properties: Any) -> int:
        info = self.client.publish(topic, body, qos=1, retain=self._retain, properties=properties)
        if info.rc:
            raise Unavailable(f"the connection to MQTT is lost: {info.rc}")
        # Confirmations arrive through this loop, so none can arrive before it is awaited.
        reason: int = await self._confirmations.of(info.mid)
        return reason

    def _in_loop(self, function: Any, *args: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *args)

    def _on_connect(self, _client: Any, _data: Any, _flags: Any, reason: Any, properties: Any) -> None:
        self._in_loop(self._connect, reason, properties)

    def _on_publish(self, _client: Any, _data: Any, mid: int, reason: Any, _properties: Any) -> None:
        self._in_loop(self._confirmations.confirm, mid, reason.value)

    def _on_disconnect(self, _client: Any, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        self._in_loop(self._disconnect, reason)

    def _connect(self, reason: Any, properties: Any) -> None:
        self._largest = getattr(properties, "MaximumPacketSize", self._largest)
        self._room = asyncio.Semaphore(getattr(properties, "ReceiveMaximum", _MOST_UNCONFIRMED))
        if self.connected.done():
            return
        if reason.is_failure:
            self.connected.set_exception(ConnectionError(f"MQTT: {reason}"))
        else:
            self.connected.set_result(None)

    def _disconnect(self, reason: Any) -> None:
        if not self.connected.done():
            self.connected.set_exception(ConnectionError(f"MQTT: {reason}"))
        self._lost.set()
        self.fail()


def _without_delay(_client: Any, _data: Any, sock: Any) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _properties(message: Message) -> Any:
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

    pairs = [("message-id", message.id), *renamed(message.headers, "").items()]
    if message.key is not None:
        pairs.append(("holdfast-key", message.key))
    for pair in pairs:
        if any(len(text.encode()) > _LONGEST_STRING or "\0" in text for text in pair):
            raise Refused(f"the header {pair[0][:40]!r} cannot be sent over MQTT")
    properties: Any = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    properties.ContentType = message.content_type
    properties.UserProperty = pairs
    return properties


def _check(topic: str) -> None:
    if not topic or any(sign in topic for sign in "+#\0") or len(topic.encode()) > _LONGEST_STRING:
        raise Refused(f"{topic[:100]!r} is no topic of MQTT to publish to")
