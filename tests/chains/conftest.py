from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast._engine.wake import chains as chain_watch
from tests.kit.fixtures import app, bouncer, ledger, own_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import Any

__all__ = ["app", "bouncer", "ledger", "own_server"]


@pytest.fixture
async def conn(database: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        yield conn


@pytest.fixture
def seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switch polling off for a minute, so that a missing notification is noticed."""
    monkeypatch.setattr(chain_watch, "RENEW", 60.0)
    monkeypatch.setattr(chain_watch, "STATEMENT_SECONDS", 120.0)
