"""HTTP webhooks of the Standard Webhooks specification. Needs the extra `holdfast-pg[webhook]`."""

from __future__ import annotations

import ipaddress
import math
import re
import socket
import time
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from holdfast._distribution import require
from holdfast._model.duration import MORE_THAN_ZERO, Duration, as_timedelta
from holdfast._model.retry import Retry
from holdfast._relay.message import LONGEST_REST, Gone, NotTaken, Receipt, Refused, Sink, Unavailable
from holdfast._relay.sinks.cloud_events import percent_encoded
from holdfast._relay.sinks.session import public, timeout_seconds
from holdfast._relay.sinks.signature import secret_key, sign

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from holdfast._relay.message import Message, Publish

LONGEST_TEXT = 1_000
LONGEST_RETRY_AFTER = 86_400.0
# Bytes read of a response: at most four bytes of UTF-8 per character.
_MOST_READ = 4 * LONGEST_TEXT
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
# Headers that an event must not set.
_OURS = re.compile(
    r"webhook-.*|content-.*|host|connection|keep-alive|proxy-.*|te|trailer|transfer-encoding|upgrade|expect"
    r"|accept-encoding|authorization|cookie|user-agent|forwarded|x-forwarded(-.*)?|x-real-ip|x-client-ip"
    r"|true-client-ip|cf-connecting-ip|via|http2-settings|max-forwards|x-http-method(-override)?",
    re.IGNORECASE,
)

_MINUTE = timedelta(minutes=1)
_HOUR = timedelta(hours=1)
# As the specification advises: fast at first, for more than a day in total.
STANDARD_RETRY = Retry.table(
    [5 * _MINUTE / 60, 5 * _MINUTE, 30 * _MINUTE, 2 * _HOUR, 5 * _HOUR, 10 * _HOUR, 10 * _HOUR],
    max_attempts=8,
    jitter=timedelta(seconds=5),
)


@dataclass(frozen=True, slots=True)
class Breaker:
    """After `failures` consecutive failures nothing is sent for `rest`; then a single attempt decides."""

    failures: int = 10
    """Consecutive failures before nothing more is sent. Default 10."""
    rest: Duration = 30
    """Time without calls before the next attempt, in seconds or a timedelta. Default 30 s."""

    def __post_init__(self) -> None:
        if self.failures < 1:
            raise ValueError("a breaker needs at least one failure")
        self.seconds  # noqa: B018 - raises if `rest` is no duration

    @property
    def seconds(self) -> float:
        """`rest` in seconds."""
        return as_timedelta("rest", self.rest, least=MORE_THAN_ZERO).total_seconds()


@dataclass(frozen=True)
class WebhookSink(Sink):
    """Posts to an HTTP endpoint. Confirmed by status 200 to 299; the receiver deduplicates by `webhook-id`."""

    url: str = field(repr=False)
    secrets: tuple[str, ...] | str = field(repr=False)
    """`whsec_…`. During a rotation several, and each signs."""
    _: KW_ONLY
    retry: Retry = STANDARD_RETRY
    """Retry policy for messages that failed. Default: 8 attempts in 28 hours."""
    breaker: Breaker = field(default_factory=Breaker)
    """When to stop calling the endpoint. Default: after 10 consecutive failures, for 30 s."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent with each message, for example `authorization`."""
    timeout: Duration = 15
    """For connecting, sending and the response together, in seconds or a timedelta. Default 15 s."""
    max_size: int = 1024 * 1024
    """Largest body, in bytes. Default 1 MiB."""
    allow_private: bool = False
    """Whether the endpoint may be in a private network or on this host. Default no."""

    def __post_init__(self) -> None:
        require("a relay to a webhook", "webhook", "aiohttp")
        timeout_seconds(self.timeout)
        parts = urlsplit(self.url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username or parts.fragment:
            raise ValueError("url: expected http:// or https:// with a host, without a user and a fragment")
        if isinstance(self.secrets, str):
            object.__setattr__(self, "secrets", (self.secrets,))
        if not self._keys:
            raise ValueError("a webhook needs at least one secret")
        host = parts.hostname
        if not self.allow_private and re.fullmatch(r"[0-9.]+|.*:.*", host) and is_private(host):
            raise ValueError("the endpoint is at an address of a private network; allow_private=True allows it")

    @property
    def name(self) -> str:
        return public(self.url)

    @property
    def _keys(self) -> list[bytes]:
        return [secret_key(secret) for secret in self.secrets]

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Publish]:
        import aiohttp

        connector = aiohttp.TCPConnector(
            limit=0,  # the caller limits the concurrency
            socket_factory=None if self.allow_private else public_socket,
        )
        async with aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=timeout_seconds(self.timeout)),
            auto_decompress=False,
            trust_env=False,
        ) as client:
            yield _Endpoint(client, self, self._keys).publish


