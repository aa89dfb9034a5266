"""RabbitMQ. Needs the extra `holdfast-pg[rabbitmq]`."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast._relay.message import Refused, Unavailable
from holdfast._relay.sinks.cloud_events import renamed
from holdfast._relay.sinks.session import BrokerSink, Pattern

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from holdfast._relay.message import Message
    from holdfast._relay.sinks.session import BrokerSession

# AMQP's limit, in bytes.
_LONGEST_SHORT_STRING = 255
_PERSISTENT = 2


@dataclass(frozen=True)
class RabbitMQSink(BrokerSink):
    """Publishes to RabbitMQ. Confirmed once the message is in every queue it is routed to; not deduplicated.

    Messages are persistent, and refused if they reach no queue.
    """

    needs: ClassVar[tuple[str, str, str]] = ("RabbitMQ", "rabbitmq", "aio_pika")

    _: KW_ONLY
    exchange: str = ""
    """Must exist. Default: the default exchange, whose routing keys are queue names."""
    routing_key: str = "{topic}"
    """The routing key of each message; `{topic}` and `{key}` are filled in. Default `{topic}`."""
    max_size: int = 16 * 1024 * 1024
    """The server's `max_message_size` in bytes, which it does not announce. Default 16 MiB, as in RabbitMQ 4."""
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Passed to `aio_pika.connect`, for example `ssl_context`."""

    @property
    def name(self) -> str:
        return super().name + (f" exchange {self.exchange}" if self.exchange else "")

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[BrokerSession]:
        import aio_pika

        async with await aio_pika.connect(self.url, **self.options) as connection:
            channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
            if self.exchange:
                await channel.get_exchange(self.exchange)  # raises if it does not exist
            yield _RabbitMQSession(await channel.get_underlay_channel(), self)


class _RabbitMQSession:
    def __init__(self, channel: Any, sink: RabbitMQSink) -> None:
        self._channel = channel
        self._exchange = sink.exchange
        self._routing_key = Pattern(sink.routing_key)
        self._max_size = sink.max_size

    async def lost(self) -> None:
        await self._channel.closing

    async def publish(self, message: Message) -> None:
        from aiormq.exceptions import AMQPError, DeliveryError, PublishError

        if len(message.body) > self._max_size:
            raise Refused(f"{len(message.body)} bytes, and the broker takes {self._max_size}")
        routing_key = _short(self._routing_key.fill(message))
        properties = _properties(message)
        try:
            # Do not wait for the socket: the buffer never holds more messages than there are calls in progress.
            await self._channel.basic_publish(
                message.body,
                exchange=self._exchange,
                routing_key=routing_key,
                properties=properties,
                mandatory=True,
                wait=False,
            )
        except PublishError:
            raise Refused(f"no queue takes what is published as {routing_key}") from None
        except DeliveryError:
            raise Unavailable("a queue did not take the message") from None
        except (AMQPError, OSError, RuntimeError) as exc:
            raise Unavailable(f"the connection to RabbitMQ is lost: {type(exc).__name__}") from exc


def _properties(message: Message) -> Any:
    from aiormq import spec

    headers: dict[str, Any] = renamed(message.headers, "cloudEvents_")
    if message.key is not None:
        headers["holdfast-key"] = message.key
    for name in headers:
        _short(name)
    return spec.Basic.Properties(
        message_id=_short(message.id),
        content_type=_short(message.content_type),
        delivery_mode=_PERSISTENT,
        timestamp=message.published_at,
        headers=headers,
    )


def _short(text: str) -> str:
    if len(text.encode()) > _LONGEST_SHORT_STRING:
        raise Refused(f"longer than {_LONGEST_SHORT_STRING} bytes: {text[:40]}…")
    return text
