"""Stands for `pip` in the clean environment: everything is installed already, and this checks that it is."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import metadata, version
from pathlib import Path

_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[([\w,-]*)\])?(?:>=[\w.]+)?")
_FOLDER = re.compile(r"([./]+)(?:\[([\w,-]*)\])?")


def main() -> int:
    command, *asked = sys.argv[1:]
    if command != "install":
        sys.stderr.write(f"pip {command}: only install is run\n")
        return 1
    for requirement in asked:
        if not requirement.startswith("-"):
            _check(requirement)
    return 0


def _check(requirement: str) -> None:
    if (folder := _FOLDER.fullmatch(requirement)) is not None:
        for needed in _needed(Path(folder[1]), folder[2]):
            _check(needed)
        return
    found = _REQUIREMENT.fullmatch(requirement)
    if found is None:
        sys.exit(f"pip install {requirement}: expected a name, with extras or without")
    version(found[1])
    missing = _names(found[2]) - set(metadata(found[1]).get_all("Provides-Extra") or ())
    if missing:
        sys.exit(f"{found[1]} has no extra {', '.join(sorted(missing))}")


def _needed(folder: Path, extras: str | None) -> list[str]:
    """Return what a project in a folder depends on."""
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    optional = project.get("optional-dependencies", {})
    return [*project["dependencies"], *(name for extra in _names(extras) for name in optional[extra])]


def _names(listed: str | None) -> set[str]:
    return set(filter(None, (listed or "").split(",")))


if __name__ == "__main__":
    sys.exit(main())
