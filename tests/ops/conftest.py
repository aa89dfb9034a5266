from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast._drivers import run_sync
from holdfast._ops.caller import Token
from holdfast._store.access import make_access_token
from holdfast.ops import Role, operations
from tests.archive.conftest import bucket, history, location, object_store
from tests.databases import clone
from tests.ops.shop import Shop, fill

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from starlette.applications import Starlette

    from tools.postgres import Server

__all__ = ["bucket", "history", "location", "object_store"]  # fixtures, for the tests of this folder too

PATIENT = timedelta(seconds=20)
"""For a machine that is busy with something else."""


def make_token(url: str, role: str, *, name: str | None = None, days: float | None = 1.0) -> str:
    """Return a new token. Without a `name`, it has one that no other has."""
    token = Token.new()
    name = name or f"{role} ann {token.key}"
    with psycopg.connect(url) as conn:
        run_sync(conn, make_access_token(token.key, name=name, role=role, digest=token.digest, days=days))
    return token.text


@pytest.fixture(scope="module")
def shop(server: Server, template: str) -> Iterator[Shop]:
    """A database of the module's own, with something of everything in it."""
    with clone(server, template) as url:
        yield fill(url)


@pytest.fixture(scope="module")
def tokens(shop: Shop) -> Mapping[Role, str]:
    assert shop.app.url is not None
    return {role: make_token(shop.app.url, role, name=f"{role} ann") for role in Role}


@pytest.fixture
async def site(shop: Shop) -> AsyncIterator[Starlette]:
    site = operations(shop.app, timeout=PATIENT)
    yield site
    await site.state.operations.close()
