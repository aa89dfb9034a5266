from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kit.access import login, owner
from tests.kit.workers import Worker

if TYPE_CHECKING:
    from tests.kit.workers import Connect

__all__ = ["login", "owner"]


@pytest.fixture
def worker(connect: Connect) -> Worker:
    return Worker(connect())