class _Endpoint:
    def __init__(self, client: Any, sink: WebhookSink, keys: list[bytes]) -> None:
        self._client = client
        self._sink = sink
        self._keys = keys
        self._circuit = Circuit(sink.breaker)

    async def publish(self, message: Message) -> Receipt:
        if len(message.body) > self._sink.max_size:
            raise Refused(f"{len(message.body)} bytes, and {self._sink.max_size} are sent at most")
        try:
            headers = self._headers(message)
        except UnicodeEncodeError:
            raise Refused("a text of the message cannot be encoded") from None
        self._circuit.enter()
        try:
            receipt, retry_after = await self._post(message.body, headers)
        except Refused:
            self._circuit.leave()
            raise
        except NotTaken:
            self._circuit.fail()
            raise
        except BaseException:
            self._circuit.leave()
            raise
        return self._judge(receipt, retry_after)

    async def _post(self, body: bytes, headers: dict[str, str]) -> tuple[Receipt, float | None]:
        import aiohttp

        try:
            async with self._client.post(self._sink.url, data=body, headers=headers, allow_redirects=False) as answer:
                body = b""
                while len(body) < _MOST_READ and (part := await answer.content.read(_MOST_READ - len(body))):
                    body += part
                if not answer.content.at_eof():
                    answer.close()  # do not read the rest of the response
                return Receipt(answer.status, readable(body)), _seconds(answer.headers.get("Retry-After"))
        except (aiohttp.ClientError, OSError) as exc:
            if _is_private(exc):
                raise Refused("the endpoint is at an address of a private network") from None
            raise NotTaken(f"no answer: {type(exc).__name__}") from exc

    def _judge(self, receipt: Receipt, retry_after: float | None) -> Receipt:
        status, text = receipt
        if 200 <= status < 300:  # noqa: PLR2004 - HTTP's range of success
            self._circuit.succeed()
            return receipt
        message = f"the endpoint answered {status}" + (f": {text[:200]}" if text else "")
        if 400 <= status < 500 and status not in {408, 425, 429}:  # noqa: PLR2004 - HTTP's range of client errors
            # The endpoint is up: it answered.
            self._circuit.succeed()
            raise (Gone if status == 410 else Refused)(message, receipt=receipt)  # noqa: PLR2004 - Gone
        if status in {429, 503}:
            self._circuit.fail(rest=None if retry_after is None else min(LONGEST_REST, retry_after))
            raise Unavailable(message, receipt=receipt, retry_after=retry_after)
        self._circuit.fail()
        raise NotTaken(message, receipt=receipt, retry_after=retry_after)

    def _headers(self, message: Message) -> dict[str, str]:
        timestamp = int(time.time())
        headers = {name: value for name, value in message.headers.items() if not _OURS.fullmatch(name)}
        headers = {
            name: percent_encoded(value) if name.lower().startswith("ce-") else value for name, value in headers.items()
        }
        if message.key is not None:
            headers["holdfast-key"] = percent_encoded(message.key)
        ours = {
            "user-agent": "holdfast",
            "content-type": message.content_type,
            "accept-encoding": "identity",
            **self._sink.headers,
            "webhook-id": message.id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": " ".join(sign(key, message.id, timestamp, message.body) for key in self._keys),
        }
        lower = {name.lower() for name in ours}
        headers = {name: value for name, value in headers.items() if name.lower() not in lower} | ours
        for name, value in headers.items():
            value.encode()
            if not _NAME.fullmatch(name) or _CONTROL.search(value):
                raise Refused(f"the header {name[:40]!r} cannot be sent over HTTP")
        return headers


