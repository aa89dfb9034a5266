"""Above each function of the schema stands what calls it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tools.callers import SCHEMA, callers, with_callers

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("path", sorted(SCHEMA.glob("*.sql")), ids=lambda path: path.stem)
def test_each_function_names_its_callers(path: Path) -> None:
    assert path.read_text() == with_callers(path.read_text(), callers()), "python -m tools.callers --write"
