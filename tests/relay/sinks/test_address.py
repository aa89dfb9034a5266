from __future__ import annotations

import doctest

import pytest

from holdfast._relay.message import Refused
from holdfast._relay.sinks import session as address
from holdfast._relay.sinks import webhook
from holdfast._relay.sinks.session import Pattern, public
from tests.relay.sinks.publishing import a_message


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
