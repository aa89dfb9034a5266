"""A table of the application, and the moves of its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._archive import moving
from holdfast.archive import Archive

if TYPE_CHECKING:
    from tests.kit.archive import History

TENDERS = Archive("tenders", "published_at", hot="12 months")


def fill(history: History, above: int, at: str, rows: int = 10) -> None:
    history.conn.execute(
        f"INSERT INTO tenders SELECT {above} + n, {at}, 'Tender ' || n FROM generate_series(1, {rows}) AS n".encode()
    )


async def move(history: History, archive: Archive = TENDERS, *, batch: int = 7, most: int | None = None) -> int:
    """Move rows in small batches. `most`: batches."""
    batches: list[int] = []
    async with history.connected() as conn:
        return await moving.move(
            conn, archive, on_moved=batches.append, stopped=lambda: len(batches) == most, batch=batch
        )


def months(history: History, name: str = "tenders") -> dict[str, int]:
    """Return the number of rows by the name of the partition."""
    query = f'SELECT tableoid::regclass::text, count(*) FROM archive."{name}" GROUP BY 1 ORDER BY 1'
    return dict(history.conn.execute(query.encode()).fetchall())


def count(history: History, table: str) -> int:
    return int(history.value(f"SELECT count(*) FROM {table}"))


def ready(history: History) -> None:
    """Let the time end for which months are kept."""
    history.conn.execute("UPDATE holdfast.archive_exports SET drop_eligible_at = now() WHERE state = 'verified'")
