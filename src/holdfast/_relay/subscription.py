"""The two kinds of subscription: events become jobs (Feed) or are published to a sink (Relay)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from holdfast._engine.runner import check_name
from holdfast._store.subscription import MOST_PARTITIONS

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from holdfast._model.kind import Kind
    from holdfast._model.new_job import Envelope
    from holdfast._relay.message import Message, Sink

Start: TypeAlias = Literal["now", "beginning"]
Poison: TypeAlias = Literal["block", "park_key", "skip"]

LARGEST_WINDOW = 10_000
_SINKS = {
    "nats": "NatsSink",
    "amqp": "RabbitMQSink",
    "kafka": "KafkaSink",
    "redis": "RedisSink",
    "http": "WebhookSink",
}


@dataclass(frozen=True, slots=True)
class Feed:
    """A subscription that creates a job for each event."""

    name: str
    topics: tuple[str, ...]
    kind: Kind[..., Any]
    _: KW_ONLY
    start: Start = "now"
    ordered: bool = False

    def __post_init__(self) -> None:
        _check(self.name, self.start)

    @property
    def envelope(self) -> Envelope:
        return self.kind.envelope

    @property
    def target(self) -> str:
        return self.kind.name

    @property
    def partitions(self) -> int:
        return 1


@dataclass(frozen=True, slots=True)
class Relay:
    """A subscription that publishes every event to a sink."""

    name: str
    topics: tuple[str, ...]
    to: Sink
    _: KW_ONLY
    start: Start = "now"
    partitions: int = 1
    poison: Poison = "block"
    window: int = 256
    envelope: Callable[[Message], Message] | None = None
    """Converts each message before it is sent, for example `CloudEvents(source="/shop")`. Default: unchanged."""
    lease: timedelta | None = None
    """Defaults to the worker's lease."""

    def __post_init__(self) -> None:
        _check(self.name, self.start)
        if self.poison not in get_args(Poison):
            raise ValueError(f"poison: expected one of {', '.join(get_args(Poison))}, got {self.poison!r:.40}")
        _check_sink(self.to)
        if not 1 <= self.partitions <= MOST_PARTITIONS:
            raise ValueError(f"partitions: expected a number from 1 to {MOST_PARTITIONS}, got {self.partitions}")
        if not 1 <= self.window <= LARGEST_WINDOW:
            raise ValueError(f"window: expected a number from 1 to {LARGEST_WINDOW}, got {self.window}")

    @property
    def target(self) -> str:
        return self.to.name


def _check(name: str, start: str) -> None:
    check_name(name)
    if start not in get_args(Start):
        raise ValueError(f"start: expected one of {', '.join(get_args(Start))}, got {start!r:.40}")


def _check_sink(to: object) -> None:
    if not isinstance(to, str | type) and hasattr(to, "open") and hasattr(to, "name"):
        return
    if isinstance(to, str):
        scheme, slashes, _ = to.partition("://")
        sink = _SINKS.get(scheme.removesuffix("s") if slashes else "") or _SINKS.get(scheme, "NatsSink")
        problem = f"an address alone does not say how to publish: write to={sink}(address)"
    elif isinstance(to, type):
        problem = f"{to.__name__} is a class: write to={to.__name__}(address)"
    else:
        problem = f"expected a sink, such as NatsSink(address), got {type(to).__name__}"
    raise TypeError(f"to: {problem}. The sinks are in holdfast.sinks")
