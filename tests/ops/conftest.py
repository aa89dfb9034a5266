from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.ops import Role, operations
from tests.kit.access import PATIENT, make_token
from tests.kit.archive import bucket, history, location, object_store
from tests.kit.databases import clone
from tests.kit.shop import Shop, fill

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from starlette.applications import Starlette

    from tools.postgres import Server

__all__ = ["bucket", "history", "location", "object_store"]


@pytest.fixture(scope="module")
def shop(server: Server, template: str) -> Iterator[Shop]:
    """A database of the module's own, with something of everything in it."""
    with clone(server, template) as url:
        yield fill(url)


@pytest.fixture(scope="module")
def tokens(shop: Shop) -> Mapping[Role, str]:
    return {role: make_token(shop.app.url, role, name=f"{role} ann") for role in Role}


@pytest.fixture
async def site(shop: Shop) -> AsyncIterator[Starlette]:
    site = operations(shop.app, timeout=PATIENT)
    yield site
    await site.state.operations.close()
