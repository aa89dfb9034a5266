"""An outbox as the documents have it, and what has become of its rows."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

from tests.kit.commands import environment
from tests.kit.sessions import await_condition

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import psycopg

    Connect = Callable[..., psycopg.Connection[Any]]

TABLE = "event_outbox"
# The command for this table.
SOURCE = ("--table", TABLE, "--type", "event_type", "--where", "status=pending")
SHIP = ("--map", "order.placed=order.ship")

_TABLE = """
CREATE TABLE event_outbox (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_type      text NOT NULL,
    aggregate_id    text,
    payload         jsonb NOT NULL,
    status          text NOT NULL DEFAULT 'pending',
    attempts        integer NOT NULL DEFAULT 0,
    next_attempt_at timestamptz NOT NULL DEFAULT now(),
    locked_until    timestamptz,
    lock_token      uuid,
    last_error      text,
    created_at      timestamptz NOT NULL DEFAULT now(),
    sent_at         timestamptz
)
"""


def make_outbox(conn: psycopg.Connection[Any], rows: int = 0) -> None:
    """Create the table, with so many orders that wait."""
    conn.execute(_TABLE)
    add(conn, rows)


def add(conn: psycopg.Connection[Any], rows: int) -> None:
    conn.execute(
        "INSERT INTO event_outbox (event_type, aggregate_id, payload) SELECT 'order.placed', (n %% 7)::text,"
        " jsonb_build_object('order_id', n) FROM generate_series(1, %s) AS n",
        [rows],
    )


def statuses(conn: psycopg.Connection[Any]) -> dict[str, int]:
    return dict(conn.execute("SELECT status, count(*) FROM event_outbox GROUP BY 1").fetchall())


def jobs(conn: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    """Kind, payload, order key and the row of every job, in the order of enqueueing."""
    return conn.execute(
        "SELECT kind, payload, order_key, headers ->> 'imported-from' FROM holdfast.job ORDER BY id"
    ).fetchall()


def imported(conn: psycopg.Connection[Any]) -> list[str]:
    """The rows of the outbox that have a job, once for each job, in the order of the rows."""
    found = conn.execute("SELECT headers ->> 'imported-from' FROM holdfast.job").fetchall()
    return sorted((text for (text,) in found), key=lambda text: int(text.rpartition(" ")[2]))


def exactly(rows: int) -> list[str]:
    return [f"public.{TABLE} {n}" for n in range(1, rows + 1)]


def hold_batches(conn: psycopg.Connection[Any], *batches: int) -> None:
    """Let each of these batches, counted over all imports, wait within its transaction until `release_batch`."""
    conn.execute("CREATE SEQUENCE batch")
    conn.execute(
        f"CREATE FUNCTION public.on_batch() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE n bigint := "
        f"nextval('public.batch'); BEGIN IF n IN ({', '.join(map(str, batches))}) THEN "
        f"PERFORM pg_advisory_xact_lock_shared(n); END IF; RETURN NULL; END $$".encode()
    )
    conn.execute(
        "CREATE TRIGGER batch AFTER INSERT ON holdfast.imported FOR EACH STATEMENT EXECUTE FUNCTION public.on_batch()"
    )
    for batch in batches:
        conn.execute("SELECT pg_advisory_lock(%s)", [batch])


def await_batch(conn: psycopg.Connection[Any], batch: int) -> None:
    """Return when this batch waits."""
    waits = f"SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = {batch} AND NOT granted"
    await_condition(conn, f"EXISTS ({waits})", seconds=60)


def release_batch(conn: psycopg.Connection[Any], batch: int) -> None:
    conn.execute("SELECT pg_advisory_unlock(%s)", [batch])


def start(*arguments: str, database: str, cwd: Path) -> subprocess.Popen[str]:
    """Start the command in a process that can be killed."""
    return subprocess.Popen(  # noqa: S603 - the command under test
        [sys.executable, "-m", "holdfast", "import-outbox", *arguments],
        cwd=cwd,
        env=environment(database),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
