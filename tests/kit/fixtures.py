"""Fixtures that the folders of tests take into their conftest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast import Holdfast
from holdfast._store.schema import migrate
from tests.kit.ledger import Ledger
from tools.pgbouncer import PgBouncer
from tools.postgres import Server

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def app(database: str) -> Holdfast:
    return Holdfast(database)


@pytest.fixture
def ledger(database: str) -> Iterator[Ledger]:
    with Ledger(database) as ledger:
        yield ledger


@pytest.fixture(scope="module")
def own_server(server_version: int) -> Iterator[Server]:
    """A server that may be stopped; crash-safe, as what is enqueued must survive."""
    with Server(server_version, fsync="on", shared_buffers="32MB") as server:
        with psycopg.connect(server.url(), autocommit=True) as conn:
            migrate(conn)
        yield server


@pytest.fixture(scope="module")
def bouncer(server: Server) -> Iterator[PgBouncer]:
    with PgBouncer(server, pool_size=2) as bouncer:
        yield bouncer
