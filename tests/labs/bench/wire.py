"""Counting what a connection sends, from libpq's own record of the messages."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from psycopg import pq

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

_STARTS_A_STATEMENT = {"Execute", "Query", "FunctionCall"}


class Wire:
    def __init__(self) -> None:
        self.sent: list[str] = []

    @property
    def calls(self) -> int:
        """How many statements the server was asked to execute, transaction control included."""
        return sum(message in _STARTS_A_STATEMENT for message in self.sent)

    @property
    def round_trips(self) -> int:
        return sum(message in {"Sync", "Query"} for message in self.sent)


@contextmanager
def recorded(conn: psycopg.Connection[Any]) -> Iterator[Wire]:
    wire = Wire()
    with tempfile.TemporaryFile("w+") as file:
        conn.pgconn.trace(file.fileno())
        conn.pgconn.set_trace_flags(pq.Trace.SUPPRESS_TIMESTAMPS)
        try:
            yield wire
        finally:
            conn.pgconn.untrace()
        file.seek(0)
        fields = [line.split("\t") for line in file if line.strip()]
    wire.sent += [field[2].strip() for field in fields if field[0] == "F"]
