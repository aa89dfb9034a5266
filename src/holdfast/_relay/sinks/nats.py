"""NATS JetStream. Needs the extra `holdfast-pg[nats]`."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast._relay.message import Refused, Unavailable
from holdfast._relay.sinks.cloud_events import percent_encoded
from holdfast._relay.sinks.session import BrokerSink, Pattern, timeout_seconds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from holdfast._relay.message import Message
    from holdfast._relay.sinks.session import BrokerSession

# A subject to publish to: tokens separated by dots, without spaces and wildcards.
_SUBJECT = re.compile(r"[^\s.*>\x00-\x1f\x7f]+(\.[^\s.*>\x00-\x1f\x7f]+)*")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
# The bytes of "NATS/1.0" and three line ends.
_FRAME = 14
# A server fault that JetStream reports as a client error: the account's storage is used up.
_RESOURCES_EXCEEDED = 10002
_SERVERS_FAULT = 500


@dataclass(frozen=True)
class NatsSink(BrokerSink):
    """Publishes to NATS JetStream. Confirmed by the stream; deduplicated by `Nats-Msg-Id` in its `duplicate_window`.

    Several addresses are separated by commas.
    """

    needs: ClassVar[tuple[str, str, str]] = ("NATS", "nats", "nats")

    _: KW_ONLY
    subject: str = "{topic}"
    """The subject of each message; `{topic}` and `{key}` are filled in. A stream must capture it. Default `{topic}`."""
    stream: str | None = None
    """The stream that must store the message; otherwise it is refused. Default: any."""
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Passed to `nats.connect`, for example `user_credentials` or `tls`."""

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[BrokerSession]:
        from nats.aio.client import Client

        client = Client()
        closed = asyncio.Event()

        async def on_closed() -> None:
            closed.set()

        try:
            await client.connect(
                **{
                    "servers": [one.strip() for one in self.url.split(",")],
                    "name": "holdfast",
                    "ping_interval": 5,
                    "connect_timeout": max(1, int(timeout_seconds(self.timeout))),
                    **self.options,
                    # The library would reconnect by itself and resend messages whose callers have given up.
                    "allow_reconnect": False,
                    "max_reconnect_attempts": 1,
                    "reconnect_time_wait": 0,
                    "closed_cb": on_closed,
                    "error_cb": _ignore,
                }
            )
            session = _NatsSession(client, closed, Pattern(self.subject), self.stream)
            try:
                await session.listen()
                yield session
            finally:
                session.fail()
        finally:
            await client.close()


class _NatsSession:
    def __init__(self, client: Any, closed: asyncio.Event, subject: Pattern, stream: str | None) -> None:
        self._client = client
        self._closed = closed
        self._subject = subject
        self._stream = stream
        self._inbox = f"{client.new_inbox()}."
        self._numbers = count()
        self._waiting: dict[str, asyncio.Future[Any]] = {}
        """The answers that messages in flight wait for, by the subject that an answer comes to."""

    async def listen(self) -> None:
        await self._client.subscribe(f"{self._inbox}*", cb=self._confirm)

    async def lost(self) -> None:
        await self._closed.wait()

    async def publish(self, message: Message) -> None:
        subject = self._subject.fill(message)
        if not _SUBJECT.fullmatch(subject):
            raise Refused(f"{subject!r} is no subject of NATS")
        headers = self._headers(message)
        size = len(message.body) + _FRAME + sum(len(name) + len(value.encode()) + 4 for name, value in headers.items())
        if size > self._client.max_payload:
            raise Refused(f"{size} bytes, and the server takes {self._client.max_payload}")
        reply = f"{self._inbox}{next(self._numbers)}"
        answer = self._waiting[reply] = asyncio.get_running_loop().create_future()
        try:
            await self._send(subject, message.body, reply, headers)
            _check(await answer, subject)
        finally:
            del self._waiting[reply]

    async def _send(self, subject: str, body: bytes, reply: str, headers: dict[str, str]) -> None:
        from nats.errors import Error

        try:
            await self._client.publish(subject, body, reply=reply, headers=headers)
        except (Error, OSError) as exc:
            raise Unavailable(f"the connection to NATS is lost: {type(exc).__name__}") from exc

    def _headers(self, message: Message) -> dict[str, str]:
        headers = {"Nats-Msg-Id": message.id, "Content-Type": message.content_type}
        if message.key is not None:
            headers["Holdfast-Key"] = message.key
        if self._stream is not None:
            headers["Nats-Expected-Stream"] = self._stream
        for name, value in message.headers.items():
            lower = name.lower()
            if lower.startswith("nats-"):  # these control the server: an event must not purge a stream
                continue
            headers[name] = percent_encoded(value) if lower.startswith("ce-") else value
        for name, value in headers.items():
            if not _NAME.fullmatch(name) or _CONTROL.search(value):
                raise Refused(f"the header {name!r} cannot be sent over NATS")
        return headers

    async def _confirm(self, answer: Any) -> None:
        if (waiting := self._waiting.get(answer.subject)) is not None and not waiting.done():
            waiting.set_result(answer)

    def fail(self) -> None:
        """End the connection: no answer will come."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(Unavailable("the connection to NATS was lost before the confirmation"))


def _check(answer: Any, subject: str) -> None:
    data = answer.data
    if b'"seq"' in data and b'"error"' not in data:
        return
    if not data and (answer.headers or {}).get("Status") == "503":
        raise Unavailable(f"no stream of JetStream listens for {subject}")
    try:
        reply = json.loads(data)
        error = reply.get("error")
        if error is None and "seq" in reply:
            return
        code, number, text = error["code"], error.get("err_code"), error.get("description", "")
    except (ValueError, TypeError, KeyError, AttributeError):
        raise Unavailable(f"what answers on {subject} is not JetStream") from None
    if code >= _SERVERS_FAULT or number == _RESOURCES_EXCEEDED:
        raise Unavailable(f"JetStream cannot store: {text}")
    raise Refused(f"JetStream refused: {text}")


async def _ignore(_error: Exception) -> None:
    """Ignore the error: the end of the connection is handled in `lost`."""
