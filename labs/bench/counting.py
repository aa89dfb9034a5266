"""Counts the rows that statements of the operations application touch: each is explained before it is run."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast._drivers import run
from holdfast._ops.pool import Transaction
from holdfast._store.statement import statements

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import psycopg

    from holdfast._store.statement import Row, Statement

T = TypeVar("T")

# So few rows may be read from end to end: they are not many times what a search looks at.
SMALL = 200_000

# Read within a transaction, by whatever it called: functions included.
_SCANNED = """
    SELECT coalesce(sum(seq_tup_read), 0)::bigint FROM pg_stat_xact_user_tables
    WHERE schemaname = 'holdfast' AND relname ~ '^job(_history_|_failed_|$)'
"""


@dataclass(frozen=True, slots=True)
class Explained:
    name: str
    params: dict[str, Any]
    plan: dict[str, Any]
    scanned: int
    """Rows of jobs that were read by sequential scans."""

    @property
    def buffers(self) -> int:
        """Pages looked at, cached or not, to plan it and to run it."""
        parts = (self.plan["Plan"], self.plan.get("Planning", {}))
        return sum(part.get(f"Shared {how} Blocks", 0) for part in parts for how in ("Hit", "Read"))

    @property
    def milliseconds(self) -> float:
        return float(self.plan["Planning Time"]) + float(self.plan["Execution Time"])


@dataclass(slots=True)
class Count:
    """The statements of one call."""

    statements: list[Explained] = field(default_factory=list)
    census: list[Explained] = field(default_factory=list)
    """Statements that count live jobs from time to time, for all callers."""

    @property
    def buffers(self) -> int:
        return sum(one.buffers for one in self.statements)

    @property
    def scanned(self) -> int:
        return sum(one.scanned for one in self.statements if one.scanned > SMALL)


@contextmanager
def counting() -> Iterator[Count]:
    """Count the statements within the block. No other code in the process may run statements meanwhile."""
    count = Count()
    names = {sql: name for name, sql in statements().items()}
    run = Transaction.run

    async def explain(transaction: Transaction, statement: Statement[T]) -> T:
        name = names.get(statement.sql, "?")
        found = await _explained(transaction._conn, name, statement)
        (count.census if name == "take_census" else count.statements).append(found)
        return await run(transaction, statement)

    Transaction.run = explain  # type: ignore[method-assign, assignment]
    try:
        yield count
    finally:
        Transaction.run = run  # type: ignore[method-assign]


async def _explained(conn: psycopg.AsyncConnection[Any], name: str, statement: Statement[Any]) -> Explained:
    """Run it once and take that back: what it does is done when it is run in earnest."""
    before = await _scanned(conn)
    options = "ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON"
    question: Statement[dict[str, Any]] = statement._replace(sql=f"EXPLAIN ({options}) {statement.sql}", read=_plan)
    async with conn.transaction(force_rollback=True):
        plan = await run(conn, question)
    return Explained(name, dict(statement.params), plan, await _scanned(conn) - before)


async def _scanned(conn: psycopg.AsyncConnection[Any]) -> int:
    cursor = await conn.execute(_SCANNED)
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


def _plan(rows: Sequence[Row]) -> dict[str, Any]:
    plan: dict[str, Any] = rows[0][0][0]
    return plan
