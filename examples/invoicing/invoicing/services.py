"""The parts that requests and jobs share. Each process opens them once."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

from .config import Config
from .mail import Mailer
from .pdf import Printer
from .storage import Storage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


@dataclass(frozen=True)
class Services:
    config: Config
    sessions: async_sessionmaker[AsyncSession]
    storage: Storage
    mailer: Mailer
    printer: Printer


@asynccontextmanager
async def open_sessions(database_url: str) -> AsyncGenerator[async_sessionmaker[AsyncSession], None]:
    engine = create_async_engine(make_url(database_url).set(drivername="postgresql+psycopg"))
    try:
        yield async_sessionmaker(engine, expire_on_commit=False)
    finally:
        await engine.dispose()


@asynccontextmanager
async def open_services(_app: object = None) -> AsyncGenerator[Services, None]:
    """Open what the environment names: the lifespan of a worker, and a part of the web application's."""
    config = Config.read(os.environ)
    async with open_sessions(config.database_url) as sessions, Printer(config.chromium) as printer:
        yield Services(
            config=config,
            sessions=sessions,
            storage=Storage(config.bucket, config.store_endpoint),
            mailer=Mailer(config.smtp),
            printer=printer,
        )