def readable(body: bytes) -> str:
    """Return the start of a response, without terminal control characters."""
    return _UNPRINTABLE.sub(" ", body.decode(errors="replace"))[:LONGEST_TEXT].strip()


def _seconds(retry_after: str | None) -> float | None:
    """Return `Retry-After` in seconds, given as a number or a date, or None."""
    if retry_after is None:
        return None
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(retry_after) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError):
            return None
    return min(max(seconds, 0.0), LONGEST_RETRY_AFTER) if math.isfinite(seconds) else None


def _is_private(exc: BaseException | None) -> bool:
    while exc is not None:
        if isinstance(exc, PrivateAddress) or isinstance(getattr(exc, "os_error", None), PrivateAddress):
            return True
        exc = exc.__cause__ or exc.__context__
    return False


class Circuit:
    """Closed: all calls pass. Open: none pass. Half open: one call passes, as a probe."""

    def __init__(self, breaker: Breaker, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._breaker = breaker
        self._clock = clock
        self._failures = 0
        self._until: float | None = None
        self._probing = False

    def enter(self) -> None:
        """Raise Unavailable unless an attempt is allowed. Each attempt ends in `succeed`, `fail` or `leave`."""
        if self._until is None:
            return
        left = self._until - self._clock()
        if left > 0 or self._probing:
            raise Unavailable("the endpoint failed too often and is left alone", retry_after=max(left, 1.0))
        self._probing = True

    def succeed(self) -> None:
        self._failures = 0
        self._until = None
        self._probing = False

    def fail(self, *, rest: float | None = None) -> None:
        """Count a failure. With `rest` in seconds, requested by the endpoint, open at once."""
        self._failures += 1
        self._probing = False
        if rest is not None or self._failures >= self._breaker.failures:
            wait = self._breaker.seconds if rest is None else rest
            self._until = max(self._until or 0.0, self._clock() + wait)

    def leave(self) -> None:
        """Count nothing: the attempt ended without information about the endpoint."""
        self._probing = False


Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

# Networks that some Python versions treat as public (64:ff9b:1::/48 is for translation within one network, at any
# position of the IPv4 address), and 168.63.129.16, which is Azure's internal service address.
_NOT_PUBLIC = [
    ipaddress.ip_network(network)
    for network in (
        "168.63.129.16",
        "192.0.0.0/24",
        "192.88.99.0/24",
        "64:ff9b:1::/48",
        "fec0::/10",
        "3fff::/20",
        "5f00::/16",
    )
]
# Networks that carry an IPv4 address in the last four bytes.
_TRANSLATED = [ipaddress.ip_network(network) for network in ("64:ff9b::/96", "::/96")]


class PrivateAddress(OSError):  # noqa: N818 - named for what happened
    """The endpoint is at an address of a private network."""


def is_private(address: str | Address) -> bool:
    """Return whether the address is anything but one public host.

    >>> is_private("10.0.0.1"), is_private("::ffff:169.254.169.254"), is_private("93.184.215.14")
    (True, True, False)
    """
    try:
        ip = ipaddress.ip_address(address.partition("%")[0] if isinstance(address, str) else address)
    except ValueError:
        return True
    if isinstance(ip, ipaddress.IPv6Address):
        inner = _inner(ip)
        if inner is not None:
            return is_private(inner)
    return not ip.is_global or ip.is_multicast or ip.is_reserved or any(ip in network for network in _NOT_PUBLIC)


def _inner(ip: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    if ip.ipv4_mapped is not None:
        return ip.ipv4_mapped
    if ip.sixtofour is not None:
        return ip.sixtofour
    if ip.teredo is not None:
        return ip.teredo[1]
    if any(ip in network for network in _TRANSLATED):
        return ipaddress.IPv4Address(int(ip) & 0xFFFF_FFFF)
    return None


def public_socket(info: tuple[int, int, int, str, tuple[object, ...]]) -> socket.socket:
    """Create the socket for an address about to be connected to. Raise PrivateAddress if it is private.

    No name is resolved after this check, so DNS rebinding cannot bypass it.
    """
    family, kind, protocol, _, where = info
    if is_private(str(where[0])):
        raise PrivateAddress(f"{where[0]} is an address of a private network")
    made = socket.socket(family, kind, protocol)
    made.setblocking(False)  # noqa: FBT003 - the method's name explains the argument
    return made
