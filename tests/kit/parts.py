"""A plugin of pytest: `--whole "model lab"` runs these parts of the check whole, and what represents the others.

The parts are those of tools/parts.toml. Without the option, every test runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tools.parts import ROOT, Part, parts

if TYPE_CHECKING:
    from collections.abc import Iterable
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
    for part in config.stash[_SHORTENED]:
        if _is_within(file, part.tests) and not _is_within(file, [place.split("::")[0] for place in part.everyday]):
            return True
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [item for item in items if any(_is_left_out(item.nodeid, part) for part in config.stash[_SHORTENED])]
    if not left_out:
        return
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)
    for place in (place for part in config.stash[_SHORTENED] for place in part.everyday):
        file = place.split("::")[0]
        if any(_is_within(item.nodeid, [file]) for item in left_out) and not any(
            _is_within(item.nodeid, [place]) for item in items
        ):
            raise pytest.UsageError(f"tools/parts.toml: {place} is no test of the everyday suite")


def _is_left_out(name: str, part: Part) -> bool:
    return _is_within(name, part.tests) and not _is_within(name, part.everyday)


def _is_within(name: str, places: Iterable[str]) -> bool:
    """Return whether a file or test is one of these folders, files or tests, or is in one."""
    return any(name == place or name.startswith((f"{place}/", f"{place}::", f"{place}[")) for place in places)
