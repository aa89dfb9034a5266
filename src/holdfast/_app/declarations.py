"""The declarations of an application that have no handler: limits, topics and messages."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast._app.arguments import check_model, check_registered_name
from holdfast._app.places import Places
from holdfast._model.call import explained
from holdfast._model.errors import HoldfastError
from holdfast._model.event import Topic
from holdfast._model.limit import Limit, limits_of
from holdfast._model.message import Message

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast._model.codec import JsonCodec

A = TypeVar("A")


class Declarations:
    """Holds the limits, topics and messages of an application."""

    def __init__(self, codec: JsonCodec) -> None:
        self.codec = codec
        self._places = Places()
        self._limits: dict[str, Limit] = {}
        self._topics: dict[str, Topic[Any]] = {}
        self._messages: set[str] = set()

    @explained("app.limit")
    def limit(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        rate: str | None = None,
        burst: int = 1,
        by: str | Sequence[str] | None = None,
    ) -> Limit:
        """Declare a limit that several kinds share: each names it in its `limits`. See `Limit` for the arguments."""
        check_registered_name("app.limit", name)
        limit = Limit(concurrency=concurrency, rate=rate, burst=burst, by=by).named(name)
        self._places.take("limit", name, HoldfastError, taken=name in self._limits)
        self._limits[name] = limit
        return limit

    @property
    def limits(self) -> Mapping[str, Limit]:
        """All limits of this application by name, those of single kinds too."""
        return MappingProxyType(self._limits)

    def _keep_limits(self, kind: str, given: Sequence[Limit | str]) -> tuple[Limit, ...]:
        found = limits_of(kind, given, self._limits)
        for limit in found:
            if limit.name not in self._limits:
                self._places.take("limit", limit.name, HoldfastError, taken=False)
            self._limits[limit.name] = limit
        return found

    @explained("app.event")
    def event(self, name: str, model: type[A], *, version: int = 1) -> Topic[A]:
        """Declare a topic; `model` is the type of its payloads: pydantic, dataclass or TypedDict."""
        check_registered_name("app.event", name)
        check_model("app.event", name, model)
        self._places.take("topic", name, HoldfastError, taken=name in self._topics)
        self._topics[name] = Topic(name, model, version=version, codec=self.codec)
        return self._topics[name]

    @explained("app.message")
    def message(self, name: str, model: type[A]) -> Message[A]:
        """Declare a sort of message that stories receive; `model` is the type of its values.

        `model`: pydantic, dataclass or TypedDict.
        """
        check_registered_name("app.message", name)
        check_model("app.message", name, model)
        self._places.take("message", name, HoldfastError, taken=name in self._messages)
        self._messages.add(name)
        return Message(name, model, codec=self.codec)

    @property
    def topics(self) -> Mapping[str, Topic[Any]]:
        """All topics of this application by name."""
        return MappingProxyType(self._topics)
