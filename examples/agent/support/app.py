"""The application: what its handlers share, and the message that they wait for."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from holdfast import Holdfast

Connection: TypeAlias = AsyncConnection[tuple[Any, ...]]
Pool: TypeAlias = AsyncConnectionPool[Connection]


@dataclass(frozen=True)
class Approval:
    approved: bool
    by: str


@asynccontextmanager
async def lifespan(app: Holdfast) -> AsyncGenerator[Pool]:
    async with AsyncConnectionPool[Connection](app.url, min_size=1, max_size=4, open=False) as pool:
        yield pool


app = Holdfast(os.environ.get("DATABASE_URL"), lifespan=lifespan)

approval = app.message("approval", Approval)
