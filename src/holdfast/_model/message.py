"""Messages to stories: their name, and the type of their values."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from holdfast._model.codec import adapter_of, as_json_data, check_secrets, from_json
from holdfast._model.option import KIND_LIMIT, check_text

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from holdfast._model.codec import JsonCodec

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)


class Receivable(Protocol[A_co]):
    """A message as it is received: covariant, unlike Message, because nothing is sent."""

    @property
    def name(self) -> str: ...
    def decode(self, payload: str, /) -> A_co: ...


class Message(Generic[A]):
    """A sort of message that stories receive: its name, and the type of its values."""

    def __init__(self, name: str, model: type[A], *, codec: JsonCodec) -> None:
        check_text("message", name, KIND_LIMIT)
        self.name: str = name
        self.model = model
        self._codec = codec

    def __repr__(self) -> str:
        return f"<Message {self.name}>"

    def encode(self, value: A) -> str:
        """Return the value as JSON text; raises InvalidJob when it is not valid."""
        data = as_json_data(self.name, self._adapter, value, strict=True)
        text = self._codec.encode(data, kind=self.name)
        check_secrets(self.name, self._adapter, self._codec.plain(text))
        self.decode(text)
        return text

    def decode(self, payload: str) -> A:
        """Return the value from JSON text; raises InvalidJob when it is not of the message's type."""
        return from_json(self.name, self._adapter, self._codec.plain(payload))

    @cached_property
    def _adapter(self) -> TypeAdapter[A]:
        return adapter_of(self.name, self.model)
