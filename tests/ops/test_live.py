from __future__ import annotations

import asyncio
import json
import signal
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from holdfast._ops import live as live_module
from holdfast._ops.caller import RequestRefused
from holdfast._ops.live import LiveOverview, LiveResponse
from holdfast._ops.responses.fleet import Overview
from holdfast._ops.responses.job import PROBLEM, Refusal
from holdfast.ops import Person, Role, end_streams, operations
from tests.kit.access import PATIENT, make_token
from tests.kit.asking import Asked, ask, bearer
from tests.kit.waiting import until
from tests.ops.serving import Served

ANN, BOB = Person("ann", Role.OPERATOR), Person("bob", Role.OPERATOR)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.applications import Starlette
    from starlette.types import Message

    from tests.kit.shop import Shop

SECONDS = 20.0


class Reader:
    """Counts how often it is read, and says so."""

    def __init__(self) -> None:
        self.reads = 0
        self.fails: Exception | None = None

    async def __call__(self) -> bytes:
        self.reads += 1
        if self.fails is not None:
            raise self.fails
        return json.dumps({"read": self.reads}).encode()


class Listening:
    """One listener, at the level at which a server speaks to the application."""

    def __init__(self, live: LiveOverview, *, may: bool = True) -> None:
        self.received: list[bytes] = []
        self.ended = False
        self.may = may
        self.reading = asyncio.Event()
        self.reading.set()
        self._left = asyncio.Event()
        self._response = LiveResponse(live, ANN, self._still)
        self.task = asyncio.create_task(self._response({"type": "http"}, self._receive, self._send))

    def leave(self) -> None:
        self._left.set()

    @property
    def numbers(self) -> list[int]:
        return [json.loads(reply[6:])["read"] for reply in self.received if reply.startswith(b"data: ")]

    async def _still(self) -> bool:
        return self.may

    async def _receive(self) -> Message:
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        await self.reading.wait()
        if message["type"] == "http.response.body":
            self.received.append(message["body"])
            self.ended = not message["more_body"]


async def gone(*listeners: Listening) -> None:
    async with asyncio.timeout(SECONDS):
        await asyncio.gather(*(listener.task for listener in listeners))


async def test_a_hundred_listeners_share_one_reading_and_its_bytes() -> None:
    reader = Reader()
    live = LiveOverview(reader, every=0.05)
    listeners = [Listening(live) for _ in range(100)]
    await until(lambda: all(len(listener.numbers) >= 3 for listener in listeners))
    for listener in listeners:
        listener.leave()
    await gone(*listeners)
    assert reader.reads <= max(max(listener.numbers) for listener in listeners) + 1
    first = {id(listener.received[1]) for listener in listeners if listener.numbers[0] == 1}
    assert len(first) == 1, "the same object is sent to all"
    assert all(listener.received[0].startswith(b"retry: ") for listener in listeners)


async def test_nothing_is_read_while_nobody_listens() -> None:
    reader = Reader()
    live = LiveOverview(reader, every=0.01)
    await asyncio.sleep(0.05)
    assert reader.reads == 0
    listener = Listening(live)
    await until(lambda: listener.numbers)
    listener.leave()
    await gone(listener)
    assert (live.listeners, live._reader) == (0, None)
    before = reader.reads
    await asyncio.sleep(0.05)
    assert reader.reads == before
    again = Listening(live)
    await until(lambda: again.numbers)
    assert again.numbers[0] > before, "what was read long ago is not sent"
    again.leave()
    await gone(again)


async def test_who_reads_slowly_gets_the_newest_and_holds_nobody_up() -> None:
    live = LiveOverview(Reader(), every=0.01)
    quick, slow = Listening(live), Listening(live)
    await until(lambda: slow.numbers)
    slow.reading.clear()
    held, missed = len(slow.numbers), max(quick.numbers, default=0) + 50
    await until(lambda: quick.numbers[-1] > missed)
    slow.reading.set()
    await until(lambda: len(slow.numbers) >= held + 2)
    assert slow.numbers[held] < missed, "the one that was on its way"
    assert slow.numbers[held + 1] > missed, "then the newest"
    for listener in (quick, slow):
        listener.leave()
    await gone(quick, slow)


async def test_who_does_not_read_at_all_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "SEND_SECONDS", 0.05)
    live = LiveOverview(Reader(), every=0.01)
    unresponsive = Listening(live)
    await until(lambda: unresponsive.numbers)
    unresponsive.reading.clear()
    await gone(unresponsive)
    assert live.listeners == 0


async def test_a_quiet_stream_says_that_it_lives() -> None:
    gate = asyncio.Event()

    async def stuck() -> bytes:
        await gate.wait()
        return b"{}"

    listener = Listening(LiveOverview(stuck, heartbeat=0.02))
    await until(lambda: listener.received.count(b": alive\n\n") >= 2)
    listener.leave()
    await gone(listener)


async def test_a_stream_ends_when_its_listener_may_no_more() -> None:
    listener = Listening(LiveOverview(Reader(), every=0.01, heartbeat=0.02))
    await until(lambda: listener.numbers)
    listener.may = False
    await gone(listener)
    assert listener.ended


async def test_a_stream_ends_after_its_time_and_when_the_server_stops() -> None:
    old = Listening(LiveOverview(Reader(), every=0.01, life=0.1))
    await gone(old)
    assert old.ended
    live = LiveOverview(Reader(), every=60)
    listener = Listening(live)
    await until(lambda: listener.numbers)
    live.end()
    await gone(listener)
    assert listener.ended
    with pytest.raises(RequestRefused, match="stopping"):
        live.check(ANN)


