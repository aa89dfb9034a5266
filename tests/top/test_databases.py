"""The list of several databases: one that is away or frozen does not delay the others, and each can be opened."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast._ops.service import Service
from holdfast._top.database import DatabaseScreen
from holdfast._top.databases import DatabasesScreen
from holdfast._top.screen import ShownDatabase
from tests.kit.databases import clone, create_template
from tests.kit.waiting import until
from tests.kit.workers import enqueue, job
from tests.top.shop import shop
from tests.top.watching import SMALL, WHO, RecordingTop, Watched

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tools.postgres import Server

NOWHERE = "postgresql://me:hush@127.0.0.1:1/nowhere"


@pytest.fixture
def two(server: Server, template: str) -> Iterator[dict[str, str]]:
    """Two databases: two jobs wait in `eu`, and one in `us`."""
    with ExitStack() as stack:
        urls = {name: stack.enter_context(clone(server, template)) for name in ("eu", "us")}
        with psycopg.connect(urls["eu"], autocommit=True) as conn:
            enqueue(conn, job(queue="mail"), job(queue="mail"))
        with psycopg.connect(urls["us"], autocommit=True) as conn:
            enqueue(conn, job(queue="pdf"))
        yield urls


@asynccontextmanager
async def listing(
    urls: dict[str, str], *, size: tuple[int, int] = SMALL, patience: float = 10.0, draining: str = "", **options: Any
) -> AsyncIterator[Watched]:
    """Yield the list of these databases."""
    async with AsyncExitStack() as stack:
        watched = []
        for name, url in urls.items():
            service = await stack.enter_async_context(Service(url, connections=1))
            watched.append(ShownDatabase(service, f"{name}@test", name, name == draining))
        top = RecordingTop(watched, WHO, **{"interval": 0.2, **options})
        pilot = await stack.enter_async_context(top.run_test(size=size))
        assert isinstance(top.view, DatabasesScreen)
        top.view.patience = patience
        yield Watched(top, pilot)


def row(watched: Watched, name: str) -> dict[str, str]:
    return next((row for row in watched.cells if row["database"] == name), {})


async def test_each_has_its_figures(two: dict[str, str]) -> None:
    async with shop(two["us"]) as busy, listing(two, draining="us") as watched:
        await busy.enqueue("invoice.render")
        await busy.enqueue("report.build")
        await until(lambda: row(watched, "eu").get("due") == "2" and row(watched, "us").get("failed/h") == "1")
        await until(lambda: row(watched, "us")["running"] == "1")
        assert watched.column("database") == ["eu", "us"]
        assert watched.column("state") == ["serving", "draining"]
        assert row(watched, "eu")["failed/h"] == "0"
        assert row(watched, "eu")["workers"] == "none"
        assert row(watched, "us")["workers"] == "1"
        assert row(watched, "eu")["running"] == "0"
        # The cells are set before the screen is drawn.
        await until(lambda: "with problems" in watched.text and "3 due" in watched.text)
        await watched.press("exclamation_mark")
        await until(lambda: "eu: " in watched.text)
        busy.gate.set()


@pytest.mark.nightly
async def test_one_is_opened_and_left(two: dict[str, str]) -> None:
    async with listing(two) as watched:
        await until(lambda: row(watched, "us").get("state") == "serving")
        for back in ("escape", "backspace"):
            await watched.press("enter")
            await until(lambda: isinstance(watched.top.view, DatabaseScreen) and watched.column("queue") == ["mail"])
            await until(lambda: "eu: eu@test" in watched.text and "Esc returns to the list" in watched.text)
            await watched.press("slash", *"nothing", "enter")
            await until(lambda: watched.cells == [])
            # The first Esc drops the filter.
            await watched.press("escape")
            await until(lambda: watched.column("queue") == ["mail"])
            await watched.press("question_mark", "escape", back)
            await until(lambda: isinstance(watched.top.view, DatabasesScreen))
            await watched.look()
        await watched.press("down", "enter")
        await until(lambda: isinstance(watched.top.view, DatabaseScreen) and watched.screen.where == "us: us@test")
        await watched.press("t")
        await watched.press("escape")
        await watched.look()
        assert watched.column("database") == ["eu", "us"]


@pytest.mark.nightly
async def test_rows_are_sorted_and_filtered(two: dict[str, str]) -> None:
    async with listing(two) as watched:
        await until(lambda: row(watched, "us").get("due") == "1" and row(watched, "eu").get("due") == "2")
        await watched.press("s", "s")
        assert watched.column("database") == ["eu", "us"]
        await watched.press("o")
        assert watched.column("database") == ["us", "eu"]
        await watched.press("slash", *"database:eu", "enter")
        assert watched.column("database") == ["eu"]
        await watched.press("escape")
        assert len(watched.cells) == 2
        # There is nothing to go back to.
        await watched.press("escape", "backspace")
        assert isinstance(watched.top.view, DatabasesScreen)


@pytest.mark.nightly
async def test_one_that_is_down_is_reported_beside_the_others(two: dict[str, str]) -> None:
    async with listing({**two, "asia": NOWHERE}) as watched:
        await until(lambda: row(watched, "eu").get("due") == "2" and row(watched, "us").get("state") == "serving")
        await until(lambda: row(watched, "asia").get("state") == "not answering")
        await until(lambda: "asia: the database cannot be reached" in watched.text)
        await until(lambda: "1 of 3 databases does not answer" in watched.text)
        assert (row(watched, "asia")["due"], row(watched, "asia")["workers"]) == ("-", "-")
        assert "hush" not in watched.text
        with psycopg.connect(two["eu"], autocommit=True) as conn:
            enqueue(conn, job(queue="mail"))
        await until(lambda: row(watched, "eu")["due"] == "3")
        # Opened, it says the same, and the list is there again at once.
        await watched.press("enter")
        await until(lambda: isinstance(watched.top.view, DatabaseScreen) and watched.screen.reading.trouble is not None)
        await watched.press("escape")
        await until(lambda: row(watched, "us").get("state") == "serving")


@pytest.mark.nightly
async def test_one_without_a_schema_says_so(server: Server, two: dict[str, str]) -> None:
    with clone(server, "template0") as empty:
        async with listing({**two, "new": empty}) as watched:
            await until(lambda: "run `holdfast migrate`" in row(watched, "new").get("message", ""))
            await until(lambda: row(watched, "eu").get("due") == "2")
            await watched.press("down", "enter")
            await until(
                lambda: isinstance(watched.top.view, DatabaseScreen) and watched.screen.reading.trouble is not None
            )


@pytest.mark.nightly
async def test_one_that_freezes_keeps_its_figures_and_recovers(own_server: Server, two: dict[str, str]) -> None:
    frozen = own_server.url(create_template(own_server))
    with psycopg.connect(frozen, autocommit=True) as conn:
        enqueue(conn, job(queue="frozen"))
    async with listing({**two, "asia": frozen}, patience=0.2) as watched:
        await until(lambda: row(watched, "asia").get("due") == "1")
        with psycopg.connect(own_server.url(), autocommit=True) as conn:
            found = conn.execute("SELECT pid FROM pg_stat_activity WHERE application_name = 'holdfast ops'").fetchall()
        pids = [own_server.pid, *(pid for (pid,) in found)]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            await until(lambda: row(watched, "asia")["state"] == "not answering")
            assert row(watched, "asia")["due"] == "1"
            with psycopg.connect(two["eu"], autocommit=True) as conn:
                enqueue(conn, job(queue="mail"))
            await until(lambda: row(watched, "eu")["due"] == "3")
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        await until(lambda: row(watched, "asia")["state"] == "serving", 60)
        await until(lambda: "not answer" not in watched.text)


@pytest.mark.nightly
async def test_it_ends_while_one_is_frozen(own_server: Server, two: dict[str, str]) -> None:
    frozen = own_server.url(create_template(own_server))
    pids: list[int] = []
    try:
        async with asyncio.timeout(30), listing({**two, "asia": frozen}, patience=0.2) as watched:
            await until(lambda: row(watched, "asia").get("state") == "serving")
            with psycopg.connect(own_server.url(), autocommit=True) as conn:
                found = conn.execute("SELECT pid FROM pg_stat_activity WHERE application_name = 'holdfast ops'")
                pids += [own_server.pid, *(pid for (pid,) in found.fetchall())]
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            await until(lambda: row(watched, "asia")["state"] == "not answering")
            await watched.press("q")
            await until(lambda: not watched.top.is_running)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.nightly
async def test_the_list_fits_into_80_by_24_and_survives_less(two: dict[str, str]) -> None:
    async with listing({**two, "asia": NOWHERE}) as watched:
        await until(lambda: row(watched, "asia").get("state") == "not answering")
        await until(lambda: row(watched, "us").get("state") == "serving")
        await until(lambda: "3 databases · Enter opens one" in watched.text and "workers" in watched.text)
        lines = watched.text.splitlines()
        assert len(lines) == 24
        for title in ("database", "state", "due", "oldest", "running", "failed/h", "workers"):
            assert title in watched.text
        assert "? Help  q Quit" in lines[-1]
        await watched.pilot.resize_terminal(30, 8)
        await watched.look()
        assert len(watched.text.splitlines()) == 8
