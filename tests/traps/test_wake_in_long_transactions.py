"""PROTOCOL, section 4: in a transaction that began long ago, records that have ended since are passed by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.mutation import open_trap
from tests.kit.workers import number

if TYPE_CHECKING:
    from psycopg import Connection

    from tests.kit.workers import Connect

ENDED = {
    "reader": "SELECT clock_timestamp(), n, '{t}' FROM generate_series(1, 5000) AS n",
    "watcher": "SELECT clock_timestamp(), n, 'somebody' FROM generate_series(1, 5000) AS n",
}
LIVE = {
    "reader": "SELECT clock_timestamp() + interval '10 s', 1, '{other}'",
    "watcher": "SELECT clock_timestamp() + interval '10 s', 0, 'somebody'",
}
PUBLISH = "SELECT holdfast.publish('t', '{}')"
PUBLISH_MANY = """SELECT holdfast.publish_events('[{"topic": "t", "payload": 1}]')"""
CANCEL = "SELECT holdfast.cancel_job(holdfast.enqueue('a'))"


def begin(conn: Connection[Any]) -> None:
    conn.execute("BEGIN")
    conn.execute("SELECT now()")


@pytest.mark.parametrize(
    ("table", "act", "function", "bound"),
    [
        ("reader", PUBLISH, "wake_readers", "until > {} AND"),
        ("watcher", CANCEL, "notify_watchers", "w.until > {};"),
    ],
)
def test_a_look_passes_by_what_ended_since_the_begin(
    connect: Connect, table: str, act: str, function: str, bound: str
) -> None:
    conn, other = connect(), connect()
    begin(conn)
    other.execute(f"INSERT INTO holdfast.{table} {ENDED[table]}".encode())
    other.execute(f"INSERT INTO holdfast.{table} {LIVE[table]}".encode())
    visited = f"SELECT pg_stat_get_xact_tuples_returned('holdfast.{table}_until'::regclass)"
    conn.execute(act.encode())
    assert number(conn, visited) < 100
    open_trap(other, function, (bound.format("clock"), bound.format("now()")))
    conn.execute(act.encode())
    assert number(conn, visited) >= 5000
    conn.execute("ROLLBACK")


@pytest.mark.parametrize(
    ("table", "act", "function", "called"),
    [
        ("reader", PUBLISH, "publish", "wake_readers(given text[])"),
        ("reader", PUBLISH_MANY, "publish_events", "wake_readers(given text[])"),
        ("watcher", CANCEL, "settle_batch", "notify_watchers(chains bigint[], words text[])"),
    ],
)
def test_no_sleeper_is_searched_when_all_records_have_ended(
    connect: Connect, table: str, act: str, function: str, called: str
) -> None:
    conn, other = connect(), connect()
    other.execute(
        f"CREATE OR REPLACE FUNCTION holdfast.{called} RETURNS void "
        "LANGUAGE plpgsql AS $$ BEGIN PERFORM set_config('test.looked', 'yes', false); END $$".encode()
    )

    def looked() -> bool:
        begin(conn)
        other.execute(f"INSERT INTO holdfast.{table} {ENDED[table]}".encode())
        conn.execute(act.encode())
        output: str | None = number(conn, "SELECT current_setting('test.looked', true)")
        conn.execute("ROLLBACK")
        return output == "yes"

    assert not looked()
    look = f"EXISTS (SELECT FROM holdfast.{table} WHERE until > {{}})"
    open_trap(other, function, (look.format("clock"), look.format("now()")))
    assert looked()
