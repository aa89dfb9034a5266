"""Two sessions at once: started on signals, never on sleeps."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import psycopg

T = TypeVar("T")

GATE = 4_711


@contextmanager
def background(call: Callable[[], T]) -> Iterator[Future[T]]:
    """Run `call` in a thread of its own for as long as the block lasts."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(call)


def await_condition(conn: psycopg.Connection[Any], condition: str, *, seconds: int = 30) -> None:
    """Return when this expression of SQL is true; fail when it does not get true within the time."""
    conn.execute(
        f"""
        DO $$
        DECLARE
            deadline timestamptz := clock_timestamp() + interval '{seconds} seconds';
        BEGIN
            WHILE NOT ({condition}) LOOP
                ASSERT clock_timestamp() < deadline, 'not within {seconds} s';
                PERFORM pg_sleep(0.002);
            END LOOP;
        END $$
        """.encode()
    )


def await_waiting(conn: psycopg.Connection[Any], pid: int) -> None:
    """Return when session `pid` waits for a lock."""
    await_condition(conn, f"EXISTS (SELECT FROM pg_locks WHERE pid = {pid} AND NOT granted)")


def add_gate(conn: psycopg.Connection[Any], table: str = "job", *, event: str = "INSERT") -> None:
    """Let every such statement wait, its snapshot taken, while another session holds the gate."""
    conn.execute(
        f"CREATE FUNCTION public.wait_at_gate() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"PERFORM pg_advisory_xact_lock_shared({GATE}); RETURN NEW; END $$".encode()
    )
    conn.execute(
        f"CREATE TRIGGER gate BEFORE {event} ON holdfast.{table} FOR EACH STATEMENT "
        f"EXECUTE FUNCTION public.wait_at_gate()".encode()
    )


@contextmanager
def held_at_gate(
    keeper: psycopg.Connection[Any], user: psycopg.Connection[Any], call: Callable[[], T]
) -> Iterator[None]:
    """Let `call`, made on `user`, wait at the gate for as long as the block lasts; then let it go on to its end."""
    keeper.execute("SELECT pg_advisory_lock(%s)", [GATE])
    with background(call) as future:
        try:
            await_waiting(keeper, user.info.backend_pid)
            yield
        finally:
            keeper.execute("SELECT pg_advisory_unlock(%s)", [GATE])
        future.result(timeout=30)


@contextmanager
def held_snapshot(conn: psycopg.Connection[Any]) -> Iterator[None]:
    """Keep vacuum from removing anything that dies meanwhile."""
    conn.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    conn.execute("SELECT count(*) FROM holdfast.queue")
    try:
        yield
    finally:
        conn.execute("ROLLBACK")
