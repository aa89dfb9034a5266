from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast import Holdfast
from holdfast._engine.wake import chains as chain_watch
from tests.engine.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from typing import Any


@pytest.fixture
def app(database: str) -> Holdfast:
    return Holdfast(database)


@pytest.fixture
def ledger(database: str) -> Iterator[Ledger]:
    with Ledger(database) as ledger:
        yield ledger


@pytest.fixture
async def conn(database: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        yield conn


@pytest.fixture
def seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switch polling off for a minute, so that a missing notification is noticed."""
    monkeypatch.setattr(chain_watch, "RENEW", 60.0)
    monkeypatch.setattr(chain_watch, "STATEMENT_SECONDS", 120.0)
