from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kit.databases import clone
from tests.kit.fixtures import app, ledger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.postgres import Server

__all__ = ["app", "ledger"]


@pytest.fixture(scope="module")
def database(server: Server, template: str) -> Iterator[str]:
    """One for all tests of a module: each looks at its own jobs only."""
    with clone(server, template) as url:
        yield url
