"""The docstring of each wing is its floor plan: it names every file and folder there is, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "holdfast"
WINGS = sorted(
    path.parent for path in PACKAGE.rglob("*/__init__.py") if path.relative_to(PACKAGE).parts[0].startswith("_")
)
ROOM = re.compile(r"^(?:#\s*)?\s*`?([a-z_0-9]+(?:\.py|/))`?\s", re.MULTILINE)


@pytest.mark.parametrize("wing", WINGS, ids=lambda wing: str(wing.relative_to(PACKAGE)))
def test_the_floor_plan_is_true(wing: Path) -> None:
    rooms = {path.name for path in wing.glob("*.py") if path.name != "__init__.py"}
    folders = (path for path in wing.iterdir() if path.is_dir() and path.name not in {"__pycache__", "pages"})
    # A folder of which only the compiled files are left is gone.
    rooms |= {f"{path.name}/" for path in folders if {child.name for child in path.iterdir()} - {"__pycache__"}}
    plan = ROOM.findall((wing / "__init__.py").read_text())
    assert set(plan) == rooms
    assert len(plan) == len(rooms)


def test_no_class_name_stands_twice() -> None:
    found: dict[str, list[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        # Django's models and migrations are named as their tables are.
        if "django" not in path.parts:
            for name in re.findall(r"^class (\w+)", path.read_text(), re.MULTILINE):
                found.setdefault(name, []).append(str(path.relative_to(PACKAGE)))
    assert {name: places for name, places in found.items() if len(places) > 1} == {}


def test_no_file_is_longer_than_a_sitting() -> None:
    assert [str(path) for path in PACKAGE.rglob("*.py") if len(path.read_text().splitlines()) > 400] == []


def test_the_archive_has_no_sql_of_its_own() -> None:
    """Statements on the application's tables are composed in the store too."""
    written = re.compile(r"\bSQL\(|\"(?:SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP|COPY|LOCK|SET|WITH) ")
    found = {path.name: written.findall(path.read_text()) for path in (PACKAGE / "_archive").glob("*.py")}
    assert {name: places for name, places in found.items() if places} == {}
