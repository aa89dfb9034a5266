"""A part is proven for content alone, its files are all that its tests import, and it is represented every day."""

from __future__ import annotations

import ast
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.kit.parts import part_of
from tools import parts
from tools.parts import ROOT, Part, Proof, Standing

PARTS = list(parts.parts().values())
# All others depend on all code.
NARROW = [part for part in PARTS if part.tests and "src/**" not in part.depends]
# They order, choose and show, and make no test green.
OF_THE_RUN = {"tests/kit/order.py", "tests/kit/parts.py", "tests/kit/share.py", "tests/kit/shown.py", "tools/parts.py"}


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(parts, "ROOT", tmp_path)
    monkeypatch.setattr(parts, "PROVEN", tmp_path / "proven")
    for name in ("src/one.py", "src/deep/two.py", "docs/page.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)  # noqa: S603, S607
    return tmp_path


def test_the_key_is_of_the_content_and_of_nothing_else(checkout: Path) -> None:
    before = parts.key(["src/**"])
    (checkout / "docs" / "page.md").write_text("another")
    (checkout / "src" / "one.py").touch()
    assert parts.key(["src/**"]) == before

    (checkout / "src" / "one.py").write_text("another")
    assert parts.key(["src/**"]) != before
    (checkout / "src" / "one.py").write_text("src/one.py")
    assert parts.key(["src/**"]) == before, "as after a rebase that brings the same files"

    (checkout / "src" / "deep" / "two.py").rename(checkout / "src" / "two.py")
    assert parts.key(["src/**"]) != before


def test_a_record_is_read_as_it_was_written(checkout: Path) -> None:
    parts.record("plays", Proof("0123", "2026-11-19, Python 3.13.0, PostgreSQL 18: 9 passed in 4s"))
    parts.record("lab", Proof("4567", "2026-11-19, Python 3.13.0, PostgreSQL 18: 1 passed in 7s"))
    parts.record("plays", Proof("89ab", "2026-11-20, Python 3.13.0, PostgreSQL 18: 9 passed in 5s"))
    assert parts.proven() == {
        "lab": Proof("4567", "2026-11-19, Python 3.13.0, PostgreSQL 18: 1 passed in 7s"),
        "plays": Proof("89ab", "2026-11-20, Python 3.13.0, PostgreSQL 18: 9 passed in 5s"),
    }


def test_only_a_proof_of_this_content_counts() -> None:
    changed = Part("model", "", (), "changed")
    nightly = Part("lab", "", ())
    assert Standing(changed, "01", Proof("01", "")).runs_whole is False
    assert Standing(changed, "01", Proof("02", "")).runs_whole is True
    assert Standing(changed, "01", None).runs_whole is True
    assert Standing(nightly, "01", Proof("02", "")).runs_whole is False
    assert "NOT PROVEN" in str(Standing(nightly, "01", Proof("02", "")))
    assert "NOT PROVEN" in str(Standing(nightly, "01", None))
    assert "NOT PROVEN" not in str(Standing(nightly, "01", Proof("01", "")))


@pytest.mark.parametrize(("command", "recorded"), [("true", True), ("false", False), ("echo x >> src/one.py", False)])
def test_only_what_was_green_on_the_same_files_is_recorded(checkout: Path, command: str, recorded: bool) -> None:
    assert parts.run(Part("part", "", ("src/**",), "nightly", command=command)) is recorded
    assert set(parts.proven()) == ({"part"} if recorded else set())


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_every_pattern_and_every_test_is_there(part: Part) -> None:
    assert bool(part.tests) != bool(part.command)
    assert part.whole in {"changed", "nightly"}
    for pattern in part.depends:
        assert parts.files([pattern]), f"{pattern} matches nothing"
    for place in part.tests:
        files = [ROOT / name for name in parts.files([place, f"{place}/**/test_*.py"]) if part_of(name) == part.name]
        assert any("mark.nightly" in file.read_text() for file in files), place


@pytest.mark.parametrize("part", NARROW, ids=lambda part: part.name)
def test_a_part_depends_on_all_that_its_tests_import(part: Part) -> None:
    places = [*part.tests, *(f"{place}/**" for place in part.tests)]
    tests = [name for name in parts.files(places) if part_of(name) == part.name]
    assert imported(tests) - imported(["tests/conftest.py"]) - set(parts.files(part.depends)) == set()


def test_every_part_depends_on_what_every_test_is_given() -> None:
    ours = {name for name in imported(["tests/conftest.py"]) if not name.startswith("src/")}
    for part in NARROW:
        assert ours - OF_THE_RUN - set(parts.files(part.depends)) == set(), part.name


def imported(files: list[str]) -> set[str]:
    """Return these files of ours and those that they import, and so on, with the conftests above them."""
    found: set[str] = set()
    left = [name for name in files if name.endswith(".py")]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += imports(name)
    return found


@cache
def imports(name: str) -> list[str]:
    above = [str(folder / "conftest.py") for folder in Path(name).parents]
    found = [name for name in above if (ROOT / name).is_file()]
    for node in ast.walk(ast.parse((ROOT / name).read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found += (file for alias in node.names for file in modules(alias.name))
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += modules(node.module)
            found += (file for alias in node.names for file in modules(f"{node.module}.{alias.name}"))
    return found


def modules(name: str) -> list[str]:
    """Return the file of a module of this checkout, if it is one."""
    path = name.replace(".", "/")
    places = [f"{root}{path}{end}" for root in ("", "src/", "examples/tenders/") for end in (".py", "/__init__.py")]
    return [place for place in places if (ROOT / place).is_file()]
