"""Events and topics. A topic is declared once, with the type of its payloads."""

from __future__ import annotations

import json
from collections.abc import Mapping  # noqa: TC003 - pydantic resolves it at run time
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime  # noqa: TC003 - pydantic resolves it at run time
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, overload

from holdfast._logs.log import current_trace
from holdfast._model.call import explained
from holdfast._model.codec import WRAPPED, JsonCodec, adapter_of, as_json_data, check_secrets, from_json
from holdfast._model.errors import InvalidEvent, InvalidJob
from holdfast._model.kind import Kind
from holdfast._model.option import KEY_LIMIT, check_number, check_text, checked_headers, frozen_headers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pydantic import TypeAdapter

    from holdfast._model.job import Job

M = TypeVar("M")
P = ParamSpec("P")
R = TypeVar("R")
T_co = TypeVar("T_co", covariant=True)

TOPIC_LIMIT = 200
NEWEST_VERSION = 32_767
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True)
class Event(Generic[M]):
    """An event as a subscriber receives it."""

    id: int
    topic: str
    payload: M
    _: KW_ONLY
    published_at: datetime
    key: str | None = None
    """Events with the same key arrive in the order in which they were published."""
    headers: Mapping[str, str] = field(default_factory=dict)
    version: int = 1
    """The version of the topic's type at the time of publishing."""
    trace: str | None = None
    """The `traceparent` of the publisher."""


@dataclass(frozen=True, slots=True)
class NewEvent:
    """A validated event that is not published yet."""

    topic: str
    payload: str
    """JSON text."""
    _: KW_ONLY
    version: int = 1
    key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        with _as_event(self.topic):
            if self.key is not None:
                check_text("key", self.key, KEY_LIMIT)
            if self.headers:
                checked_headers(frozen_headers(self.headers))

    def as_json(self) -> str:
        """Return the JSON object that the SQL function publish_events takes."""
        members: dict[str, Any] = {"topic": self.topic}
        trace = current_trace()
        given = (("version", self.version, 1), ("key", self.key, None), ("trace", trace, None))
        members |= {name: value for name, value, default in given if value != default}
        if self.headers:
            members["headers"] = dict(self.headers)
        return f'{_JSON.encode(members)[:-1]},"payload":{self.payload}}}'


class Topic(Generic[M]):
    """A name to publish events under, and the type of their payloads: pydantic model, dataclass or TypedDict."""

    def __init__(self, name: str, model: type[M], *, version: int, codec: JsonCodec) -> None:
        with _as_event("a topic"):
            check_text("topic", name, TOPIC_LIMIT)
            check_number("version", version, 1, NEWEST_VERSION)
        self.name = name
        self.model = model
        self.version = version
        self._codec = codec

    def __repr__(self) -> str:
        return f"<Topic {self.name}>"

    @explained("topic.new")
    def new(self, payload: M, *, key: str | None = None, headers: Mapping[str, str] | None = None) -> NewEvent:
        """Validate a payload and return an event that can be published.

        `key`: keeps the order of events with the same key. `headers`: passed on to subscribers. Default: none.
        """
        with _as_event(self.name):
            value = as_json_data(self.name, self._adapter, payload, strict=True)
            text = self._codec.encode(value, kind=self.name)
            check_secrets(self.name, self._adapter, self._codec.plain(text))
        self.read(text)
        return NewEvent(self.name, text, version=self.version, key=key, headers=headers or {})

    def read(self, payload: str) -> M:
        """Return the payload of an event from JSON text; raises InvalidEvent when it is not of the topic's type."""
        with _as_event(self.name):
            return from_json(self.name, self._adapter, self._codec.plain(payload))

    @cached_property
    def _adapter(self) -> TypeAdapter[M]:
        return adapter_of(self.name, self.model)


class Subscribe(Protocol[M]):
    """Registers the handler of a subscription, with or without the job."""

    @overload
    def __call__(self, handler: Callable[[Job[Any], Event[M]], R], /) -> Kind[[Job[Any], Event[M]], R]: ...
    @overload
    def __call__(self, handler: Callable[[Event[M]], R], /) -> Kind[[Event[M]], R]: ...


class Subscriber(Kind[P, T_co]):
    """A kind whose jobs are made from events. The event's payload is already encoded inside the job's payload."""

    def arguments(self, payload: str, version: int = 1) -> dict[str, Any]:
        return super().arguments(self._decoded(payload), version)

    def _decoded(self, payload: str) -> str:
        if type(self.codec) is JsonCodec and WRAPPED not in payload:
            return payload
        job = json.loads(self.codec.plain(payload))
        event = job.get("event") if isinstance(job, dict) else None
        if not isinstance(event, dict):
            return payload
        encoded = _JSON.encode(event.get("payload"))
        return json.dumps(job | {"event": event | {"payload": json.loads(self.codec.plain(encoded))}})


@contextmanager
def _as_event(topic: str) -> Iterator[None]:
    """Raise InvalidEvent where the block raises InvalidJob, and name the topic."""
    try:
        yield
    except InvalidJob as exc:
        message = str(exc)
        raise InvalidEvent(message if message.startswith(topic) else f"{topic}: {message}") from None
