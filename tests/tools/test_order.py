"""Long tests come first, those of a file stay together, and every test stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.order import LONG, groups, place
from tests.kit.share import share

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", LONG)
def test_a_long_file_or_folder_exists(name: str) -> None:
    assert (ROOT / name).exists()


def test_long_files_come_first_and_the_tests_of_a_place_stay_together() -> None:
    assert groups(["a", LONG[1], "b", LONG[0], "a", LONG[1]]) == [[3], [1, 5], [0, 4], [2]]


def test_the_place_of_a_test_is_its_file(request: pytest.FixtureRequest) -> None:
    assert place(request.node) == "tests/tools/test_order.py"


@pytest.mark.group("of its own")
def test_the_place_of_a_test_is_its_group(request: pytest.FixtureRequest) -> None:
    assert place(request.node) == "of its own"


@pytest.mark.parametrize("of", [1, 2, 3])
def test_every_test_is_in_one_share_whatever_the_order(of: int) -> None:
    places = ["a", LONG[1], "b", LONG[0], "a", "c"]
    shares = [share(places, number, of) for number in range(1, of + 1)]
    assert sorted(name for one in shares for name in one) == sorted(set(places))
    assert shares == [share(reversed(places), number, of) for number in range(1, of + 1)]
    assert LONG[0] in shares[0]
    assert LONG[1] in shares[1 % of], "the long ones are dealt"
