"""The rows that exports write one after another while a worker runs beside them."""

from __future__ import annotations

import pytest

from labs.bench.archive import RowsExported

pytestmark = pytest.mark.nightly


def test_rows_of_exports_one_after_another_are_counted_once() -> None:
    exported = RowsExported()
    for rows in (40, 80, 80, 100, 30, 60, 100, 100, 20):
        exported.report(rows)
    assert exported.total == 100 + 100 + 20
