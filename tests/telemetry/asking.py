"""Asking a process over HTTP."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.kit.plain_http import NO_AUTHORITIES

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 60.0


class Output(NamedTuple):
    status: int
    text: str
    json: Any
    media_type: str


def ask(port: int, path: str, **headers: str) -> Output:
    address = f"http://127.0.0.1:{port}{path}"
    answer = httpx.get(address, headers=headers, timeout=10, trust_env=False, verify=NO_AUTHORITIES)
    media_type = answer.headers.get("content-type", "")
    return Output(answer.status_code, answer.text, answer.json() if "json" in media_type else None, media_type)


def sample(reply: Output, name: str, **labels: str) -> float | None:
    """Return the sum of the series with this name and these labels; None when there is none."""
    found = [
        one.value
        for family in text_string_to_metric_families(reply.text)
        for one in family.samples
        if one.name == name and labels.items() <= one.labels.items()
    ]
    return sum(found) if found else None


def wait_until(port: int, path: str, condition: Callable[[Output], object]) -> Output:
    """Ask again and again until the answer is as wanted."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            reply = ask(port, path)
            if condition(reply):
                return reply
        except httpx.TransportError as exc:
            reply = Output(0, repr(exc), None, "")
        assert time.monotonic() < deadline, (reply.status, reply.text[-2000:])
        time.sleep(0.02)
