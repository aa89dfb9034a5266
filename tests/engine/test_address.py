"""Names are looked up in threads of our own, and stay beside their addresses."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast._engine.address import database_of, resolved
from tests.kit.pace import QUICK
from tests.kit.waiting import Stopwatch, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast import Holdfast, Job
    from tests.kit.ledger import Ledger

BOOK = {"a": ["10.0.0.1", "10.0.0.2"], "b": ["::1"]}


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the threads that looked something up."""
    found: list[str] = []

    def look_up(host: str, port: str, **_: object) -> list[Any]:
        found.append(threading.current_thread().name)
        if host not in BOOK:
            raise socket.gaierror(-2, "unknown")
        return [(None, None, None, "", (address, port)) for address in BOOK[host]]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    for name in ("PGHOST", "PGHOSTADDR", "PGPORT"):
        monkeypatch.delenv(name, raising=False)
    return found


CASES = {
    "postgresql://u@a/db": ("a,a", "10.0.0.1,10.0.0.2", "5432,5432"),
    "postgresql://u@a:7,b:8/db?target_session_attrs=read-write": ("a,a,b", "10.0.0.1,10.0.0.2,::1", "7,7,8"),
    "host=b,10.1.1.1,/run port=9 dbname=db": ("b,10.1.1.1,/run", "::1,10.1.1.1,", "9,9,9"),
    "postgresql://u@nowhere,b/db": ("b", "::1", "5432"),
}


@pytest.mark.parametrize("url", CASES)
async def test_each_name_stands_beside_each_of_its_addresses(threads: list[str], url: str) -> None:
    params = await resolved(url)
    assert (params["host"], params["hostaddr"], params["port"]) == CASES[url]
    assert params["dbname"] == "db"
    assert set(threads) == {"holdfast-runner-names"}


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u@127.0.0.1:5/db",
        "postgresql://u@[::1]:5/db",
        "host=/run dbname=db",
        "dbname=db",
        "host=a hostaddr=10.2.2.2 dbname=db",
        "host=a,b port=1,2,3 dbname=db",
    ],
)
async def test_what_needs_no_look_up_stays_as_it_is(threads: list[str], url: str) -> None:
    assert await resolved(url) == psycopg.conninfo.conninfo_to_dict(url)
    assert threads == []


async def test_names_of_the_environment(threads: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "b")
    monkeypatch.setenv("PGPORT", "6")
    assert (await resolved("dbname=db"))["hostaddr"] == "::1"
    assert threads


async def test_an_unknown_host_is_a_lost_connection(threads: list[str]) -> None:
    with pytest.raises(psycopg.OperationalError, match="failed to resolve host 'nowhere'"):
        await resolved("postgresql://u@nowhere/db")
    assert threads


@contextmanager
def threads_taken() -> Iterator[None]:
    """Take all threads that the event loop has for `asyncio.to_thread`."""
    gate, limit = threading.Event(), min(32, (os.cpu_count() or 1) + 4)
    loop = asyncio.get_running_loop()
    taken = [loop.run_in_executor(None, gate.wait, 60) for _ in range(limit)]
    try:
        yield
    finally:
        gate.set()
    assert taken


async def test_a_worker_connects_while_handlers_have_taken_the_loops_threads(
    app: Holdfast, ledger: Ledger, database: str
) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    app.url = database.replace("127.0.0.1", "localhost")
    assert app.url != database
    async with Stopwatch() as watch, app.worker(**QUICK):
        with threads_taken():
            ledger.do(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND application_name = 'holdfast'"
            )
            ledger.enqueue(act.new())
            await until(lambda: ledger.completed() == 1)
            watch.restart()
            async with app.worker(**QUICK):
                pass
    assert watch.seconds < 10, "nor does leaving wait for such a thread"


@pytest.mark.parametrize(("url", "name"), [("postgresql://u:p@h/shop", "shop"), ("postgresql://u:p@h", ""), ("=", "")])
def test_only_the_name_of_the_database_is_shown(url: str, name: str) -> None:
    assert database_of(url) == name
