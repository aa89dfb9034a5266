"""The provider Expo: https://docs.expo.dev/push-notifications/sending-notifications/."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import httpx

from tenders.push import (
    LONGEST_MESSAGE,
    Delivered,
    RateLimited,
    Receipt,
    Refused,
    Retryable,
    Sent,
    Ticket,
    Unavailable,
    Unregistered,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tenders.config import Config
    from tenders.push import Push

T = TypeVar("T")

# The most that Expo takes in one request.
PUSHES = 100
RECEIPTS = 1_000

_UNREGISTERED = "DeviceNotRegistered"
_FINAL = {"MessageTooBig", "MismatchSenderId", "InvalidCredentials", "InvalidProviderToken"}
_LONGEST_PAUSE = 3600.0


class Expo:
    """Sends through Expo's servers, or others that speak its protocol."""

    name = "expo"

    def __init__(self, http: httpx.AsyncClient, config: Config) -> None:
        self._http = http
        self._url = config.expo_url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {config.expo_token}"} if config.expo_token else {}

    async def send(self, pushes: Sequence[Push]) -> list[Ticket]:
        messages = [
            {"to": push.token, "title": push.title, "body": push.body, "data": push.data, "sound": "default"}
            for push in pushes
        ]
        answers = _checked(await self._post("send", messages), list)
        if len(answers) != len(pushes):
            raise Unavailable(f"{len(pushes)} pushes were sent, and {len(answers)} tickets came back")
        return [_ticket(answer) for answer in answers]

    async def fetch_receipts(self, tickets: Sequence[str]) -> Mapping[str, Receipt]:
        answers = _checked(await self._post("getReceipts", {"ids": list(tickets)}), dict)
        return {ticket: _receipt(answers[ticket]) for ticket in tickets if ticket in answers}

    async def _post(self, path: str, body: object) -> object:
        try:
            answer = await self._http.post(f"{self._url}/{path}", json=body, headers=self._headers)
        except httpx.HTTPError as exc:
            # Whether the pushes have arrived is not known. They are sent again, under the same ids.
            raise Unavailable(f"{path}: {type(exc).__name__}") from exc
        if answer.status_code == httpx.codes.TOO_MANY_REQUESTS:
            raise RateLimited(_retry_after(answer.headers.get("Retry-After", "")))
        if not answer.is_success:
            raise Unavailable(f"{path}: status {answer.status_code}")
        try:
            return answer.json()["data"]
        except (ValueError, KeyError, TypeError):
            raise Unavailable(f"{path}: an answer without data") from None


def _ticket(answer: Any) -> Ticket:
    if not isinstance(answer, dict):
        return Retryable("Malformed", "the ticket is not an object")
    if answer.get("status") == "ok" and isinstance(answer.get("id"), str):
        return Sent(answer["id"])
    return _error(answer)


def _receipt(answer: Any) -> Receipt:
    if not isinstance(answer, dict):
        return Retryable("Malformed", "the receipt is not an object")
    return Delivered() if answer.get("status") == "ok" else _error(answer)


def _error(answer: dict[str, Any]) -> Retryable | Refused | Unregistered:
    details: Any = answer.get("details")
    code = str(details.get("error") or "Unknown")[:100] if isinstance(details, dict) else "Unknown"
    message = str(answer.get("message") or "")[:LONGEST_MESSAGE]
    if code == _UNREGISTERED:
        return Unregistered(code, message)
    # An error that is not listed here may be new: it is tried again, and ends with the attempts.
    return Refused(code, message) if code in _FINAL else Retryable(code, message)


def _retry_after(text: str) -> timedelta | None:
    try:
        seconds = float(text)
    except ValueError:
        return None
    return timedelta(seconds=min(seconds, _LONGEST_PAUSE)) if math.isfinite(seconds) and seconds > 0 else None


def _checked(found: object, kind: type[T]) -> T:
    if not isinstance(found, kind):
        raise Unavailable(f"the data of the answer is not a {kind.__name__}")
    return found
