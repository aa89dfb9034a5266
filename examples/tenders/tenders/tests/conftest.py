from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import httpx
import psycopg
import pytest

from holdfast.testing import Testing
from tenders.app import State, app, open_pool
from tenders.config import Config
from tenders.expo import Expo
from tenders.local.server import LocalServer, variables
from tenders.migrate import migrate
from tests.kit.databases import administered, clone
from tools.postgres import Server
from tools.seaweedfs import SeaweedFS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

TEMPLATE = "tenders_template"


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    version = int(os.environ.get("HOLDFAST_TEST_POSTGRES", "15"))
    with Server(version, autovacuum="off") as server, administered(server):
        yield server


@pytest.fixture(scope="session")
def template(postgres: Server) -> str:
    with psycopg.connect(postgres.url(), autocommit=True) as conn:
        conn.execute(f"CREATE DATABASE {TEMPLATE}")
    migrate(postgres.url(TEMPLATE))
    return TEMPLATE


@pytest.fixture
def database(postgres: Server, template: str) -> Iterator[str]:
    with clone(postgres, template) as url:
        yield url


@pytest.fixture(scope="session")
def objects() -> Iterator[SeaweedFS]:
    with SeaweedFS() as server:
        yield server


@pytest.fixture
async def conn(database: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        yield conn


@pytest.fixture
def local() -> LocalServer:
    """The market and the provider, in this process."""
    return LocalServer(seed=7)


@pytest.fixture
async def state(database: str, local: LocalServer) -> AsyncIterator[State]:
    config = Config.load({"HOLDFAST_DATABASE_URL": database, **variables("http://local")})
    async with open_pool(config) as pool, httpx.AsyncClient(transport=httpx.ASGITransport(local.web)) as http:
        yield State(config, pool, http, Expo(http, config))


@pytest.fixture
def kit(conn: psycopg.AsyncConnection[Any], state: State) -> Testing:
    return Testing(app, conn, state=state)
