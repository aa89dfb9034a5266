"""The provider Expo: https://docs.expo.dev/push-notifications/sending-notifications/."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

import httpx
from pydantic import BaseModel, Field, ValidationError

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

M = TypeVar("M", bound=BaseModel)

# The most that Expo takes in one request.
PUSHES = 100
RECEIPTS = 1_000

_UNREGISTERED = "DeviceNotRegistered"
_FINAL = {"MessageTooBig", "MismatchSenderId", "InvalidCredentials", "InvalidProviderToken"}
_LONGEST_PAUSE = 3600.0


class Details(BaseModel):
    error: str = Field(default="Unknown", max_length=100)


class Answer(BaseModel):
    """A ticket or a receipt."""

    status: str
    id: str | None = None
    message: str = ""
    details: Details = Details()


class Tickets(BaseModel):
    data: list[Answer]


class Receipts(BaseModel):
    data: dict[str, Answer]


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
        answers = (await self._post("send", messages, Tickets)).data
        if len(answers) != len(pushes):
            raise Unavailable(f"{len(pushes)} pushes were sent, and {len(answers)} tickets came back")
        return [Sent(answer.id) if answer.status == "ok" and answer.id else _error(answer) for answer in answers]

    async def fetch_receipts(self, tickets: Sequence[str]) -> Mapping[str, Receipt]:
        answers = (await self._post("getReceipts", {"ids": list(tickets)}, Receipts)).data
        return {
            ticket: Delivered() if answers[ticket].status == "ok" else _error(answers[ticket])
            for ticket in tickets
            if ticket in answers
        }

    async def _post(self, path: str, body: object, model: type[M]) -> M:
        try:
            answer = await self._http.post(f"{self._url}/{path}", json=body, headers=self._headers)
        except httpx.HTTPError as exc:
            # Whether the pushes have arrived is not known. They are sent again, under the same ids.
            raise Unavailable(f"{path}: {type(exc).__name__}") from exc
        if answer.status_code == 429:
            raise RateLimited(_retry_after(answer.headers.get("Retry-After", "")))
        if not answer.is_success:
            raise Unavailable(f"{path}: status {answer.status_code}")
        try:
            return model.model_validate_json(answer.content)
        except ValidationError:
            raise Unavailable(f"{path}: an answer that is not as agreed") from None


def _error(answer: Answer) -> Retryable | Refused | Unregistered:
    code, message = answer.details.error, answer.message[:LONGEST_MESSAGE]
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
