"""Expo's protocol, against the local provider."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tenders.expo import Expo
from tenders.local.push import Faults
from tenders.push import Delivered, Push, RateLimited, Refused, Retryable, Sent, Unavailable, Unregistered
from tenders.tests.answering import Answering

if TYPE_CHECKING:
    from tenders.app import State
    from tenders.local.server import LocalServer


def pushes(*tokens: str) -> list[Push]:
    return [Push(token, "title", "body", {"id": f"id of {token}", "codigo": "1-1-LE26"}) for token in tokens]


async def test_tickets_come_in_the_order_of_the_pushes(state: State, local: LocalServer) -> None:
    local.push.faults = Faults(unregistered=["b"])
    first, second, third = await state.push.send(pushes("a", "b", "c"))
    assert isinstance(first, Sent)
    assert isinstance(third, Sent)
    assert second == Unregistered("DeviceNotRegistered", "the push was refused: DeviceNotRegistered")
    assert [(push["id"], push["ticket"]) for push in local.push.taken] == [
        ("id of a", first.ticket),
        ("id of b", ""),
        ("id of c", third.ticket),
    ]
    assert await state.push.fetch_receipts([first.ticket, third.ticket, "unknown"]) == {
        first.ticket: Delivered(),
        third.ticket: Delivered(),
    }


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("MessageRateExceeded", Retryable("MessageRateExceeded", "the push was refused: MessageRateExceeded")),
        ("MessageTooBig", Refused("MessageTooBig", "the push was refused: MessageTooBig")),
    ],
)
async def test_a_push_that_is_refused(state: State, local: LocalServer, code: Any, outcome: object) -> None:
    local.push.faults = Faults(ticket={code: 1})
    assert await state.push.send(pushes("a")) == [outcome]


@pytest.mark.parametrize("fault", ["error", "lost"])
async def test_a_server_that_fails(state: State, local: LocalServer, fault: Any) -> None:
    local.push.faults = Faults(send={fault: 1}, fetch={"error": 1})
    with pytest.raises(Unavailable, match="send: status 502"):
        await state.push.send(pushes("a"))
    with pytest.raises(Unavailable, match="getReceipts: status 502"):
        await state.push.fetch_receipts(["x"])
    assert len(local.push.taken) == (fault == "lost")


async def test_a_limit_of_requests(state: State, local: LocalServer) -> None:
    local.push.faults = Faults(send={"rate_limited": 1}, fetch={"rate_limited": 1}, retry_after=7)
    for call in (state.push.send(pushes("a")), state.push.fetch_receipts(["x"])):
        with pytest.raises(RateLimited) as caught:
            await call
        assert caught.value.retry_after == timedelta(seconds=7)


@pytest.mark.parametrize("wait", ["", "soon", "-1", "nan"])
async def test_a_limit_without_a_time(state: State, wait: str) -> None:
    async with Answering(b"", 429, {"Retry-After": wait}) as http:
        with pytest.raises(RateLimited) as caught:
            await Expo(http, state.config).send(pushes("a"))
    assert caught.value.retry_after is None


@pytest.mark.parametrize(
    "body", [b"<html>", b"[]", b'{"data": 7}', b'{"data": []}', b'{"data": [7]}', b'{"errors": []}']
)
async def test_an_answer_that_cannot_be_understood(state: State, body: bytes) -> None:
    async with Answering(body) as http:
        with pytest.raises(Unavailable):
            await Expo(http, state.config).send(pushes("a"))


async def test_the_access_token_is_sent(state: State) -> None:
    async with Answering(b'{"data": {}}') as http:
        await Expo(http, replace(state.config, expo_token="key")).fetch_receipts(["x"])  # noqa: S106 - no secret
        await Expo(http, state.config).fetch_receipts(["x"])
    assert [headers.get("authorization") for headers in http.seen] == ["Bearer key", None]
