"""An event's headers pretend to come from elsewhere; an endpoint's address hides one of the own network."""

from __future__ import annotations

import pytest

from holdfast._relay.sinks.webhook import _OURS, is_private

FORGED = [
    "Connection", "Keep-Alive", "Proxy-Authorization", "Proxy-Connection", "TE", "Trailer", "Transfer-Encoding",
    "Upgrade", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded", "X-Real-IP",
    "Via",
    "True-Client-IP", "CF-Connecting-IP", "HTTP2-Settings", "Max-Forwards", "X-HTTP-Method-Override", "Host",
    "Content-Length", "Webhook-Signature", "Cookie", "Authorization",
]  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_an_event_does_not_speak_for_the_connection_or_a_proxy(name: str) -> None:
    assert _OURS.fullmatch(name)


@pytest.mark.parametrize("name", ["traceparent", "x-request-id", "x-tenant", "viable", "ce-id"])
def test_other_headers_of_an_event_are_passed_on(name: str) -> None:
    assert not _OURS.fullmatch(name)


@pytest.mark.parametrize("prefix", [48, 56, 64, 96])
def test_the_network_for_local_translation_is_private_wherever_the_address_stands(prefix: int) -> None:
    public = 0x01010101
    places = {48: public << 48, 56: public << 40, 64: public << 24, 96: public}
    address = (0x0064FF9B0001 << 80) | places[prefix]
    assert is_private(":".join(f"{(address >> shift) & 0xFFFF:x}" for shift in range(112, -1, -16)))
