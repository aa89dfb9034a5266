"""Kafka. Needs the extra `holdfast-pg[kafka]`."""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast._distribution import require
from holdfast._relay.message import Refused, Sink, Unavailable
from holdfast._relay.sinks.cloud_events import renamed
from holdfast._relay.sinks.session import Pattern, keep, public, timeout_seconds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from contextlib import AbstractAsyncContextManager

    from holdfast._model.duration import Duration
    from holdfast._relay.message import Message, Publish
    from holdfast._relay.sinks.session import BrokerSession

_TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")


@dataclass(frozen=True)
class KafkaSink(Sink):
    """Publishes to Kafka, confirmed by all in-sync replicas. The producer's own retries are deduplicated.

    A retry by the relay may store a message twice, with the same `message-id` header.

    `servers` is `host:port`, several separated by commas.
    """

    servers: str
    _: KW_ONLY
    topic: str = "{topic}"
    """The topic of each message; `{topic}` and `{key}` are filled in. Default `{topic}`."""
    max_size: int = 1_048_576
    """Largest request in bytes; the topic's `max.message.bytes` should not be less. Default 1 MiB."""
    timeout: Duration = 30
    """For connecting and each confirmation, with the library's own retries, in seconds or a timedelta. Default 30 s."""
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """For `aiokafka.AIOKafkaProducer`, for example `security_protocol`, `sasl_plain_password`, `compression_type`."""

    def __post_init__(self) -> None:
        require("a relay to Kafka", "kafka", "aiokafka")
        timeout_seconds(self.timeout)

    @property
    def name(self) -> str:
        return f"kafka {public(self.servers)}"

    def open(self) -> AbstractAsyncContextManager[Publish]:
        return keep(self.name, self._connect, seconds=timeout_seconds(self.timeout))

    @asynccontextmanager
    async def _connect(self) -> AsyncIterator[BrokerSession]:
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(
            **{
                "client_id": "holdfast",
                "request_timeout_ms": int(timeout_seconds(self.timeout) * 1000),
                **self.options,
                "bootstrap_servers": [one.strip() for one in self.servers.split(",")],
                "max_request_size": self.max_size,
                "enable_idempotence": True,
                "acks": "all",
            }
        )
        try:
            await producer.start()
            yield _KafkaSession(producer, Pattern(self.topic))
        finally:
            await _abandon(producer)


class _KafkaSession:
    def __init__(self, producer: Any, topic: Pattern) -> None:
        self._producer = producer
        self._topic = topic

    async def lost(self) -> None:
        """Wait for an error that ends the library's sender. It recovers from all other errors by itself."""
        await asyncio.wait([self._producer._sender.sender_task])  # noqa: SLF001 - no public API reports it

    async def publish(self, message: Message) -> None:
        from aiokafka.errors import InvalidTopicError, KafkaError, MessageSizeTooLargeError, RecordListTooLargeError

        topic = self._topic.fill(message)
        if not _TOPIC.fullmatch(topic):
            raise Refused(f"{topic[:100]!r} is no topic of Kafka")
        key = None if message.key is None else message.key.encode()
        moment = int(message.published_at.timestamp() * 1000)
        try:
            stored = await self._producer.send(topic, message.body, key, None, moment, _headers(message))
            await stored
        except (MessageSizeTooLargeError, RecordListTooLargeError) as exc:
            raise Refused(f"too large: {exc}") from None
        except InvalidTopicError:
            raise Refused(f"{topic!r} is no topic of this Kafka") from None
        except (KafkaError, OSError) as exc:
            raise Unavailable(f"Kafka: {type(exc).__name__}") from exc


def _headers(message: Message) -> list[tuple[str, bytes]]:
    headers = renamed(message.headers, "ce_") | {"message-id": message.id, "content-type": message.content_type}
    return [(name, value.encode()) for name, value in headers.items()]


async def _abandon(producer: Any) -> None:
    """Close without the library's flush, which never times out. The relay retries unconfirmed messages.

    If the sender went on, it could store an older message of a key after a newer one.
    """
    sender = producer._sender.sender_task  # noqa: SLF001 - there is no public API
    producer._closed = True  # noqa: SLF001 - avoids a warning about unflushed messages
    if sender is not None:
        sender.cancel()
    await producer.client.close()
    while sender is not None and not sender.done():
        # It postpones the first cancellation until its requests are answered, which never happens.
        sender.cancel()
        await asyncio.wait([sender], timeout=0.05)
