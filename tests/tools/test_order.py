"""Long tests come first in the part of each process, and every test stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.order import LONG, long_first

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", LONG)
def test_a_long_file_or_folder_exists(name: str) -> None:
    assert (ROOT / name).exists()


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_each_process_begins_with_its_share(processes: int) -> None:
    items = ["a1", "x1", "b1", "a2", "x2", "y1", "z1", "z2", "c1", "y2", "y3", "y4"]
    ordered = long_first(items, lambda item: item[0], ("x", "y", "z"), processes=processes)
    assert sorted(ordered) == sorted(items)
    size = len(items) // processes
    parts = [ordered[size * number : size * (number + 1)] for number in range(processes)]
    assert [part[0] for part in parts] == ["x1", "y1", "z1"][:processes]
    assert [item for item in ordered if item[0] in "abc"] == ["a1", "b1", "a2", "c1"], "the others keep their order"
    assert [item for item in ordered if item[0] == "y"] == ["y1", "y2", "y3", "y4"], "and so do those of a file"


def test_without_long_files_nothing_changes() -> None:
    assert long_first([3, 1, 2], str, ("x",), processes=2) == [3, 1, 2]
