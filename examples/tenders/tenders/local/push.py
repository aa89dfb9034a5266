"""A provider of push notifications with Expo's protocol. It remembers what it got, and fails as it is asked to."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import Counter, deque
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

# Pushes that are remembered.
MOST = 200_000

Answer: TypeAlias = tuple[int, dict[str, Any], dict[str, str]]
"""The status, the body and the headers."""


class Message(BaseModel):
    """A push as it is sent."""

    to: str
    data: dict[str, str] = {}


class Faults(BaseModel):
    """How often each thing happens, as weights: `{"ok": 8, "error": 1}` lets one request of nine fail."""

    model_config = ConfigDict(extra="forbid")

    send: dict[Literal["ok", "error", "lost", "slow", "rate_limited"], int] = {"ok": 1}
    """Of a request: `error` takes nothing, `lost` takes the pushes and fails all the same, `slow` answers late."""
    ticket: dict[Literal["ok", "MessageRateExceeded", "MessageTooBig"], int] = {"ok": 1}
    """Of each push in it."""
    fetch: dict[Literal["ok", "error", "slow", "rate_limited"], int] = {"ok": 1}
    """Of a request for receipts."""
    receipt: dict[Literal["ok", "missing", "MessageRateExceeded", "DeviceNotRegistered"], int] = {"ok": 1}
    """Of each receipt. One that is missing comes later."""
    unregistered: list[str] = []
    """Tokens of phones that are gone."""
    slow_seconds: float = Field(default=2.0, ge=0, le=60)
    retry_after: float = Field(default=1.0, ge=0, le=60)


class PushServer:
    """Answers requests, and remembers every push that it took."""

    def __init__(self, seed: int | None = None) -> None:
        self.faults = Faults()
        self.taken: deque[dict[str, str]] = deque(maxlen=MOST)
        """Each push with the id of its delivery, its token, its tender and its ticket."""
        self.asked: Counter[str] = Counter()
        """Requests, by what became of them."""
        self._receipts: dict[str, dict[str, Any]] = {}
        self._tokens: dict[str, str] = {}
        self._random = random.Random(seed)  # noqa: S311 - faults guard nothing

    async def send(self, messages: list[Message]) -> Answer:
        chosen = self._choose(self.faults.send, "send")
        if chosen == "rate_limited":
            return self._too_many()
        if chosen == "error":
            return 502, {"errors": [{"code": "INTERNAL", "message": "the server failed"}]}, {}
        tickets = [self._take(message) for message in messages]
        if chosen == "slow":
            await asyncio.sleep(self.faults.slow_seconds)
        if chosen == "lost":
            return 502, {"errors": [{"code": "INTERNAL", "message": "the answer was lost"}]}, {}
        return 200, {"data": tickets}, {}

    async def fetch_receipts(self, ids: list[str]) -> Answer:
        chosen = self._choose(self.faults.fetch, "fetch")
        if chosen == "rate_limited":
            return self._too_many()
        if chosen == "error":
            return 502, {"errors": [{"code": "INTERNAL", "message": "the server failed"}]}, {}
        if chosen == "slow":
            await asyncio.sleep(self.faults.slow_seconds)
        found = {ticket: receipt for ticket in ids if (receipt := self._receipt(ticket)) is not None}
        return 200, {"data": found}, {}

    def _too_many(self) -> Answer:
        headers = {"Retry-After": f"{self.faults.retry_after:g}"}
        return 429, {"errors": [{"code": "TOO_MANY_REQUESTS", "message": "too many requests"}]}, headers

    def _take(self, message: Message) -> dict[str, Any]:
        token, data = message.to, message.data
        chosen = self._choose(self.faults.ticket)
        code = "DeviceNotRegistered" if token in self.faults.unregistered else None if chosen == "ok" else chosen
        ticket = "" if code else str(uuid.UUID(int=self._random.getrandbits(128), version=4))
        self.taken.append({"id": data.get("id", ""), "to": token, "codigo": data.get("codigo", ""), "ticket": ticket})
        if code:
            return _error(code)
        self._tokens[ticket] = token
        return {"status": "ok", "id": ticket}

    def _receipt(self, ticket: str) -> dict[str, Any] | None:
        """Return the same receipt at every question, once there is one."""
        if ticket not in self._tokens:
            return None
        if ticket not in self._receipts:
            gone = self._tokens[ticket] in self.faults.unregistered
            chosen = "DeviceNotRegistered" if gone else self._choose(self.faults.receipt)
            if chosen == "missing":
                return None
            self._receipts[ticket] = {"status": "ok"} if chosen == "ok" else _error(chosen)
        return self._receipts[ticket]

    def _choose(self, weights: dict[Any, int], counted: str = "") -> str:
        names = list(weights)
        chosen = str(self._random.choices(names, [weights[name] for name in names])[0])
        if counted:
            self.asked[f"{counted} {chosen}"] += 1
        return chosen


def _error(code: str) -> dict[str, Any]:
    return {"status": "error", "message": f"the push was refused: {code}", "details": {"error": code}}
