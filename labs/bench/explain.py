"""The buffers and rows that a statement touched, as the server counted them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast._store.statement import Row, Statement


@dataclass(frozen=True, slots=True)
class Touched:
    """Counts of one statement, with everything that the functions it called did."""

    rows: int
    buffers: int
    """Pages of tables and indexes looked at, cached or not."""
    wal_bytes: int


def explained(statement: Statement[Any]) -> Statement[Touched]:
    """Return the statement that runs this one and answers what it touched."""
    options = "ANALYZE, BUFFERS, WAL, TIMING OFF, FORMAT JSON"
    return statement._replace(sql=f"EXPLAIN ({options}) {statement.sql}", read=_read)


def _read(rows: Sequence[Row]) -> Touched:
    plan: dict[str, Any] = rows[0][0][0]["Plan"]
    return Touched(
        int(plan["Actual Rows"]), plan["Shared Hit Blocks"] + plan["Shared Read Blocks"], plan.get("WAL Bytes", 0)
    )
