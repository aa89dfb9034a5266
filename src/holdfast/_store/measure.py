"""Statements that measure the speed of a server. They use no tables and leave nothing behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast._store.statement import nothing, statement

if TYPE_CHECKING:
    import psycopg

    from holdfast._store.statement import Statement

COMMITS = 100
"""The commits of one `commit_often`."""

# One round trip for many commits: the time is the server's, and not that of the network.
_COMMIT_OFTEN = f"""
    DO $$
    BEGIN
        FOR n IN 1..{COMMITS} LOOP
            PERFORM pg_catalog.pg_logical_emit_message(true, 'holdfast', 'x');
            COMMIT;
        END LOOP;
    END
    $$
"""


def spend_cpu() -> Statement[None]:
    """Compute on one core of the server for some tens of milliseconds."""
    return statement("spend_cpu", nothing)


def write_wal(size: int) -> Statement[None]:
    """Write this many bytes of WAL, in a message without a reader."""
    return statement("write_wal", nothing, bytes=size)


def commit_often(conn: psycopg.Connection[Any]) -> None:
    """Commit 100 transactions, each with a few bytes of WAL. The connection must be in autocommit mode."""
    conn.execute(_COMMIT_OFTEN.encode(), prepare=False)
