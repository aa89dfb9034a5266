"""Redis Streams. Needs the extra `holdfast-pg[redis]`."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from holdfast._relay.message import Refused, Unavailable
from holdfast._relay.sinks.session import BrokerSink, Pattern, timeout_seconds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from holdfast._relay.message import Message
    from holdfast._relay.sinks.session import BrokerSession

# Entries per round trip.
_BATCH = 500


@dataclass(frozen=True)
class RedisSink(BrokerSink):
    """Publishes to Redis Streams. Confirmed by the entry's id, as durable as Redis's persistence; not deduplicated.

    An entry has the fields `id`, `topic`, `key`, `content-type`, `time`, `body` and the headers.
    """

    needs: ClassVar[tuple[str, str, str]] = ("Redis", "redis", "redis.asyncio")

    _: KW_ONLY
    stream: str = "{topic}"
    """The stream of each message; `{topic}` and `{key}` are filled in. Default `{topic}`."""
    maxlen: int | None = None
    """Approximate number of entries a stream keeps; older ones are deleted, read or not. Default: all."""
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Passed to `redis.asyncio.Redis.from_url`, for example `ssl_ca_certs`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        from redis.asyncio.connection import parse_url

        parse_url(self.url)  # raises on an invalid address
        if self.maxlen is not None and self.maxlen < 1:
            raise ValueError("maxlen must be at least 1")

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[BrokerSession]:
        from redis.asyncio import Redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff

        seconds = timeout_seconds(self.timeout)
        limits: dict[str, Any] = {"socket_connect_timeout": seconds, "socket_timeout": seconds}
        # The library's own retry could store a message a second time, after later ones.
        client = Redis.from_url(self.url, **limits, **self.options, retry=Retry(NoBackoff(), 0))
        async with client:
            await client.ping()
            session = _RedisSession(client, self)
            try:
                yield session
            finally:
                session.fail()


class _Entry(NamedTuple):
    stream: bytes
    fields: dict[bytes, bytes]
    stored: asyncio.Future[None]


class _RedisSession:
    """Calls that wait during a round trip share the next one."""

    def __init__(self, client: Any, sink: RedisSink) -> None:
        self._client = client
        self._stream = Pattern(sink.stream)
        self._maxlen = sink.maxlen
        self._queue: list[_Entry] = []
        self._under_way: list[_Entry] = []
        self._wanted = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    async def publish(self, message: Message) -> None:
        entry = _Entry(self._stream.fill(message).encode(), _fields(message), self._loop.create_future())
        self._queue.append(entry)
        self._wanted.set()
        await entry.stored

    async def lost(self) -> None:
        """Send queued entries until sending fails."""
        while True:
            if not self._queue:
                # Ping an idle connection every second, to detect a lost server.
                with suppress(TimeoutError):
                    async with asyncio.timeout(1):
                        await self._wanted.wait()
            self._wanted.clear()
            self._under_way, self._queue = self._queue[:_BATCH], self._queue[_BATCH:]
            await self._send([entry for entry in self._under_way if not entry.stored.done()])

    async def _send(self, entries: list[_Entry]) -> None:
        if not entries:
            await self._client.ping()
            return
        pipeline = self._client.pipeline(transaction=False)
        for entry in entries:
            pipeline.xadd(entry.stream, entry.fields, maxlen=self._maxlen, approximate=True)
        answers = await pipeline.execute(raise_on_error=False)
        for entry, answer in zip(entries, answers, strict=True):
            if entry.stored.done():
                continue
            if isinstance(answer, Exception):
                entry.stored.set_exception(_failure(answer))
            else:
                entry.stored.set_result(None)

    def fail(self) -> None:
        for entry in [*self._under_way, *self._queue]:
            if not entry.stored.done():
                entry.stored.set_exception(Unavailable("the connection to Redis was lost before the confirmation"))


def _fields(message: Message) -> dict[bytes, bytes]:
    own = {
        "id": message.id,
        "topic": message.topic,
        "content-type": message.content_type,
        "time": message.published_at.isoformat(),
    }
    if message.key is not None:
        own["key"] = message.key
    # Encode here, so that a failure does not affect other entries of the round trip.
    fields = {name.encode(): value.encode() for name, value in {**message.headers, **own}.items()}
    return fields | {b"body": message.body}


def _failure(answer: Exception) -> Exception:
    text = str(answer)[:200]
    # The key holds another type. All other errors (no memory, no permission, a replica) are faults of the server.
    return Refused(f"Redis refused: {text}") if text.startswith("WRONGTYPE") else Unavailable(f"Redis: {text}")
