from __future__ import annotations

import pytest

from tests.drivers.jobs import create_invoices


@pytest.fixture
def database(database: str) -> str:
    create_invoices(database)
    return database
