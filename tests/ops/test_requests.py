"""Requests as they come over a wire: slow, cut off, in chunks, and not as a client library would send them."""

from __future__ import annotations

import asyncio
import logging
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from holdfast._ops import read_requests as reading
from holdfast.ops import Role, operations
from tests.kit.access import PATIENT
from tests.kit.asking import Answered, Asked, ask, bearer
from tests.ops.serving import Served

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from starlette.applications import Starlette

    from tests.kit.shop import Shop

SECONDS = 20.0


def acting(token: str) -> dict[str, Any]:
    headers = (*bearer(token), ("content-type", "application/json"))
    return Asked("POST", "/api/v1/jobs/actions", headers=headers, body=[b""]).scope()


async def test_a_body_that_does_not_come_is_not_waited_for(
    site: Starlette, tokens: Mapping[Role, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "BODY_SECONDS", 0.05)
    sent: list[Any] = []

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    async with asyncio.timeout(SECONDS):
        await site(acting(tokens[Role.OPERATOR]), receive, send)
    assert sent[0]["status"] == 408


async def test_who_leaves_in_the_middle_of_a_body_is_not_answered(
    site: Starlette, tokens: Mapping[Role, str], caplog: pytest.LogCaptureFixture
) -> None:
    sent: list[Any] = []
    reply = [{"type": "http.request", "body": b'{"action"', "more_body": True}, {"type": "http.disconnect"}]

    async def receive() -> Any:
        return reply.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    await site(acting(tokens[Role.OPERATOR]), receive, send)
    assert sent == []
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_a_refusal_names_fields_and_repeats_nothing(site: Starlette, tokens: Mapping[Role, str]) -> None:
    secret = tokens[Role.DEVELOPER]
    reply = {"action": secret, "ids": [secret], secret: 1, "at": secret, "filter": {secret: secret}, "limit": secret}
    asked = Asked("POST", "/api/v1/jobs/actions", json=reply, headers=bearer(tokens[Role.OPERATOR]))
    refusal = (await ask(site, asked)).refusal
    assert all(name in refusal.detail for name in ("action: ", "ids.0: ", "at: "))
    assert secret.split("_", 2)[2] not in refusal.detail


async def test_more_than_five_faults_are_counted(site: Starlette, tokens: Mapping[Role, str]) -> None:
    query = "&".join(f"unknown{number}=1" for number in range(9))
    answered = await ask(site, Asked("GET", "/api/v1/jobs", query, headers=bearer(tokens[Role.VIEWER])))
    assert answered.refusal.detail.endswith("and 4 more")


async def test_a_name_may_hold_what_an_address_may_not(site: Starlette, tokens: Mapping[Role, str]) -> None:
    headers = bearer(tokens[Role.OPERATOR])
    for name, path in (("mail/bulk", "mail%2Fbulk"), ("é ü?#", "%C3%A9%20%C3%BC%3F%23"), ("a%2Fb", "a%252Fb")):
        asked = Asked("POST", f"/api/v1/queues/{path}/actions", json={"action": "pause"}, headers=headers)
        assert f"No queue is named {name}: " in (await ask(site, asked)).refusal.detail


async def test_a_refusal_names_the_field_that_is_wrong(site: Starlette, tokens: Mapping[Role, str]) -> None:
    headers = bearer(tokens[Role.OPERATOR])
    for asked, field in (
        (Asked("GET", "/api/v1/jobs", "limit=9999"), "limit"),
        (Asked("GET", "/api/v1/jobs/x"), "id"),
        (Asked("GET", "/api/v1/jobs", "created_from=2030-01-31T12:00:00%2B99:00"), "created_from"),
        (Asked("POST", "/api/v1/jobs/actions", json={"action": "cancel", "filter": {"kind": ""}}), "filter.kind"),
        (Asked("POST", "/api/v1/jobs/actions", json={"action": "cancel", "ids": ["1", "x"]}), "ids.1"),
    ):
        refusal = (await ask(site, replace(asked, headers=headers))).refusal
        assert (refusal.type, refusal.title, refusal.status) == ("urn:holdfast:problem:invalid", "Invalid", 422)
        assert refusal.field == field


async def test_every_answer_has_the_id_that_its_request_sent_or_a_new_one(site: Starlette) -> None:
    sent = await ask(site, Asked("GET", "/api/v1/me", headers=(("x-request-id", "edge-7:a"),)))
    assert (sent.headers["x-request-id"], sent.refusal.request_id) == ("edge-7:a", "edge-7:a")
    for wrong in ("", "a b", "x" * 65, "a\nb"):
        answers = [await ask(site, Asked("GET", path, headers=(("x-request-id", wrong),))) for path in ("/", "/live")]
        made = {answer.headers["x-request-id"] for answer in answers}
        assert len(made - {wrong}) == 2


async def test_a_change_of_what_somebody_else_has_changed_is_refused(
    site: Starlette, tokens: Mapping[Role, str]
) -> None:
    headers = bearer(tokens[Role.OPERATOR])

    async def change(path: str, body: dict[str, Any], *, etag: str) -> Answered:
        return await ask(site, Asked("PUT", path, json=body, headers=(*headers, ("if-match", etag))))

    async def seen(path: str, part: str, **which: Any) -> str:
        lines = (await ask(site, Asked("GET", path, headers=headers))).json[part]
        (line,) = [line for line in lines if which.items() <= line.items()]
        return str(line["etag"])

    queue, body = "/api/v1/queues/mail", {"concurrency": 3, "lease_ms": None, "rate": None}
    etag = await seen("/api/v1/queues", "items", name="mail")
    assert (await change(queue, body, etag=etag)).status == 200
    refused = await change(queue, body | {"concurrency": 4}, etag=etag)
    assert (refused.status, refused.refusal.code) == (412, "changed")
    assert (await change(queue, body, etag="*")).status == 200
    assert await seen("/api/v1/queues", "items", name="mail", concurrency=3) != etag
    kept, retention = {"family": "run", "days": 20}, "/api/v1/archive/retention"
    etag = await seen("/api/v1/archive", "retention", family="run")
    assert [(await change(retention, kept, etag=etag)).status for _ in range(2)] == [200, 412]


# --- over a socket


@pytest.fixture(scope="module")
def served(shop: Shop) -> Iterator[Served]:
    with Served(operations(shop.app, timeout=PATIENT)) as served:
        yield served


async def said_to(served: Served, request: bytes) -> bytes:
    """Send bytes as they are; return the answer."""
    async with asyncio.timeout(SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        try:
            writer.write(request)
            await writer.drain()
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: (\d+)", head)
            return head + (b"" if length is None else await reader.readexactly(int(length[1])))
        finally:
            writer.close()
            await writer.wait_closed()


@pytest.mark.parametrize(
    "target",
    [
        "/../../../../etc/passwd", "/assets/../../../application.py", "/assets/..\\..\\application.py", "//etc/passwd",
        "/assets/%2e%2e/%2e%2e/application.py", "/%c0%ae%c0%ae/etc/passwd", "/api/v1/me%00.html",
        "/api/v1/jobs/1%0d%0aX: y",
        "http://evil.example/../application.py", "/\u00ff",
    ],
)  # fmt: skip
async def test_a_path_with_tricks_leads_nowhere(served: Served, tokens: Mapping[Role, str], target: str) -> None:
    headers = f"Host: x\r\nAuthorization: Bearer {tokens[Role.DEVELOPER]}\r\nConnection: close"
    answer = await said_to(served, f"GET {target} HTTP/1.1\r\n{headers}\r\n\r\n".encode("latin-1"))
    assert answer[9:12] in {b"404", b"400", b"422"}, answer
    assert b"root:" not in answer
    assert b"from __future__" not in answer


@pytest.mark.parametrize("length", ["Transfer-Encoding: chunked", "Content-Length: 80000"])
async def test_an_oversized_body_is_refused_over_a_socket(
    served: Served, tokens: Mapping[Role, str], length: str
) -> None:
    head = (
        f"POST /api/v1/jobs/actions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {tokens[Role.OPERATOR]}\r\n"
        f"Content-Type: application/json\r\n{length}\r\n\r\n"
    )
    body = b"".join(b"3e8\r\n" + b" " * 1_000 + b"\r\n" for _ in range(80)) if "chunked" in length else b" " * 80_000
    answer = await said_to(served, head.encode() + body)
    assert answer.startswith(b"HTTP/1.1 413")
    assert b'"type":"urn:holdfast:problem:too_large"' in answer
