from __future__ import annotations

import doctest
import sys
from typing import TYPE_CHECKING

import pytest

from holdfast._relay.message import Refused
from holdfast._relay.sinks import session as address
from holdfast._relay.sinks import webhook
from holdfast._relay.sinks.session import Pattern, public
from holdfast.sinks import KafkaSink, NatsSink, RabbitMQSink, RedisSink, WebhookSink
from tests.relay.sinks.publishing import a_message

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.sinks import Sink


@pytest.mark.parametrize("module", [address, webhook])
def test_the_examples_in_the_docstrings_are_true(module: object) -> None:
    result = doctest.testmod(module)  # type: ignore[arg-type]
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("redis://:secret@cache.example:6379/2?password=secret", "redis://cache.example:6379/2"),
        ("amqp://me:sec/r@et@[::1]:5672/shop", "amqp://[::1]:5672/shop"),
        ("one:9092,two:9092", "one:9092,two:9092"),
        ("https://example.com/hooks?token=secret#secret", "https://example.com/hooks"),
    ],
)
def test_an_address_is_shown_without_secrets(url: str, name: str) -> None:
    assert public(url) == name


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("{topic}", "invoice.paid"),
        ("shop.{topic}", "shop.invoice.paid"),
        ("{topic}/{key}", "invoice.paid/{topic}"),
        ("all", "all"),
        ("{other}", "{other}"),
    ],
)
def test_a_pattern_is_filled_once(pattern: str, name: str) -> None:
    assert Pattern(pattern).fill(a_message(key="{topic}")) == name


def test_a_pattern_with_a_key_needs_one() -> None:
    with pytest.raises(Refused, match="needs a key"):
        Pattern("{topic}.{key}").fill(a_message(key=None))


@pytest.mark.parametrize(
    ("sink", "name"),
    [
        (KafkaSink("one:9092, two:9092", options={"sasl_plain_password": "s3cret"}), "kafka one:9092,two:9092"),
        (NatsSink("nats://me:p@ss/s3cret@one:4222,nats://s3cret@two"), "nats://one:4222,nats://two"),
        (RabbitMQSink("amqp://me:p@ss/s3cret@mq/shop", exchange="orders"), "amqp://mq/shop exchange orders"),
        (RedisSink("redis://:s3cret@cache:6379/2"), "redis://cache:6379/2"),
    ],
    ids=["kafka", "nats", "rabbitmq", "redis"],
)
def test_a_sink_is_shown_without_its_password(sink: Sink, name: str) -> None:
    assert sink.name == name
    assert "s3cret" not in repr(sink)


@pytest.mark.parametrize(
    ("library", "extra", "make"),
    [
        ("aiokafka", "kafka", KafkaSink),
        ("nats", "nats", NatsSink),
        ("aio_pika", "rabbitmq", RabbitMQSink),
        ("redis.asyncio", "redis", RedisSink),
        ("aiohttp", "webhook", lambda url: WebhookSink(url, "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")),
    ],
)
def test_without_the_library_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, library: str, extra: str, make: Callable[[str], Sink]
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=rf"pip install 'holdfast-pg\[{extra}\]'"):
        make("redis://127.0.0.1")
