from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.kit.fixtures import app, ledger
from tests.kit.nats import nats_server

__all__ = ["app", "ledger", "nats_server"]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A folder with the application `shop:app`."""
    shutil.copy(Path(__file__).with_name("shop.py"), tmp_path / "shop.py")
    return tmp_path
