"""A plugin of pytest: `--whole "model lab"` leaves out what is marked nightly, except in these parts of the check.

`--part lab` runs what that part proves, and nothing else. The parts are those of tools/parts.toml. Without either
option, every test runs.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from tools.parts import ROOT, parts

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_WHOLE_FILE = re.compile(r"^pytestmark = pytest\.mark\.nightly$", re.MULTILINE)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--whole", metavar="NAMES", help="leave out what is marked nightly, except in these parts")
    parser.addoption("--part", metavar="NAME", help="run what is marked nightly in this part")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import a file of which no test would run."""
    whole: str | None = config.getoption("--whole", None)
    if whole is None or not collection_path.name.startswith("test_") or not collection_path.is_relative_to(ROOT):
        return None
    is_nightly = _WHOLE_FILE.search(collection_path.read_text("utf-8")) is not None
    part = part_of(collection_path.relative_to(ROOT).as_posix()) if is_nightly else None
    return True if is_nightly and part not in whole.split() else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    whole: str | None = config.getoption("--whole", None)
    part: str | None = config.getoption("--part", None)
    if part is not None:
        kept = [item for item in items if _nightly(item) is not None and part_of(item.nodeid) == part]
    elif whole is not None:
        _check(items)
        kept = [item for item in items if _is_daily(item) or part_of(item.nodeid) in whole.split()]
    else:
        return
    chosen = set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = kept


@cache
def part_of(name: str) -> str | None:
    """Return the part to which this file or test belongs: that which names its place most closely."""
    found = [
        (len(place), part.name)
        for part in parts().values()
        for place in part.tests
        if name == place or name.startswith((f"{place}/", f"{place}::"))
    ]
    return max(found)[1] if found else None


def _nightly(item: pytest.Item) -> Any:
    return item.get_closest_marker("nightly")


def _is_daily(item: pytest.Item) -> bool:
    marker = _nightly(item)
    return marker is None or _parameters(item) in marker.kwargs.get("daily", ())


def _parameters(item: pytest.Item) -> str | None:
    callspec = getattr(item, "callspec", None)
    return None if callspec is None else callspec.id


def _check(items: Iterable[pytest.Item]) -> None:
    """Every long test belongs to a part, and what is to run every day is there."""
    daily: dict[str, set[str]] = {}
    for item in items:
        if (marker := _nightly(item)) is None:
            continue
        if part_of(item.nodeid) is None:
            raise pytest.UsageError(f"{item.nodeid} is marked nightly, and no part of tools/parts.toml has it")
        missing = daily.setdefault(item.nodeid.partition("[")[0], set(marker.kwargs.get("daily", ())))
        missing.discard(_parameters(item) or "")
    for name, missing in daily.items():
        if missing:
            raise pytest.UsageError(f"{name} is to run every day with {sorted(missing)}, which it does not have")
