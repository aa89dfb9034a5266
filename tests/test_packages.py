"""The docstring of each package lists its files: it names every file and folder there is, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "holdfast"
PACKAGES = sorted(
    path.parent for path in PACKAGE.rglob("*/__init__.py") if path.relative_to(PACKAGE).parts[0].startswith("_")
)
ENTRY = re.compile(r"^(?:#\s*)?\s*`?([a-z_0-9]+(?:\.py|/))`?\s", re.MULTILINE)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: str(package.relative_to(PACKAGE)))
def test_the_list_of_files_is_true(package: Path) -> None:
    files = {path.name for path in package.glob("*.py") if path.name != "__init__.py"}
    folders = (path for path in package.iterdir() if path.is_dir() and path.name not in {"__pycache__", "pages"})
    # A folder of which only the compiled files are left is gone.
    files |= {f"{path.name}/" for path in folders if {child.name for child in path.iterdir()} - {"__pycache__"}}
    listed = ENTRY.findall((package / "__init__.py").read_text())
    assert set(listed) == files
    assert len(listed) == len(files)


def test_no_file_holds_two_things() -> None:
    """Past 400 lines look for two nouns. One that has a single noun may be longer, to this limit."""
    assert [str(path) for path in PACKAGE.rglob("*.py") if len(path.read_text().splitlines()) > 500] == []


def test_the_archive_has_no_sql_of_its_own() -> None:
    """Statements on the application's tables are composed in the store too."""
    written = re.compile(r"\bSQL\(|\"(?:SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP|COPY|LOCK|SET|WITH) ")
    found = {path.name: written.findall(path.read_text()) for path in (PACKAGE / "_archive").glob("*.py")}
    assert {name: places for name, places in found.items() if places} == {}
