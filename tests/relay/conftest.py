from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.kit.nats import nats_server, stream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.kit.nats import Stream
    from tools.nats import NatsServer

__all__ = ["nats_server"]


@pytest.fixture
async def conn(database: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        yield conn


@pytest.fixture
async def shop(nats_server: NatsServer) -> AsyncIterator[Stream]:
    """A stream of everything under `shop.`."""
    async with stream(nats_server, "shop", "shop.>") as made:
        yield made
