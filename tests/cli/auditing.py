"""Reads the audit table."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg

ME = f"cli:{pwd.getpwuid(os.getuid()).pw_name}"


def audited(conn: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    """Every line, the oldest first: who, what, to what, to how many jobs."""
    return conn.execute("SELECT who, action, target, jobs FROM holdfast.audit ORDER BY id").fetchall()
