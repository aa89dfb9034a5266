"""The values given to enqueue, stored in the database and read by a worker are the same."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import DuplicateJob, Holdfast, Job, OrderKey, Retry, Unique

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

app = Holdfast()


@app.job("anything", queue="mail", priority=2, retry=Retry(max_attempts=9), version=3)
def handle(job: Job[None], value: Any) -> None: ...


@pytest.mark.parametrize(
    "value",
    ["plain", "Zoë 😀", "nul \0", "half \ud800", {"$json": "x"}, [1.5, None, True, 10**30], "'; %s %(a)s {} \\ \" :a"],
)
def test_any_payload_survives(value: object, connect: Callable[..., psycopg.Connection[Any]]) -> None:
    conn = connect()
    job = handle.new(value)
    handle_id = app.sync.enqueue(conn, job).id
    row = conn.execute("SELECT payload::text, payload_version FROM holdfast.job WHERE id = %s", [handle_id]).fetchone()
    assert row is not None
    assert row[0] == job.payload
    assert handle.arguments(*row) == {"value": value}


def test_every_option_arrives(connect: Callable[..., psycopg.Connection[Any]]) -> None:
    conn = connect()
    due = datetime(2040, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
    job = handle.new(1).options(
        at=due,
        expires=due + timedelta(hours=1),
        order_key=OrderKey('k "1"', on_failure="block"),
        unique=Unique("u '1'"),
        headers={"tenant": "a\nb"},
        max_attempts=4,
    )
    app.sync.enqueue(conn, job)
    row = conn.execute(
        "SELECT kind, queue, priority, max_attempts, payload_version, available_at, expires_at, "
        "order_key, order_block, unique_key, headers FROM holdfast.job"
    ).fetchone()
    expected = ("anything", "mail", 2, 4, 3, due, due + timedelta(hours=1), 'k "1"', True, "u '1'", {"tenant": "a\nb"})
    assert row == expected


def test_spans_count_from_now_on_the_databases_clock(connect: Callable[..., psycopg.Connection[Any]]) -> None:
    conn = connect()
    app.sync.enqueue(conn, handle.new(1).options(delay=timedelta(hours=1), expires=timedelta(hours=2)))
    row = conn.execute("SELECT available_at - created_at, expires_at - created_at FROM holdfast.job").fetchone()
    assert row == (timedelta(hours=1), timedelta(hours=2))


def test_a_unique_window(connect: Callable[..., psycopg.Connection[Any]]) -> None:
    conn = connect()
    unique = Unique("k", window=timedelta(days=31), on_conflict="raise")
    first = app.sync.enqueue(conn, handle.new(1).options(unique=unique))
    with pytest.raises(DuplicateJob) as caught:
        app.sync.enqueue(conn, handle.new(1).options(unique=unique))
    assert caught.value.existing_id == first.id


def test_ten_thousand_jobs_are_one_statement_in_order(connect: Callable[..., psycopg.Connection[Any]]) -> None:
    conn = connect()
    handles = app.sync.enqueue_many(conn, [handle.new(n) for n in range(10_000)])
    rows = conn.execute("SELECT id, (payload ->> 'value')::int FROM holdfast.job ORDER BY id").fetchall()
    assert rows == [(handle.id, n) for n, handle in enumerate(handles)]


async def test_cancelling(connect: Callable[..., psycopg.Connection[Any]], database: str) -> None:
    import psycopg

    conn = connect()
    job_id = app.sync.enqueue(conn, handle.new(1)).id
    assert app.sync.cancel(conn, job_id) == "cancelled"
    assert app.sync.cancel(conn, job_id) == "not_found"
    second = app.sync.enqueue(conn, handle.new(2)).id
    async with await psycopg.AsyncConnection.connect(database) as other:
        assert await app.cancel(other, second) == "cancelled"
        await other.rollback()
        assert await app.cancel(other, second) == "cancelled"
