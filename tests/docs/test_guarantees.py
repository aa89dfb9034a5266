"""Each row of the guarantees names the test that shows it, in a comment that the site does not show."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from tests.docs.block import ROOT

LINES = (ROOT / "docs/explanation/guarantees.md").read_text("utf-8").splitlines()
ROWS = [line for line, below in pairwise(LINES) if line.startswith("| ") and not below.startswith("|---")]
MARK = re.compile(r"<!-- (?P<file>\S+)::(?P<name>\w+) -->")


@pytest.mark.parametrize("row", ROWS, ids=[" ".join(row.split()[1:5]) for row in ROWS])
def test_a_promise_names_the_test_that_shows_it(row: str) -> None:
    mark = MARK.search(row)
    assert mark is not None, "name a test: <!-- engine/test_zombie.py::test_… -->"
    assert f"def {mark['name']}(" in (ROOT / "tests" / mark["file"]).read_text("utf-8")
