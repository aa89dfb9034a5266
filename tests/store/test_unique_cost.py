"""The cost of unique keys: a bulk enqueue grows only with its size, and windows that have ended are cheap to delete."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from holdfast._drivers import run_sync
from holdfast._engine.runner import Budget, Tick
from holdfast._engine.runners import maintenance
from holdfast._engine.runners.database import open_runner_database
from holdfast._engine.runners.maintenance import Maintenance
from holdfast._model.unique import Unique
from holdfast._store.maintenance import delete_windows
from holdfast._store.statement import statements
from labs.bench.cpu import cpu_seconds
from tests.kit.workers import enqueue, job, number

if TYPE_CHECKING:
    import psycopg
    import pytest

    from tests.kit.workers import Connect

MANY = 16_000


def cpu_of_bulk(conn: psycopg.Connection[Any], fields: str) -> float:
    """Return the processor time of the server for one enqueue of many jobs; `fields` may name the number."""
    jobs = ",".join(f'{{"kind": "a", "payload": {{"n": {n}}} {fields % n if fields else ""}}}' for n in range(MANY))
    before = cpu_seconds(conn.info.backend_pid)
    assert number(conn, "SELECT count(*) FROM holdfast.enqueue_jobs(%s)", f"[{jobs}]") == MANY
    return cpu_seconds(conn.info.backend_pid) - before


def test_a_unique_bulk_enqueue_costs_a_few_times_a_plain_one(connect: Connect) -> None:
    """When the cost grew with the square of the number, this many jobs cost eight times as much as plain ones."""
    conn = connect()
    plain = cpu_of_bulk(conn, "")
    unique = cpu_of_bulk(conn, ', "unique_key": "%d"')
    windowed = cpu_of_bulk(conn, ', "unique_key": "w%d", "unique_window_ms": 3600000')
    kept = cpu_of_bulk(conn, ', "unique_key": "%d"')
    assert (unique < 4 * plain, windowed < 6 * plain, kept < 4 * plain) == (True, True, True)


def test_a_key_without_a_window_does_not_touch_the_windows(connect: Connect) -> None:
    conn = connect()
    with conn.transaction():
        enqueue(conn, job(unique=Unique("a")))
        locked = "SELECT count(*) FROM pg_locks WHERE relation = 'holdfast.unique_window'::regclass"
        assert number(conn, locked) == 0


async def test_windows_are_deleted_an_hour_after_their_end(
    database: str, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "BATCH", 10)
    conn = connect()
    for window in (timedelta(hours=1), timedelta(days=31)):
        enqueue(conn, job(unique=Unique("live", window=window)))
    add_ended_windows(conn, 25)
    conn.execute("INSERT INTO holdfast.unique_window VALUES (now() - interval '50 minutes', 1, 'a', 'recent')")
    async with open_runner_database(database, name="test", seconds=60) as site:
        runner = Maintenance(site)
        assert await runner.tick(Tick(name="maintenance", budget=Budget())) == {"windows_deleted": 25}
        assert await runner.tick(Tick(name="maintenance", budget=Budget())) == {}
    assert number(conn, "SELECT count(*) FROM holdfast.unique_window") == 3


def test_deleting_windows_stays_cheap_under_a_held_snapshot(connect: Connect) -> None:
    conn, holder = connect(), connect()
    holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    holder.execute("SELECT pg_current_xact_id()")
    add_ended_windows(conn, 20_000)
    done = run_sync(conn, delete_windows(since=None, limit=20_000))
    assert done.rows == 20_000
    add_ended_windows(conn, 10, hours=1.5)
    assert buffers(conn, done.until) < 100
    # Without the bound every entry is visited that the snapshot keeps.
    add_ended_windows(conn, 10, hours=1.5)
    assert buffers(conn, None) > 200


def add_ended_windows(conn: psycopg.Connection[Any], count: int, hours: float = 2.0) -> None:
    conn.execute(
        "INSERT INTO holdfast.unique_window "
        "SELECT now() - %s * interval '1 hour' + n * interval '1 microsecond', n, 'k', 'a' "
        "FROM generate_series(1, %s::integer) AS n",
        [hours, count],
    )


def buffers(conn: psycopg.Connection[Any], since: datetime | None) -> int:
    """Return how many buffers a deletion that begins at `since` looks at."""
    (plan,) = conn.execute(
        f"EXPLAIN (ANALYZE, BUFFERS, FORMAT json) {statements()['delete_windows']}".encode(),
        {"since": "-infinity" if since is None else since.isoformat(), "limit": 10_000},
    ).fetchone() or ([],)
    top = plan[0]["Plan"]
    return int(top["Shared Hit Blocks"] + top["Shared Read Blocks"])
