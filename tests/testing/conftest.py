from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import Holdfast
from holdfast.testing import Testing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
def app() -> Holdfast:
    return Holdfast()


@pytest.fixture
async def conn(database: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """One connection, one transaction, rolled back at the end: nothing a test does is ever committed."""
    async with await psycopg.AsyncConnection.connect(database) as conn:
        async with conn.transaction(force_rollback=True):
            yield conn
        left = await (await conn.execute("SELECT count(*) FROM holdfast.job")).fetchone()
        assert left == (0,)


@pytest.fixture
def kit(app: Holdfast, conn: psycopg.AsyncConnection[Any]) -> Testing:
    return Testing(app, conn)
