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
TABLE = generated.log_events()
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


def _calls() -> Iterator[tuple[Path, ast.Call, str]]:
    """Return every call that logs, with the text of its message's expression."""
    for path in sorted(generated.PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Call(func=ast.Attribute(value=logger, attr=level), args=[first, *others]) if re.search(
                    r"\blog(ger)?$", ast.unparse(logger)
                ):
                    if level in {"debug", "info", "warning", "error", "exception", "critical"}:
                        yield path, node, ast.unparse(first)
                    elif level == "log":
                        yield path, node, ast.unparse(others[0])
                case _:
                    pass


LOGGED = [(path.name, call.lineno, message) for path, call, message in _calls() if path.name not in _HANDED_ON]


@pytest.mark.parametrize(("file", "line", "message"), LOGGED)
def test_the_page_has_the_message(file: str, line: int, message: str) -> None:
    if (file, message) in MADE:
        assert MADE[file, message] in PAGE
        return
    if message[0] in "\"'":
        assert f"| {' '.join(ast.literal_eval(message).split())} |" in TABLE, (file, line)
    else:
        [path] = [
            path for path in generated.PACKAGE.rglob(file) if message in path.read_text("utf-8").split("\n")[line - 1]
        ]
        texts = re.findall(rf"^\s+{message} = (.*)$", path.read_text("utf-8"), re.MULTILINE)
        literals = [text for one in texts for text in re.findall(r'"([^"]+)"', one)]
        assert literals, (file, line)
        assert all(f"| {text} |" in TABLE for text in literals), (file, line)


def test_each_message_made_at_run_time_exists() -> None:
    assert MADE.keys() <= {(file, message) for file, _, message in LOGGED}


def test_outages_have_a_line_for_their_begin_and_their_end() -> None:
    assert "| heartbeat failed | warning | `error`, `why`, `failures` | `holdfast.heartbeat` |" in TABLE
    assert "| heartbeat failed: it works again | info | `failures`, `seconds` | `holdfast.heartbeat` |" in TABLE


def test_fields_that_a_variable_holds_are_listed() -> None:
    [row] = [row for row in TABLE.splitlines() if row.startswith("| an attempt failed |")]
    assert "`attempt`" in row
    assert "`error`" in row
