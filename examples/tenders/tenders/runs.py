"""The counts of each cycle: `worker_runs` has those of the runners, which Holdfast records, and those written here."""

from __future__ import annotations

from collections import Counter
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from holdfast.logs import mask

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tenders.app import Pool

_RECORD = """
INSERT INTO delivery_runs (cycle, started_at, finished_at, counts, error_message)
VALUES (%(cycle)s, %(started_at)s, now(), %(counts)s, %(error)s)
"""
_LIST = """
SELECT worker_name, started_at, finished_at, counts, error_message FROM worker_runs
WHERE %(name)s::text IS NULL OR worker_name = %(name)s ORDER BY started_at DESC LIMIT %(most)s
"""


@asynccontextmanager
async def recorded(pool: Pool, cycle: str) -> AsyncGenerator[Counter[str]]:
    """Record one call of a batch handler: its time, what was counted in the block, and its error."""
    started_at, error = datetime.now(UTC), None
    counts: Counter[str] = Counter()
    try:
        yield counts
    except Exception as exc:
        error = mask(f"{type(exc).__name__}: {exc}")[:500]
        raise
    finally:
        values = {"cycle": cycle, "started_at": started_at, "counts": Jsonb(counts), "error": error}
        async with pool.connection() as conn:
            await conn.execute(_RECORD, values)


async def newest(pool: Pool, *, name: str | None = None, limit: int) -> list[dict[str, Any]]:
    """Return the last runs, of one cycle or of all, the newest first."""
    async with pool.connection() as conn, conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(_LIST, {"name": name, "most": limit})
        return await cursor.fetchall()
