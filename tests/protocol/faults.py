"""Faults in the store: after each statement of each of its functions, and at each row it writes, it may break."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg

_TABLES = ("job", "job_history", "job_failed", "attempt", "tally", "blocker", "order_stop")
# Dies when the number of points that are left has come to nothing.
_FAULT = """
CREATE FUNCTION public.fault() RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    points integer := nullif(current_setting('fault.points', true), '')::integer;
BEGIN
    IF points IS NULL THEN
        RETURN true;
    ELSIF points > 1 THEN
        PERFORM set_config('fault.points', (points - 1)::text, false);
    ELSIF current_setting('fault.how') = 'raise' THEN
        RAISE EXCEPTION 'broken' USING ERRCODE = 'XX000';
    ELSE
        PERFORM pg_terminate_backend(pg_backend_pid());
        PERFORM pg_sleep(10);
    END IF;
    RETURN true;
END $$;
CREATE FUNCTION public.fault_at_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM public.fault();
    RETURN coalesce(NEW, OLD);
END $$;
"""
_FUNCTIONS = """
SELECT pg_get_functiondef(p.oid) FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
WHERE p.pronamespace = 'holdfast'::regnamespace AND l.lanname = 'plpgsql'
"""
_MARK = re.compile(r"--[^\n]*|'(?:[^']|'')*'|\$\w*\$|\bBEGIN\b|[();]")


def add_faults(conn: psycopg.Connection[Any]) -> None:
    """Let the store break where `break_at` says."""
    conn.execute(_FAULT)
    for (definition,) in conn.execute(_FUNCTIONS).fetchall():
        conn.execute(_with_faults(definition).encode())
    for table in _TABLES:
        conn.execute(
            f"CREATE TRIGGER fault BEFORE INSERT OR UPDATE OR DELETE ON holdfast.{table} "
            "FOR EACH ROW EXECUTE FUNCTION public.fault_at_row()".encode()
        )


def break_at(conn: psycopg.Connection[Any], point: int | None, how: str = "raise") -> None:
    """Let this session break at the point of this number, from 1; None: nowhere. `how`: raise, or die."""
    conn.execute(
        "SELECT set_config('fault.points', %s, false), set_config('fault.how', %s, false)", [str(point or ""), how]
    )


def _with_faults(definition: str) -> str:
    """Put a point behind the first BEGIN and every statement: an ASSERT, which leaves FOUND and ROW_COUNT alone."""
    made: list[str] = []
    end, depth, begun, quotes = 0, 0, False, 0
    for match in _MARK.finditer(definition):
        found = match[0]
        made.append(definition[end : match.end()])
        end = match.end()
        quotes += found.startswith("$")
        if quotes != 1:
            continue
        depth += {"(": 1, ")": -1}.get(found, 0)
        if (found == "BEGIN" and not begun) or (found == ";" and begun and depth == 0):
            begun = True
            made.append(" ASSERT public.fault();")
    return "".join(made) + definition[end:]
