"""The Holdfast application: what its handlers share, and which tables are archived."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import httpx
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from holdfast import Holdfast
from holdfast.archive import Archive
from tenders.config import Config, set_nights
from tenders.expo import Expo

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tenders.push import PushProvider

Connection: TypeAlias = AsyncConnection[tuple[Any, ...]]
Pool: TypeAlias = AsyncConnectionPool[Connection]


@dataclass(frozen=True)
class State:
    """The parts that all handlers of a process share."""

    config: Config
    pool: Pool
    http: httpx.AsyncClient
    push: PushProvider


def open_pool(config: Config) -> Pool:
    """Return a pool to use with `async with`. Outside of a transaction block, each statement commits by itself."""
    config.required("database_url")
    return AsyncConnectionPool(
        config.database_url, min_size=1, max_size=4, open=False, kwargs={"autocommit": True}, timeout=10
    )


@asynccontextmanager
async def lifespan(_: Holdfast) -> AsyncGenerator[State]:
    config.required("api_url", "page_url", "expo_url")
    timeout = config.http_timeout.total_seconds()
    async with open_pool(config) as pool, httpx.AsyncClient(timeout=timeout) as http:
        yield State(config, pool, http, Expo(http, config))


config = Config.load(os.environ)
# Every process that runs a worker or a tick of this application imports it before Holdfast reads its settings.
set_nights(os.environ)

app = Holdfast(
    config.database_url or None,
    lifespan=lifespan,
    imports=["tenders.chain", "tenders.ingest", "tenders.stranded"],
    # A row stays while another one refers to it. So an event leaves after its deliveries, and a tender after its event.
    archives=[
        Archive("licitaciones", "created_at", hot=f"{config.hot_months} months"),
        Archive("notification_events", "created_at", hot=f"{config.hot_months} months"),
        Archive(
            "notification_deliveries",
            "completed_at",
            hot=f"{config.delivery_days} days",
            where="status IN ('ok', 'failed', 'invalid')",
        ),
        Archive("delivery_runs", "started_at", hot=f"{config.delivery_days} days"),
    ],
)
