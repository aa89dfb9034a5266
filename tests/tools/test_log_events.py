"""The page of log events has every message that the package logs."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tools.site import generated

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "log-events.md").read_text("utf-8")
# Messages that are made at run time: the file, the argument, and where the page describes them.
MADE = {
    ("job_log.py", "name"): "with the name of its transition",
    ("worker.py", "lacking"): "no kind is registered",
    ("worker.py", "'%s'"): "for each runner that the settings leave out",
    ("serve.py", "'%s'"): "why the database cannot be used",
    ("lines.py", "'%s'"): "a line for each job that ended",
}
# `Outage` takes the message and its logger; the wrapper hands every line on to Python's logger.
_HANDED_ON = {"link.py", "log.py"}


# Parsing the package takes seconds, which collecting the tests should not.
FILES = [
    path
    for path in sorted(generated.PACKAGE.rglob("*.py"))
    if path.name not in _HANDED_ON and re.search(r"log(ger)?\s*\.", path.read_text("utf-8"))
]


@pytest.fixture(scope="module")
def table() -> str:
    return generated.log_events()


def _logged(path: Path) -> Iterator[tuple[int, str]]:
    """Return of every call that logs its line, and the text of its message's expression."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.Call(func=ast.Attribute(value=logger, attr=level), args=[first, *others]) if re.search(
                r"\blog(ger)?$", ast.unparse(logger)
            ):
                if level in {"debug", "info", "warning", "error", "exception", "critical"}:
                    yield node.lineno, ast.unparse(first)
                elif level == "log":
                    yield node.lineno, ast.unparse(others[0])
            case _:
                pass


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(generated.PACKAGE)))
def test_the_page_has_the_messages(path: Path, table: str) -> None:
    for line, message in _logged(path):
        if (path.name, message) in MADE:
            assert MADE[path.name, message] in PAGE
        elif message[0] in "\"'":
            assert f"| {' '.join(ast.literal_eval(message).split())} |" in table, line
        else:
            texts = re.findall(rf"^\s+{message} = (.*)$", path.read_text("utf-8"), re.MULTILINE)
            literals = [text for one in texts for text in re.findall(r'"([^"]+)"', one)]
            assert literals, line
            assert all(f"| {text} |" in table for text in literals), line


def test_each_message_made_at_run_time_exists() -> None:
    assert MADE.keys() <= {(path.name, message) for path in FILES for _, message in _logged(path)}


def test_outages_have_a_line_for_their_begin_and_their_end(table: str) -> None:
    assert "| heartbeat failed | warning | `error`, `why`, `failures` | `holdfast.heartbeat` |" in table
    assert "| heartbeat failed: it works again | info | `failures`, `seconds` | `holdfast.heartbeat` |" in table


def test_fields_that_a_variable_holds_are_listed(table: str) -> None:
    [row] = [row for row in table.splitlines() if row.startswith("| an attempt failed |")]
    assert "`why`" in row
    assert "`error`" in row
