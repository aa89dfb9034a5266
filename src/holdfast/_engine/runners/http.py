"""A runner that calls a service of the application over HTTP. The service does the work and returns the counts."""

from __future__ import annotations

import asyncio
import json
import ssl
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from holdfast._engine.keeper import in_thread
from holdfast._engine.runner import checked
from holdfast._model.errors import HoldfastError

if TYPE_CHECKING:
    import http.client

    from holdfast._engine.runner import Counts, Tick

LONGEST_ANSWER = 65_536
TIMEOUT = timedelta(seconds=30)
_CHUNK = 8_192


class HttpCallFailed(HoldfastError):  # noqa: N818 - the name states what happened
    """The call to the service failed.

    Cure: Look at the log of the service, and at HOLDFAST_API_BASE_URL and HOLDFAST_API_SERVICE_TOKEN.
    """

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = "http_call_failed" if status is None else f"http_{status}"


class HttpCall:
    """POST {HOLDFAST_API_BASE_URL}{path} with the header `x-service-token`; the answer is a JSON object of counts.

    The request carries the budget: `{"runner": …, "run_id": …, "max_items": …, "max_ms": …}`.
    """

    def __init__(self, path: str, *, timeout: timedelta = TIMEOUT) -> None:
        if not path.startswith("/") or not path.isascii() or not path.isprintable() or " " in path:
            raise ValueError(
                f"path: expected percent-encoded ASCII that begins with /, such as /internal/tidy, got {path!r:.60}: "
                "the host is set by WORKER_API_BASE_URL"
            )
        self.path = path
        self.timeout = timeout

    async def tick(self, tick: Tick) -> Counts:
        settings = tick.settings
        if settings is None or not settings.api_base_url or not settings.api_service_token:
            needed = "HOLDFAST_API_BASE_URL and HOLDFAST_API_SERVICE_TOKEN"
            raise HoldfastError(f"set {needed} for runners that call over HTTP")
        import http.client  # only in processes that call

        left = tick.budget.seconds_left
        seconds = self.timeout.total_seconds() if left is None else min(self.timeout.total_seconds(), left)
        exchange = _Exchange(f"{settings.api_base_url.rstrip('/')}{self.path}", settings.api_service_token, seconds)
        body = {
            "runner": tick.name,
            "run_id": tick.run_id,
            "max_items": tick.budget.items_left,
            "max_ms": int(seconds * 1000),
        }
        try:
            async with asyncio.timeout(seconds):
                status, answer = await in_thread(lambda: exchange.post(json.dumps(body).encode()), name=tick.name)
        except TimeoutError:
            raise HttpCallFailed(f"no answer from {self.path} within {seconds:.3g} s") from None
        except (OSError, http.client.HTTPException) as exc:
            raise HttpCallFailed(f"calling {self.path} failed: {type(exc).__name__}") from None
        finally:
            # Release the thread that may wait for the service.
            exchange.close()
        return _counts(self.path, status, answer)


class _Exchange:
    """One request and its response, in a thread. Redirects are not followed: the token is for one service only."""

    def __init__(self, url: str, token: str, seconds: float) -> None:
        import http.client

        parts = urlsplit(url)
        self._target = parts.path + (f"?{parts.query}" if parts.query else "")
        self._token = token.encode()
        host = parts.hostname or ""
        self._conn: http.client.HTTPConnection
        if parts.scheme == "https":
            context = ssl.create_default_context()
            self._conn = http.client.HTTPSConnection(host, parts.port, timeout=seconds, context=context)
        else:
            self._conn = http.client.HTTPConnection(host, parts.port, timeout=seconds)

    def post(self, body: bytes) -> tuple[int, bytes]:
        headers: dict[str, Any] = {
            "x-service-token": self._token,
            "content-type": "application/json",
            "accept": "application/json",
            "connection": "close",
        }
        try:
            self._conn.request("POST", self._target, body, headers)
            response = self._conn.getresponse()
            answer = b""
            while len(answer) <= LONGEST_ANSWER and (chunk := response.read(_CHUNK)):
                answer += chunk
            return response.status, answer
        finally:
            self._conn.close()

    def close(self) -> None:
        sock = self._conn.sock
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(2)


def _counts(path: str, status: int, answer: bytes) -> Counts:
    if not 200 <= status < 300:  # noqa: PLR2004 - the success codes of HTTP
        raise HttpCallFailed(f"{path} answered {status}", status=status)
    if len(answer) > LONGEST_ANSWER:
        raise HttpCallFailed(f"{path} answered more than {LONGEST_ANSWER} bytes")
    if not answer.strip():
        return {}
    try:
        return checked(json.loads(answer))
    except (ValueError, RecursionError, HoldfastError):
        raise HttpCallFailed(f"{path} must answer with a JSON object of whole numbers, like {{'sent': 3}}") from None
