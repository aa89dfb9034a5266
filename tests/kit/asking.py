"""Asking an ASGI application as a server does, byte by byte, and what it answered."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from holdfast._ops.responses.job import Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.types import ASGIApp, Message

PATIENCE = 30.0
Headers = tuple[tuple[str, str], ...]


class Answered(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def refusal(self) -> Refusal:
        return Refusal.model_validate_json(self.body)


@dataclass(frozen=True)
class Asked:
    """A request; `body` may come in several chunks, without a length."""

    method: str
    path: str
    query: str = ""
    headers: Headers = ()
    body: bytes | Sequence[bytes] | None = None
    json: Any = None
    client: str = "192.0.2.7"
    scheme: str = "http"
    root: str = ""
    listens: int | None = field(default=None)
    """Of a stream: leave after so many messages."""

    def scope(self) -> dict[str, Any]:
        headers = [("host", "ops.example"), *self.headers]
        body = self.bytes()
        if self.json is not None:
            headers.append(("content-type", "application/json"))
        if isinstance(body, bytes):
            headers.append(("content-length", str(len(body))))
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": self.method,
            "scheme": self.scheme,
            "path": unquote(self.root + self.path),
            "raw_path": (self.root + self.path).encode(),
            "query_string": self.query.encode(),
            "root_path": "",
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers],
            "client": (self.client, 50_000),
            "server": ("ops.example", 80),
            "state": {},
        }

    def bytes(self) -> bytes | Sequence[bytes] | None:
        return json.dumps(self.json).encode() if self.json is not None else self.body


def bearer(token: str) -> Headers:
    return (("authorization", f"Bearer {token}"),)


async def ask(site: ASGIApp, asked: Asked) -> Answered:
    """Return the whole answer; of a stream, what was said until we left."""
    body = asked.bytes()
    chunks = [body] if isinstance(body, bytes) else list(body or [b""])
    sent: list[Message] = []
    left = asyncio.Event()

    async def receive() -> Message:
        if chunks:
            return {"type": "http.request", "body": chunks.pop(0), "more_body": bool(chunks)}
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)
        if len(sent) - 1 == asked.listens:
            left.set()

    async with asyncio.timeout(PATIENCE):
        await site(asked.scope(), receive, send)
    start = sent[0]
    headers = {name.decode(): value.decode("latin-1") for name, value in start["headers"]}
    return Answered(start["status"], headers, b"".join(message.get("body", b"") for message in sent[1:]))
