"""The cost and the plan of a call, nested statements included."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import psycopg

    from holdfast._store.statement import Statement


def buffers(conn: psycopg.Connection[Any], statement: Statement[Any], *, keep: bool = False) -> int:
    """Return how many pages the call touches once catalogs and plans are cached; it is rolled back unless `keep`."""
    if keep:
        return _buffers(conn, statement)
    return min(_rolled_back(conn, statement) for _ in range(3))


def _rolled_back(conn: psycopg.Connection[Any], statement: Statement[Any]) -> int:
    with conn.transaction(force_rollback=True):
        return _buffers(conn, statement)


def _buffers(conn: psycopg.Connection[Any], statement: Statement[Any]) -> int:
    query = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement.sql}".encode()
    row = conn.execute(query, statement.params).fetchone()
    assert row is not None
    plan = row[0][0]["Plan"]
    return sum(int(plan[f"Shared {how} Blocks"]) for how in ("Hit", "Read"))


def table_scans(conn: psycopg.Connection[Any], table: str, call: Callable[[], object]) -> int:
    """Return how often the call read the whole table from end to end."""
    with conn.transaction():
        before = _scans(conn, table)
        call()
        return _scans(conn, table) - before


def _scans(conn: psycopg.Connection[Any], table: str) -> int:
    row = conn.execute("SELECT seq_scan FROM pg_stat_xact_user_tables WHERE relid = %s::regclass", [table]).fetchone()
    return int(row[0] or 0) if row else 0


@contextmanager
def explained(conn: psycopg.Connection[Any]) -> Iterator[list[str]]:
    """Collect the plan of every statement the connection runs meanwhile, those inside functions too."""
    plans: list[str] = []

    def collect(notice: psycopg.errors.Diagnostic) -> None:
        if notice.message_primary and "plan:" in notice.message_primary:
            plans.append(notice.message_primary)

    conn.execute("LOAD 'auto_explain'")
    conn.execute("SET auto_explain.log_nested_statements = on")
    conn.execute("SET auto_explain.log_analyze = on")
    conn.execute("SET auto_explain.log_timing = off")
    conn.execute("SET client_min_messages = log")
    conn.execute("SET auto_explain.log_min_duration = 0")
    conn.add_notice_handler(collect)
    try:
        yield plans
    finally:
        conn.remove_notice_handler(collect)
        conn.execute("SET auto_explain.log_min_duration = -1")
        conn.execute("SET client_min_messages = notice")
