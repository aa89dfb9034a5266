from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast
from tests.engine.ledger import Ledger
from tools.nats import NatsServer

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def app(database: str) -> Holdfast:
    return Holdfast(database)


@pytest.fixture
def ledger(database: str) -> Iterator[Ledger]:
    with Ledger(database) as ledger:
        yield ledger


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A folder with the application `shop:app`."""
    shutil.copy(Path(__file__).with_name("shop.py"), tmp_path / "shop.py")
    return tmp_path


@pytest.fixture(scope="session")
def nats_server() -> Iterator[NatsServer]:
    with NatsServer(jetstream=True) as server:
        yield server