async def test_streams_end_when_uvicorn_was_told_to_stop() -> None:
    """It tells nobody before it has waited for them; but it is who handles the signal."""

    class Server:
        should_exit = False

        def handle_exit(self, *_: object) -> None: ...

    server = Server()
    before = signal.signal(signal.SIGTERM, server.handle_exit)
    try:
        listener = Listening(LiveOverview(Reader(), every=0.01))
        await until(lambda: len(listener.numbers) > 2)
        assert not listener.ended
        server.should_exit = True
        await gone(listener)
        assert listener.ended
    finally:
        signal.signal(signal.SIGTERM, before)


async def test_no_more_listen_than_may() -> None:
    live = LiveOverview(Reader(), limit=2)
    listeners = [Listening(live), Listening(live)]
    await until(lambda: live.listeners == 2)
    with pytest.raises(RequestRefused) as refused:
        live.check(BOB)
    assert (refused.value.status, refused.value.code) == (503, "too_many_listeners")
    listeners[0].leave()
    await gone(listeners[0])
    live.check(BOB)
    listeners[1].leave()
    await gone(listeners[1])


@pytest.mark.parametrize(
    ("raised", "error"),
    [(RequestRefused(503, "too_slow", "It took too long."), "too_slow"), (KeyError("x"), "internal")],
)
async def test_trouble_is_told_and_passes(raised: Exception, error: str) -> None:
    reader = Reader()
    reader.fails = raised
    listener = Listening(LiveOverview(reader, every=0.01))
    await until(lambda: any(reply.startswith(b"event: trouble\n") for reply in listener.received))
    reply = next(reply for reply in listener.received if reply.startswith(b"event: trouble\n"))
    assert Refusal.model_validate_json(reply.split(b"data: ")[1]).code == error
    reader.fails = None
    await until(lambda: listener.numbers)
    listener.leave()
    await gone(listener)


# --- the application


async def test_the_overview_is_streamed_as_it_is_answered(site: Starlette, tokens: Mapping[Role, str]) -> None:
    asked = Asked("GET", "/api/v1/overview/live", headers=bearer(tokens[Role.VIEWER]), listens=2)
    answered = await ask(site, asked)
    assert answered.status == 200
    assert answered.headers["content-type"].startswith("text/event-stream")
    assert (answered.headers["cache-control"], answered.headers["x-accel-buffering"]) == ("no-store", "no")
    assert "content-length" not in answered.headers
    _, reply, _ = answered.body.decode().split("\n\n")
    overview = Overview.model_validate_json(reply.removeprefix("data: "))
    assert (overview.depth.pending, len(overview.minutes)) == (3, 60)
    assert site.state.operations.first.opened.live.listeners == 0


async def test_live_jobs_are_counted_while_somebody_listens_though_no_worker_does(
    site: Starlette, tokens: Mapping[Role, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = site.state.operations.first.service
    counted: list[bool] = []
    count = service.count

    async def counting(*, small: bool) -> bool:
        counted.append(small)
        return bool(await count(small=small))

    monkeypatch.setattr(service, "count", counting)
    await ask(site, Asked("GET", "/api/v1/overview/live", headers=bearer(tokens[Role.VIEWER]), listens=2))
    assert False in counted


async def test_who_listens_when_the_database_is_gone_hears_of_it() -> None:
    site = operations(
        url="postgresql://127.0.0.1:1/none", authenticate=lambda _: Person("ann", Role.VIEWER), timeout=PATIENT
    )
    try:
        answered = await ask(site, Asked("GET", "/api/v1/overview/live", listens=2))
        assert b"event: trouble\n" in answered.body
    finally:
        await site.state.operations.close()


async def listen(client: httpx.AsyncClient, messages: int, headers: Any) -> int:
    received = 0
    async with client.stream("GET", "/api/v1/overview/live", headers=headers) as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            received += line.startswith("data: ")
            if received == messages:
                break
    return received


async def test_fifty_browsers_cost_one_reading_each_beat(shop: Shop) -> None:
    from datetime import timedelta

    site = operations(
        shop.app,
        authenticate=lambda request: Person(request.headers["x-who"], Role.VIEWER),
        timeout=PATIENT,
        live_every=timedelta(milliseconds=200),
    )
    begun = time.monotonic()
    with Served(site) as served:
        limits = httpx.Limits(max_connections=60)
        async with httpx.AsyncClient(base_url=served.url, timeout=SECONDS, limits=limits, trust_env=False) as client:
            async with asyncio.timeout(SECONDS):
                received = await asyncio.gather(
                    *(listen(client, 3, {"x-who": f"viewer {number}"}) for number in range(50))
                )
        assert received == [3] * 50
        opened = site.state.operations.first._open
        await until(lambda: opened.live.listeners == 0 and opened.live._reader is None)
        assert opened.live.number <= (time.monotonic() - begun) / 0.2 + 1


async def test_a_server_that_stops_does_not_wait_for_who_listens(shop: Shop) -> None:
    site = operations(shop.app, timeout=PATIENT)
    headers = {"Authorization": f"Bearer {make_token(shop.app.url, 'viewer')}"}
    with Served(site) as served:
        async with httpx.AsyncClient(base_url=served.url, timeout=SECONDS, trust_env=False) as client:
            async with client.stream("GET", "/api/v1/overview/live", headers=headers) as answer:
                lines = answer.aiter_lines()
                while not (await anext(lines)).startswith("data: "):
                    pass
                served.loop.call_soon_threadsafe(end_streams, site)
                async with asyncio.timeout(SECONDS):
                    async for _ in lines:
                        pass
            refused = await client.get("/api/v1/overview/live", headers=headers)
            assert (refused.status_code, refused.json()["type"]) == (503, f"{PROBLEM}stopping")
