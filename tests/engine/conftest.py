from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast
from tests.engine.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def app(database: str) -> Holdfast:
    return Holdfast(database)


@pytest.fixture
def ledger(database: str) -> Iterator[Ledger]:
    with Ledger(database) as ledger:
        yield ledger
