from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from django.db import DatabaseError, connection, connections, transaction
from django.db.utils import ConnectionHandler

from holdfast import DuplicateJob, Handle, InvalidJob, Unique, UnsupportedConnection
from holdfast._drivers import run_sync
from holdfast._store.statement import Statement
from tests.drivers.jobs import INSERT, app, seen, send_receipt
from tests.kit.django_config import connected

if TYPE_CHECKING:
    from collections.abc import Iterator


class BackOutError(Exception):
    pass


@pytest.fixture(autouse=True)
def configured(database: str) -> Iterator[None]:
    with connected(default=database):
        yield


def insert_invoice() -> None:
    with connection.cursor() as cursor:
        cursor.execute(INSERT)


def test_atomic_commits_jobs_with_its_own_writes(database: str) -> None:
    with transaction.atomic():
        insert_invoice()
        handles = app.sync.enqueue_many(connection, [send_receipt.new(1), send_receipt.new(2)])
        assert seen(database) == ([], 0)
    assert handles[0].id < handles[1].id
    assert seen(database) == ([1, 2], 1)


def test_an_exception_rolls_jobs_back(database: str) -> None:
    with suppress(BackOutError), transaction.atomic():
        insert_invoice()
        app.sync.enqueue(connection, send_receipt.new(1))
        raise BackOutError
    assert seen(database) == ([], 0)


def test_a_nested_atomic_takes_its_jobs_along(database: str) -> None:
    with transaction.atomic():
        app.sync.enqueue(connection, send_receipt.new(1))
        with suppress(BackOutError), transaction.atomic():
            app.sync.enqueue(connection, send_receipt.new(2))
            raise BackOutError
        with transaction.atomic():
            app.sync.enqueue(connection, send_receipt.new(3))
    assert seen(database)[0] == [1, 3]


def test_without_atomic_the_job_is_there_at_once(database: str) -> None:
    handle = app.sync.enqueue(connections["default"], send_receipt.new(1))
    assert handle == Handle(handle.id, handle.id, created=True)
    assert seen(database)[0] == [1]


def test_what_the_database_refuses() -> None:
    first = app.sync.enqueue(connection, send_receipt.new(1).options(unique=Unique("k")))
    with pytest.raises(DuplicateJob) as caught, transaction.atomic():
        app.sync.enqueue(connection, send_receipt.new(2).options(unique=Unique("k", on_conflict="raise")))
    assert caught.value.existing_id == first.id
    raising = "DO $$ BEGIN RAISE EXCEPTION 'priority: no' USING ERRCODE = 'HF002'; END $$"
    with pytest.raises(InvalidJob, match=r"^priority: no$"):
        run_sync(connection, Statement(raising, {}, len))
    with pytest.raises(DatabaseError):
        run_sync(connection, Statement("SELECT 1 / %(n)s", {"n": 0}, len))


def test_cancelling() -> None:
    handle = app.sync.enqueue(connection, send_receipt.new(1))
    assert app.sync.cancel(connection, handle.id) == "cancelled"
    assert app.sync.cancel(connection, 2**40) == "not_found"


def test_percent_signs(database: str) -> None:
    assert run_sync(connection, Statement("SELECT 7 %% 4, %(a)s::text, '%%'", {"a": "x"}, list)) == [(3, "x", "%")]
    sql = "SELECT %(a)s::text IS NULL OR %(a)s::text = 'x', %(b)s::int + %(b)s::int"
    assert run_sync(connection, Statement(sql, {"a": None, "b": 2}, list)) == [(True, 4)]


async def test_the_async_verb_is_refused() -> None:
    wrong: Any = connection
    with pytest.raises(UnsupportedConnection, match=r"use the same verb of \.sync"):
        await app.enqueue(wrong, send_receipt.new(1))


def test_what_is_no_postgresql_connection_is_refused() -> None:
    wrong: Any = connections
    with pytest.raises(UnsupportedConnection, match=r"give django\.db\.connection"):
        app.sync.enqueue(wrong, send_receipt.new(1))
    other = ConnectionHandler({"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}})["default"]
    with pytest.raises(UnsupportedConnection, match="to sqlite, and Holdfast needs PostgreSQL"):
        app.sync.enqueue(other, send_receipt.new(1))
