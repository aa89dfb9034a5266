"""Sinks: where a relay publishes events. Each needs the extra of its broker, such as `holdfast-pg[nats]`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast._lazy import lazy

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast._relay.message import Gone, Message, Publish, Receipt, Refused, Sink, Unavailable
    from holdfast._relay.sinks.cloud_events import CloudEvents
    from holdfast._relay.sinks.kafka import KafkaSink
    from holdfast._relay.sinks.nats import NatsSink
    from holdfast._relay.sinks.rabbitmq import RabbitMQSink
    from holdfast._relay.sinks.redis import RedisSink
    from holdfast._relay.sinks.signature import NotVerified, verify
    from holdfast._relay.sinks.webhook import Breaker, WebhookSink

__all__ = [
    "Breaker",
    "CloudEvents",
    "Gone",
    "KafkaSink",
    "Message",
    "NatsSink",
    "NotVerified",
    "Publish",
    "RabbitMQSink",
    "Receipt",
    "RedisSink",
    "Refused",
    "Sink",
    "Unavailable",
    "WebhookSink",
    "verify",
]

__getattr__: Callable[[str], Any] = lazy(
    __name__,
    {
        "Breaker": "holdfast._relay.sinks.webhook",
        "CloudEvents": "holdfast._relay.sinks.cloud_events",
        "Gone": "holdfast._relay.message",
        "KafkaSink": "holdfast._relay.sinks.kafka",
        "Message": "holdfast._relay.message",
        "NatsSink": "holdfast._relay.sinks.nats",
        "NotVerified": "holdfast._relay.sinks.signature",
        "Publish": "holdfast._relay.message",
        "RabbitMQSink": "holdfast._relay.sinks.rabbitmq",
        "Receipt": "holdfast._relay.message",
        "RedisSink": "holdfast._relay.sinks.redis",
        "Refused": "holdfast._relay.message",
        "Sink": "holdfast._relay.message",
        "Unavailable": "holdfast._relay.message",
        "WebhookSink": "holdfast._relay.sinks.webhook",
        "verify": "holdfast._relay.sinks.signature",
    },
)
