"""The CloudEvents 1.0 envelope."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, replace
from datetime import UTC
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast._relay.message import Message

PREFIX = "ce-"
"""Header prefix of an attribute in binary mode. Sinks with another protocol binding rename it."""

STRUCTURED = "application/cloudevents+json"
_JSON = re.compile(r"(application|text)/([^;]+\+)?json\s*(;|$)", re.IGNORECASE)
# Printable ASCII without the space, the quotation mark and the percent sign.
_PLAIN = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')


@dataclass(frozen=True, slots=True)
class CloudEvents:
    """Converts messages to CloudEvents: `app.relay(…, envelope=CloudEvents(source="/shop"))`."""

    source: str
    """URI reference of the publisher. Together with the event's id it is unique."""
    mode: Literal["binary", "structured"] = "binary"
    """`binary`: attributes as headers, body unchanged. `structured`: one JSON document. Default `binary`."""
    type: str | None = None
    """Default: the topic."""
    schema: str | None = None
    """URI of the schema; `{topic}` and `{version}` are filled in. Default: none."""

    def __post_init__(self) -> None:
        if not self.source:
            raise ValueError("source must not be empty")
        if self.mode not in {"binary", "structured"}:
            raise ValueError("mode must be binary or structured")

    def __call__(self, message: Message) -> Message:
        attributes = self._attributes(message)
        if self.mode == "structured":
            return replace(message, body=_document(attributes, message), content_type=STRUCTURED)
        headers = {f"{PREFIX}{name}": value for name, value in attributes.items()}
        return replace(message, headers={**message.headers, **headers})

    def _attributes(self, message: Message) -> dict[str, str]:
        moment = message.published_at.astimezone(UTC).isoformat().replace("+00:00", "Z")
        attributes = {
            "specversion": "1.0",
            "id": message.id,
            "source": self.source,
            "type": self.type or message.topic,
            "time": moment,
        }
        if message.key:
            attributes["subject"] = message.key
        if self.schema:
            version = message.headers.get("holdfast-version", "")
            attributes["dataschema"] = self.schema.replace("{topic}", message.topic).replace("{version}", version)
        # Defined by the specification's Distributed Tracing extension.
        if trace := message.headers.get("traceparent"):
            attributes["traceparent"] = trace
        return attributes


def _document(attributes: dict[str, str], message: Message) -> bytes:
    head = json.dumps(attributes | {"datacontenttype": message.content_type}, ensure_ascii=False).encode()
    if _JSON.match(message.content_type):
        data = b'"data": ' + message.body
    else:
        data = b'"data_base64": "' + base64.b64encode(message.body) + b'"'
    return head[:-1] + b", " + data + b"}"


def renamed(headers: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return the headers with the attribute prefix of another protocol binding."""
    return {prefix + name[len(PREFIX) :] if name.startswith(PREFIX) else name: headers[name] for name in headers}


def percent_encoded(value: str) -> str:
    """Return the value encoded for an HTTP or NATS header."""
    return value if value.isascii() and value.isalnum() else quote(value, safe=_PLAIN)
