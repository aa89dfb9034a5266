"""The table of statements and their tests, read from the marks.

`python -m tests.seeds.table` writes tests/seeds/statements.md.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.kit.statement import DOCUMENTS

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
DOCS = ROOT / "docs"
PAGE = HERE / "statements.md"
# In a module whose tests prove statements.
_MARKS = "from tests.kit.statement import"

_HEAD = """\
# The statements of the documents, and their tests

Holdfast replaces the workers that five documents describe. Each of their statements below, on modes, endpoints,
settings, abort reasons, leases, retries and cycles, is proved by a test, most of them in `tests/seeds/`, against a
real PostgreSQL. Where Holdfast differs on purpose, the last column names the decision; the test then shows what
Holdfast does. For each statement, `tests/seeds/mutations/` has a change of the code that makes it false, and
`make prove ARGS="--parts mutations"` shows that its test fails then.

This page is generated: `python -m tests.seeds.table`.
"""


class Statement(NamedTuple):
    document: str
    text: str
    differs: str
    """The file of a decision, or nothing."""
    test: str
    """`test_module.py::test_function`, with its folder if that is another one."""


class Table(NamedTuple):
    statements: list[Statement]
    unmarked: list[str]
    """Tests that name no statement."""


def read_table() -> Table:
    """Import every test module that proves statements, and read the marks of its tests."""
    table = Table([], [])
    examples = [*ROOT.glob("examples/*/tests/test_*.py"), *ROOT.glob("examples/*/*/tests/test_*.py")]
    paths = [path for path in sorted(HERE.glob("test_*.py")) if path.stem not in {"test_table", "test_mutations"}]
    others = [
        path for path in sorted(HERE.parent.rglob("test_*.py")) if path.parent != HERE and _MARKS in path.read_text()
    ]
    names = {path: _name_of(path) for path in [*paths, *others, *sorted(examples)]}
    for path, name_of_module in names.items():
        module = importlib.import_module(name_of_module)
        for name, test in vars(module).items():
            if name.startswith("test_") and callable(test):
                place = f"{path.name if path.parent == HERE else path.relative_to(ROOT)}::{name}"
                found = [Statement(document, text, differs, place) for document, text, differs in _marks(test)]
                table.statements.extend(found)
                if not found and path.parent == HERE:
                    table.unmarked.append(place)
    return table


def _name_of(path: Path) -> str:
    """Return the name of a module. An example whose tests are inside its package is found as its own users find it."""
    place = path.parents[2] if (path.parent / "__init__.py").exists() else ROOT
    if str(place) not in sys.path:
        sys.path.append(str(place))
    return ".".join(path.relative_to(place).with_suffix("").parts)


def page(statements: list[Statement]) -> str:
    parts = [_HEAD]
    for document in DOCUMENTS:
        lines = [one for one in statements if one.document == document]
        parts += [f"\n## {document}\n\n{len(lines)} statements.\n\n| statement | test | differs by |\n|---|---|---|\n"]
        parts += [f"| {_cell(one.text)} | `{one.test}` | {_link(one.differs)} |\n" for one in lines]
    return "".join(parts)


def _marks(test: Any) -> Iterator[tuple[str, str, str]]:
    for mark in getattr(test, "pytestmark", []):
        if mark.name == "statement":
            yield mark.args
        elif mark.name == "parametrize":
            for case in mark.args[1]:
                yield from (each.args for each in getattr(case, "marks", ()) if each.name == "statement")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _link(decision: str) -> str:
    return f"[{decision[:4]}](../../docs/decisions/{decision})" if decision else ""


if __name__ == "__main__":
    PAGE.write_text(page(read_table().statements))
