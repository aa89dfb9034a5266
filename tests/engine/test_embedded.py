"""A worker in the lifespan of a web application, and only if it is asked for."""

from __future__ import annotations

import asyncio
import http.client
import socket
import threading
import time
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from holdfast import Holdfast, Job
from holdfast._engine import address
from tests.engine.web import Web, served
from tests.kit.databases import clone
from tests.kit.pace import QUICK
from tests.kit.trouble import Line
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.requests import Request

    from tests.kit.ledger import Ledger
    from tools.postgres import Server

ENABLED = "HOLDFAST_WORKER_ENABLED"


class Shop:
    """An application whose only page enqueues a job."""

    def __init__(self, url: str, enqueue_at: str | None = None) -> None:
        self.app = Holdfast(url)
        self.ran: list[int] = []
        self._url = enqueue_at or url

        @self.app.job("act")
        async def act(job: Job[None]) -> None:
            await asyncio.sleep(0)
            self.ran.append(job.id)

        self._act = act

    async def page(self) -> None:
        async with await psycopg.AsyncConnection.connect(self._url) as conn:
            await self.app.enqueue(conn, self._act.new())

    async def view(self, _: Request) -> Response:
        await self.page()
        return Response(status_code=204)

    def web(self) -> Web:
        return Web(self.app.embedded_worker, self.page)


@pytest.fixture
def shop(database: str) -> Shop:
    return Shop(database)


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENABLED, "true")


@pytest.mark.usefixtures("on")
async def test_switched_on_it_runs_what_the_web_process_enqueues(shop: Shop, ledger: Ledger) -> None:
    before = set(threading.enumerate())
    async with served(shop.web()) as at:
        for _ in range(5):
            assert await at.request() == 204
        await until(lambda: ledger.completed() == 5)
        assert ledger.sessions() >= 3
    assert len(shop.ran) == 5
    assert ledger.rows("SELECT stop_reason FROM holdfast.worker") == [("stopped",)]
    await until(lambda: ledger.sessions() == 0)
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("holdfast")]
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.usefixtures("on")
async def test_behind_a_real_server(shop: Shop, ledger: Ledger) -> None:
    starlette = Starlette(lifespan=shop.app.embedded_worker, routes=[Route("/", shop.view, methods=["POST"])])
    with closing(socket.create_server(("127.0.0.1", 0))) as door:
        server = uvicorn.Server(uvicorn.Config(starlette, log_config=None))
        serving = asyncio.create_task(server.serve([door]))
        await until(lambda: server.started)
        for _ in range(5):
            assert await asyncio.to_thread(post, door.getsockname()[1]) == 204
        await until(lambda: ledger.completed() == 5)
        server.should_exit = True
        await serving
    assert ledger.rows("SELECT stop_reason FROM holdfast.worker") == [("stopped",)]
    await until(lambda: ledger.sessions() == 0)


def post(port: int) -> int:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as conn:
        conn.request("POST", "/")
        return conn.getresponse().status


@pytest.mark.parametrize("value", [None, "false", ""])
async def test_switched_off_it_does_nothing_at_all(
    shop: Shop, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    if value is not None:
        monkeypatch.setenv(ENABLED, value)
    async with served(shop.web()) as at:
        assert await at.request() == 204
        assert ledger.sessions() == 0
    assert ledger.statuses() == {"pending": 1}
    assert ledger.value("SELECT count(*) FROM holdfast.worker") == 0


async def test_switched_off_it_needs_no_database(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOLDFAST_DATABASE_URL", "DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    async with Holdfast().embedded_worker():
        pass


async def test_an_argument_wins_over_the_environment(
    shop: Shop, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENABLED, "true")
    async with shop.app.embedded_worker(worker_enabled=False, **QUICK):
        assert ledger.value("SELECT count(*) FROM holdfast.worker") == 0
    monkeypatch.setenv(ENABLED, "false")
    async with shop.app.embedded_worker(worker_enabled=True, **QUICK):
        await until(lambda: ledger.value("SELECT count(*) FROM holdfast.worker") == 1)


@pytest.mark.usefixtures("on")
async def test_within_a_lifespan_of_ones_own(shop: Shop, ledger: Ledger) -> None:
    story: list[str] = []

    @asynccontextmanager
    async def lifespan(web: Web) -> AsyncGenerator[dict[str, Any], None]:
        story.append("opened")
        async with shop.app.embedded_worker(id="web", queues={"default": 2}, **QUICK):
            yield {"pool": "a pool"}
        story.append("closed")

    async with served(Web(lifespan, shop.page)) as at:
        await at.request()
        await until(lambda: ledger.completed() == 1)
        assert ledger.rows("SELECT name, queues FROM holdfast.worker") == [("web", ["default"])]
    assert story == ["opened", "closed"]


@pytest.mark.usefixtures("on")
async def test_a_database_that_is_away_keeps_no_web_process_from_starting(database: str, ledger: Ledger) -> None:
    """It refuses connections at first; the worker begins when it no longer does."""
    async with Line(database) as line:
        line.refuse()
        async with served(Shop(line.url, enqueue_at=database).web()) as at:
            assert await at.request() == 204
            assert ledger.statuses() == {"pending": 1}
            line.open()
            await until(lambda: ledger.completed() == 1, 10)


@pytest.mark.usefixtures("on")
async def test_a_database_that_does_not_answer_holds_the_web_process_up_for_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(address.CONNECT, "connect_timeout", 60)
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        shop = Shop(f"postgresql://postgres@127.0.0.1:{silent.getsockname()[1]}/none")
        begun = time.monotonic()
        async with served(shop.web()):
            assert time.monotonic() - begun < 30, "not the time that a connection may take"


@pytest.mark.usefixtures("on")
async def test_a_schema_that_is_missing_stops_the_start(server: Server) -> None:
    """That does not pass by itself, so a deployment should fail at once."""
    with clone(server, "template0") as empty, pytest.raises(RuntimeError, match="no Holdfast schema"):
        async with served(Shop(empty).web()):
            pass
