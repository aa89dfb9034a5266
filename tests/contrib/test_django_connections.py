from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

import psycopg
import pytest
from asgiref.sync import sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError, connection, connections, transaction
from django.test import override_settings
from psycopg.conninfo import conninfo_to_dict

from holdfast import UnsupportedConnection
from holdfast.contrib.django._application import FreshConnections, address, application
from tests.contrib.book.application import app, new
from tests.contrib.book.jobs import backend
from tests.kit.databases import clone
from tests.kit.django_config import connected
from tests.kit.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tools.postgres import Server


Run: TypeAlias = Callable[[], Awaitable[int]]


class BackOutError(Exception):
    pass


@pytest.fixture
def orders(server: Server, template: str, django_database: str) -> Iterator[str]:
    """Another database, under another alias."""
    with clone(server, template) as database, connected(orders=database):
        yield database


def live(database: str) -> int:
    with Ledger(database) as ledger:
        return int(ledger.value("SELECT count(*) FROM holdfast.job"))


def test_jobs_of_every_installed_app_are_found(django_database: str) -> None:
    assert application() is app
    tasks = {f"tests.contrib.book.tasks.{name}" for name in ("add", "decline", "fail_twice", "greet", "noted")}
    assert set(app.kinds) == {"book.print", "book.ship"} | tasks


@pytest.mark.parametrize("name", [None, "tests.contrib.book.urls.urlpatterns"])
def test_an_application_that_is_none_is_refused(django_database: str, name: str | None) -> None:
    with override_settings(HOLDFAST_APP=name), pytest.raises(ImproperlyConfigured, match="must be the dotted path"):
        application()


def test_each_alias_commits_and_rolls_back_by_itself(django_database: str, orders: str) -> None:
    with transaction.atomic():
        app.sync.enqueue(connection, new("book.print"))
        with suppress(BackOutError), transaction.atomic(using="orders"):
            app.sync.enqueue(connections["orders"], new("book.print"))
            raise BackOutError
        with transaction.atomic(using="orders"):
            app.sync.enqueue(connections["orders"], new("book.ship"))
        assert (live(django_database), live(orders)) == (0, 1)
    assert (live(django_database), live(orders)) == (1, 1)


@pytest.fixture(params=["book.print", "book.ship"])
async def run(request: pytest.FixtureRequest, django_database: str) -> AsyncIterator[Run]:
    """Run a handler, plain or async, as a worker does: always in the same thread. It returns its backend."""
    handler: Any = app.kinds[request.param]
    handler = handler.handler
    with ThreadPoolExecutor(1) as thread:

        async def run() -> int:
            if inspect.iscoroutinefunction(handler):
                return int(await handler(None))
            return int(await asyncio.get_running_loop().run_in_executor(thread, handler, None))

        yield run
        thread.submit(connections.close_all).result()
    await sync_to_async(connections.close_all)()


async def test_a_connection_is_kept_for_as_long_as_django_keeps_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await run() != await run()
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", None)
    assert await run() == await run()


async def test_a_broken_connection_is_not_met_twice(run: Run, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", None)
    ledger.do("SELECT pg_terminate_backend(%s, 5000)", await run())
    with pytest.raises(OperationalError):
        await run()
    monkeypatch.setitem(connection.settings_dict, "CONN_HEALTH_CHECKS", True)
    ledger.do("SELECT pg_terminate_backend(%s, 5000)", await run())
    await run()


async def test_an_async_handler_keeps_its_connection_while_another_comes_and_goes(django_database: str) -> None:
    fresh = FreshConnections()
    begun, go = asyncio.Event(), asyncio.Event()

    @fresh
    async def slow() -> tuple[int, int]:
        before = await sync_to_async(backend)()
        begun.set()
        await go.wait()
        return before, await sync_to_async(backend)()

    @fresh
    async def quick() -> int:
        return await sync_to_async(backend)()

    running = asyncio.create_task(slow())
    await begun.wait()
    met = await quick()
    go.set()
    assert await running == (met, met)
    assert await quick() != met, "nobody else ran when it ended"
    await sync_to_async(connections.close_all)()


async def test_a_broken_connection_is_closed_though_another_handler_runs(django_database: str, ledger: Ledger) -> None:
    fresh = FreshConnections()
    begun, go = asyncio.Event(), asyncio.Event()

    @fresh
    async def slow() -> None:
        begun.set()
        await go.wait()

    @fresh
    async def quick() -> int:
        return await sync_to_async(backend)()

    running = asyncio.create_task(slow())
    await begun.wait()
    ledger.do("SELECT pg_terminate_backend(%s, 5000)", await quick())
    with pytest.raises(OperationalError):
        await quick()
    await quick()
    go.set()
    await running
    await sync_to_async(connections.close_all)()


def test_an_address_carries_what_djangos_settings_say(django_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"sslmode": "prefer", "assume_role": "pg_monitor", "pool": False, "server_side_binding": True}
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", options)
    monkeypatch.setitem(connection.settings_dict, "PASSWORD", "p@ss w/rd&%")
    parts = conninfo_to_dict(address("default"))
    real = conninfo_to_dict(django_database)
    assert {name: str(parts[name]) for name in ("host", "port", "user", "dbname")} == {
        name: str(real[name]) for name in ("host", "port", "user", "dbname")
    }
    assert (parts["password"], parts["sslmode"]) == ("p@ss w/rd&%", "prefer")
    assert " " not in address("default"), "several addresses are separated by spaces"
    with psycopg.connect(address("default")) as conn:
        assert conn.execute("SELECT current_user").fetchone() == ("pg_monitor",)


def test_the_address_of_another_database_is_refused() -> None:
    with connected(), pytest.raises(UnsupportedConnection, match="other is sqlite, and Holdfast needs PostgreSQL"):
        address("other")
