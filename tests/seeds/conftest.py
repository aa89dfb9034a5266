from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast
from tests.databases import clone
from tests.engine.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.postgres import Server


@pytest.fixture(scope="module")
def database(server: Server, template: str) -> Iterator[str]:
    """One for all tests of a module: each looks at its own jobs only."""
    with clone(server, template) as url:
        yield url


@pytest.fixture
def app(database: str) -> Holdfast:
    return Holdfast(database)


@pytest.fixture
def ledger(database: str) -> Iterator[Ledger]:
    with Ledger(database) as ledger:
        yield ledger
