"""Opening a trap: a function of the schema is replaced by one in which the mistake has been made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg


def open_trap(conn: psycopg.Connection[Any], function: str, *changes: tuple[str, str]) -> None:
    """Replace texts in the definition of `function`; each must be there exactly once, or the test says nothing."""
    row = conn.execute("SELECT pg_get_functiondef(%s::regproc)", [f"holdfast.{function}"]).fetchone()
    assert row is not None
    definition: str = row[0]
    for old, new in changes:
        assert definition.count(old) == 1, f"{function} has {definition.count(old)} times: {old}"
        definition = definition.replace(old, new)
    conn.execute(definition.encode())


def forget_settings(conn: psycopg.Connection[Any], function: str, *settings: str) -> None:
    """Take planner settings away from a function; all of them when none is named."""
    row = conn.execute(
        "SELECT oid::regprocedure::text, proconfig FROM pg_proc WHERE oid = %s::regproc", [f"holdfast.{function}"]
    ).fetchone()
    assert row is not None
    signature, given = row
    names = {setting.partition("=")[0] for setting in given or ()}
    assert names.issuperset(settings), f"{function} sets {names}"
    for setting in settings or names:
        conn.execute(f"ALTER FUNCTION {signature} RESET {setting}".encode())


def let_claims_take_their_time(conn: psycopg.Connection[Any]) -> None:
    """On a machine that stands still for a moment a claim comes back early, with what it has: not here."""
    open_trap(conn, "claim_jobs", ("interval '200 milliseconds'", "interval '1 minute'"))
