"""Say above each function of the schema what calls it.

python -m tools.callers             print each line that is not so; the exit status is 1 if there is one
python -m tools.callers --write     write the lines
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SQL = Path(__file__).parents[1] / "src/holdfast/_store/sql"
SCHEMA = SQL / "schema"
# Functions that applications call by SQL: see docs/reference/sql.md.
FOR_USERS = {
    "enqueue",
    "publish",
    "receive",
    "complete_chain",
    "cancel_job",
    "get_job",
    "get_result",
    "replay_job",
    "delete_chains",
    "set_weight",
}
MOST = 6

_FUNCTION = re.compile(r"CREATE FUNCTION holdfast\.(\w+)\(")
_UNIT = re.compile(
    r"^(?:CREATE (?:UNIQUE )?(FUNCTION|TABLE|VIEW|TRIGGER|INDEX|POLICY|TYPE) (?:holdfast\.)?|(-- name:) )(\w+)",
    re.MULTILINE,
)
_CALL = re.compile(r"(?<!CREATE FUNCTION )\bholdfast\.(\w+)\(")
_PREFIX = "-- Called by "


def callers() -> dict[str, list[str]]:
    """Return the names of what calls each function: functions, tables and triggers first, then statements."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for path in chain(sorted(SCHEMA.glob("*.sql")), sorted(set(SQL.rglob("*.sql")) - set(SCHEMA.glob("*.sql")))):
        for name, text in _units(path):
            for called in _CALL.findall(text):
                if called != name:
                    found[called][name] = None
    return {name: list(given) for name, given in found.items()}


def _units(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each part of a file."""
    text = path.read_text()
    starts = list(_UNIT.finditer(text))
    ends = [*(unit.start() for unit in starts[1:]), len(text)]
    for unit, end in zip(starts, ends, strict=False):
        of, name = path.name if unit[2] else unit[1].lower(), unit[3]
        lines = (line.partition("--")[0] for line in text[unit.start() : end].splitlines())
        yield name if of == "function" else f"{of} {name}", "\n".join(lines)


def header(name: str, names: list[str]) -> str:
    """Return the line above a function."""
    all_ = [*(["applications"] if name in FOR_USERS else []), *names]
    if not all_:
        raise LookupError(f"nothing calls holdfast.{name}")
    listed = ", ".join(all_[:MOST]) + (f" and {len(all_) - MOST} more" if len(all_) > MOST else "")
    return f"{_PREFIX}{listed}."


def with_callers(text: str, known: dict[str, list[str]]) -> str:
    """Return the text of a file of the schema with a true line above each function."""
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith(_PREFIX):
            continue
        if made := _FUNCTION.match(line):
            lines.append(header(made[1], known.get(made[1], [])))
        lines.append(line)
    return "\n".join(lines) + "\n"


def main() -> int:
    known = callers()
    wrong = 0
    for path in sorted(SCHEMA.glob("*.sql")):
        text = path.read_text()
        true = with_callers(text, known)
        if text == true:
            continue
        wrong += 1
        if "--write" in sys.argv:
            path.write_text(true)
        else:
            print(f"{path.name}: not all lines `{_PREFIX.strip()}` are true; run python -m tools.callers --write")
    return 1 if wrong and "--write" not in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
