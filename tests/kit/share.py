"""A plugin of pytest: `--share 1/2` runs the first of two shares of the suite, for machines side by side.

The tests of a file are in one share, and the long ones are dealt first. It is the same share in every order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kit.order import LONG, place

if TYPE_CHECKING:
    from collections.abc import Iterable


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--share", metavar="N/M", help="run the Nth of M shares of the tests")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted: str | None = config.getoption("--share", None)
    if wanted is None:
        return
    number, _, of = wanted.partition("/")
    if not (number.isdigit() and of.isdigit() and 1 <= int(number) <= int(of)):
        raise pytest.UsageError(f"--share: expected a share such as 1/2, got {wanted}")
    chosen = share(map(place, items), int(number), int(of))
    config.hook.pytest_deselected(items=[item for item in items if place(item) not in chosen])
    items[:] = [item for item in items if place(item) in chosen]


def share(places: Iterable[str], number: int, of: int) -> set[str]:
    """Return the files and folders of a share; the first has the number 1."""
    ordered = sorted(set(places), key=lambda name: (LONG.index(name) if name in LONG else len(LONG), name))
    return set(ordered[number - 1 :: of])
