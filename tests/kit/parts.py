"""A plugin of pytest: `--whole "model lab"` runs these parts of the check whole, and what represents the others.

The parts are those of tools/parts.toml. Without the option, every test runs.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

import pytest

from tools.parts import ROOT, Part, parts

if TYPE_CHECKING:
    from pathlib import Path

_SHORTENED = pytest.StashKey[tuple[Part, ...]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--whole", metavar="NAMES", help="parts of tools/parts.toml to run whole; of the others, a little")


def pytest_configure(config: pytest.Config) -> None:
    whole: str | None = config.getoption("--whole", None)
    config.stash[_SHORTENED] = (
        () if whole is None else tuple(part for part in parts().values() if part.name not in whole.split())
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import a file of which no test would run."""
    if collection_path.suffix != ".py" or not collection_path.is_relative_to(ROOT):
        return None
    file = collection_path.relative_to(ROOT).as_posix()
    places = _places(file)
    for part in config.stash[_SHORTENED]:
        files = {place.split("::")[0] for place in part.everyday}
        if not places.isdisjoint(part.tests) and places.isdisjoint(files):
            return True
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    parts = config.stash[_SHORTENED]
    left_out = [item for item in items if any(_is_left_out(item.nodeid, part) for part in parts)]
    if not left_out:
        return
    shortened = {place for item in left_out for place in _places(item.nodeid)}
    gone = set(left_out)
    items[:] = [item for item in items if item not in gone]
    config.hook.pytest_deselected(items=left_out)
    kept = {place for item in items for place in _places(item.nodeid)}
    for place in (place for part in parts for place in part.everyday):
        if place.split("::")[0] in shortened and place not in kept:
            raise pytest.UsageError(f"tools/parts.toml: {place} is no test of the everyday suite")


def _is_left_out(name: str, part: Part) -> bool:
    places = _places(name)
    return not places.isdisjoint(part.tests) and places.isdisjoint(part.everyday)


@cache
def _places(name: str) -> frozenset[str]:
    """Return the folders, files and tests that this file or test is in, itself included."""
    return frozenset([*(name[: end.start()] for end in re.finditer(r"/|::|\[", name)), name])
