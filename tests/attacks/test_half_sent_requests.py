"""A stranger keeps the server waiting, or sends what two readers understand differently."""

from __future__ import annotations

import resource
import socket
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from holdfast._cli.server import Connection
from holdfast.ops import JwtAccess, Person, Role, operations
from tests.cli.serving import Serving
from tests.kit.asking import Answered, Asked, ask, bearer
from tests.kit.issuer import AUDIENCE, ISSUER, Issuer
from tests.ops.cases import CSRF
from tests.ops.serving import Served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from starlette.requests import Request

HALF = b"GET /live HTTP/1.1\r\nHost: x\r\nX-A: "
HALF_BODY = b"POST /api/v1/session HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
MANY = 1_005
PATIENCE = 30.0
NOWHERE = "postgresql://127.0.0.1:1/none"


class Hasty(Connection):
    seconds = {"headers": 0.3, "body": 0.3, "reading": 0.3, "next request": 60.0}  # noqa: RUF012 - as in its parent


@contextmanager
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * MANY:
        pytest.skip("needs more open files than this user may have")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * MANY), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def opened(port: int, sent: bytes) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    made.sendall(sent)
    return made


def until_closed(conn: socket.socket) -> bytes:
    reply = b""
    try:
        while data := conn.recv(65_536):
            reply += data
    except ConnectionError:
        pass
    return reply


@pytest.mark.nightly
@pytest.mark.parametrize("half", [HALF, HALF_BODY], ids=["headers", "body"])
def test_a_thousand_half_sent_requests_do_not_stop_the_server(database: str, tmp_path: Path, half: bytes) -> None:
    with many_files(), Serving(database=database, cwd=tmp_path) as serving, ExitStack() as held:
        port = int(serving.url.rstrip("/").rpartition(":")[2])
        for _ in range(MANY):
            held.enter_context(opened(port, half))
        with serving.client() as client:
            began = time.monotonic()
            assert [client.get(path).status_code for path in ("/live", "/live", "/ready")][:2] == [200, 200]
            assert time.monotonic() - began < 5.0


def _site() -> Starlette:
    async def echo(request: Request) -> Response:
        return PlainTextResponse(str(len(await request.body())))

    async def large(_: Request) -> Response:
        return Response(bytes(50_000_000))

    async def unresponsive(_: Request) -> Response:
        return PlainTextResponse("not read")

    return Starlette(
        routes=[
            Route("/echo", echo, methods=["POST"]),
            Route("/large", large),
            Route("/deaf", unresponsive, methods=["POST"]),
        ]
    )


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"", b""),
        (HALF, b"HTTP/1.1 408 "),
        (b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc", b""),
        (b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab", b""),
        (b"POST /deaf HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc", b"HTTP/1.1 200 "),
        (b"POST /deaf HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\nGET /", b"HTTP/1.1 200 "),
    ],
    ids=["nothing", "headers", "body", "chunk", "body that nobody reads", "second request"],
)
def test_a_half_sent_request_is_cut_off_at_its_deadline(sent: bytes, answer: bytes) -> None:
    with Served(_site(), http=Hasty) as served, opened(served.port, sent) as conn:
        assert until_closed(conn).startswith(answer)


def test_bytes_that_drip_do_not_extend_the_deadline() -> None:
    with Served(_site(), http=Hasty) as served, opened(served.port, HALF) as conn:
        began = time.monotonic()
        conn.settimeout(0.05)
        reply = b""
        while not reply:
            try:
                reply = conn.recv(1_000)
            except TimeoutError:
                conn.sendall(b"a")
            assert time.monotonic() - began < PATIENCE
        assert reply.startswith(b"HTTP/1.1 408 ")


@pytest.mark.nightly
def test_a_client_that_does_not_read_its_answer_is_cut_off() -> None:
    with Served(_site(), http=Hasty) as served:
        conn = opened(served.port, b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        with conn:
            deadline = time.monotonic() + PATIENCE
            while not served.server.server_state.total_requests and served.server.server_state.connections:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            assert len(until_closed(conn)) < 50_000_000


@pytest.mark.nightly
def test_an_idle_connection_is_kept_after_a_whole_request() -> None:
    whole = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
    with Served(_site(), http=Hasty) as served, opened(served.port, whole) as conn:
        answered(conn)
        conn.settimeout(1.0)
        with pytest.raises(TimeoutError):
            conn.recv(1_000)
        conn.settimeout(PATIENCE)
        conn.sendall(whole)
        answered(conn)


def answered(conn: socket.socket) -> None:
    reply = b""
    while not reply.endswith(b"\r\n\r\n3"):
        data = conn.recv(1_000)
        assert data, "closed"
        reply += data


@pytest.mark.parametrize(
    "lengths",
    [
        b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
    ],
)
def test_two_lengths_are_refused_and_what_hides_behind_is_not_read(lengths: bytes) -> None:
    site = operations(url=NOWHERE)
    hidden = b"0\r\n\r\nGET /live HTTP/1.1\r\nHost: x\r\n\r\n"
    sent = b"POST /live HTTP/1.1\r\nHost: x\r\n" + lengths + b"\r\n" + hidden
    with Served(site, http=Connection) as served, opened(served.port, sent) as conn:
        reply = until_closed(conn)
    assert reply.startswith(b"HTTP/1.1 400 ")
    assert b"ambiguous_length" in reply
    assert reply.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("exp", [int("9" * 400), float("inf"), float("nan"), -(10**400), "9" * 400, True, [1], {}])
async def test_a_signed_expiry_that_is_no_time_is_refused(exp: Any) -> None:
    issuer = Issuer()
    site = operations(url=NOWHERE, jwt=JwtAccess(issuer=ISSUER, audience=AUDIENCE, keys=issuer.keys))
    token = issuer.token(exp=exp)
    assert (await ask(site, Asked("GET", "/api/v1/me", headers=bearer(token)))).status == 401
    assert (await ask(site, Asked("POST", "/api/v1/session", json={"token": token}))).status == 401


ANN = ("cookie", "site=ann")
ACT = {"action": "pause"}


def _ann(request: Request) -> Person | None:
    return Person("ann", Role.OPERATOR) if request.cookies.get("site") == "ann" else None


async def _acting(*headers: tuple[str, str]) -> Answered:
    site = operations(url=NOWHERE, authenticate=_ann)
    return await ask(site, Asked("POST", "/api/v1/queues/mail/actions", json=ACT, headers=headers))


@pytest.mark.nightly
@pytest.mark.parametrize("junk", ["Bearer junk", "Bearer ", "Bearer"])
async def test_a_junk_bearer_beside_a_cookie_does_not_switch_the_csrf_check_off(junk: str) -> None:
    answered = await _acting(ANN, ("authorization", junk))
    assert (answered.status, answered.refusal.code) == (403, "csrf")
    evil = await _acting(ANN, ("authorization", junk), *CSRF, ("origin", "https://evil.example"))
    assert (evil.status, evil.refusal.code) == (403, "csrf")
    own = await _acting(ANN, ("authorization", junk), *CSRF)
    assert own.refusal.code == "busy", "it passed, to a database that is not there"
