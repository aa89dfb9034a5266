from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.kit.archive import bucket, history, location, object_store, tenders
from tests.kit.fixtures import ledger

__all__ = [
    "bucket",
    "history",
    "ledger",
    "location",
    "object_store",
    "tenders",
]  # fixtures, for the tests of this folder too


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A folder with the applications `shop:app`, `outbox_shop:app`, `cycles:app` and `cycles:failing`."""
    for name in ("shop.py", "outbox_shop.py", "cycles.py"):
        shutil.copy(Path(__file__).with_name(name), tmp_path / name)
    return tmp_path
