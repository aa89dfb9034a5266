"""The mutation sites of a file of SQL, found by patterns."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from labs.mutants.site import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Make = Callable[[str], str]


class Pattern(NamedTuple):
    change: str
    found: re.Pattern[str]
    """Its only group is what is replaced."""
    make: Make


def _pattern(change: str, found: str, make: Make | dict[str, str] | str) -> Pattern:
    if isinstance(make, str):
        return Pattern(change, re.compile(found, re.DOTALL), lambda _: make)
    if isinstance(make, dict):
        return Pattern(change, re.compile(found, re.DOTALL), make.__getitem__)
    return Pattern(change, re.compile(found, re.DOTALL), make)


_UNTIL = r"(?=\s(?:AND|OR|ORDER|RETURNING|THEN|GROUP|LIMIT|FOR|LOOP|UNION|ON|WHEN|HAVING|ELSE|END)\b|[;),]|\Z)"
_TERM = r"(?:[^();,]|\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))*?"
PATTERNS = [
    _pattern("drop condition", rf"(?<=\S)(?=(\s+(?:AND|OR)\s+{_TERM}){_UNTIL})", ""),
    _pattern("comparison", r"(?<=[\w)] )(<=|>=|<>|<|>)(?= )", {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "<>": "="}),
    _pattern("comparison", r"(?:WHERE|IF|WHEN|ON|AND|OR) [\w.]+ (=) ", "<>"),
    _pattern("drop lock", r"( FOR (?:NO KEY UPDATE|UPDATE|KEY SHARE|SHARE)(?: OF \w+)?(?: SKIP LOCKED| NOWAIT)?)", ""),
    _pattern("wait for the lock", r"( (?:SKIP LOCKED|NOWAIT))\b", ""),
    _pattern("turn the order", r"ORDER BY ([\w.]+)(?! DESC)\b", lambda old: f"{old} DESC"),
    _pattern("least/greatest", r"\b(least|greatest)\(", {"least": "greatest", "greatest": "least"}),
    _pattern("drop statement", r"\n\s*((?:PERFORM|DELETE|UPDATE|INSERT)\b[^;]*);", "NULL"),
    _pattern(
        "negate condition",
        r"\b(?:IF|ELSIF)\s+(?!NOT EXISTS|EXISTS)((?:(?!THEN|;).)+?)\s+THEN",
        lambda old: f"NOT ({old})",
    ),
    _pattern("null", r"\b(IS NOT NULL|IS NULL)\b", {"IS NULL": "IS NOT NULL", "IS NOT NULL": "IS NULL"}),
    _pattern("constant", r"(?<![\w.\[$:{'(])(\d+)(?![\w.\]}'])", lambda old: str(int(old) + 1)),
    _pattern("constant", r"(?::= |DEFAULT |SELECT |, )(true|false)\b", {"true": "false", "false": "true"}),
    _pattern("drop coalesce", rf"\b(coalesce\({_TERM}, {_TERM}\))", lambda old: old[9:].partition(", ")[0]),
]
_RANGE = re.compile(r"BETWEEN\s+\S+$")
_UNIT = re.compile(r"^(?:CREATE FUNCTION holdfast\.|-- name: |-- part: )(\w+)", re.MULTILINE)


def sql_sites(file: str, text: str) -> Iterator[Site]:
    """Yield each place within a function of the schema, or within a statement, that a pattern finds."""
    code = _blanked(text)
    for name, start, end, is_plpgsql in _bodies(file, code, text):
        lines = (text.count("\n", 0, start) + 1, text.count("\n", 0, end) + 1)
        for pattern in PATTERNS:
            for match in pattern.found.finditer(code, start, end):
                a, e = match.span(1)
                old, line = text[a:e], text.count("\n", 0, a) + 1
                # The `AND` of a range is none, and only PL/pgSQL has a statement that does nothing.
                if not _RANGE.search(code, max(start, a - 80), a) and (
                    is_plpgsql or pattern.change != "drop statement"
                ):
                    yield Site(file, name, lines, line, pattern.change, a, e, old, pattern.make(old))


def _bodies(file: str, code: str, text: str) -> Iterator[tuple[str, int, int, bool]]:
    """Yield the name, the start and the end of each function or statement, and whether it is PL/pgSQL."""
    units = list(_UNIT.finditer(text))
    ends = [*(unit.start() for unit in units[1:]), len(text)]
    for unit, end in zip(units, ends, strict=False):
        if not file.startswith("_store/sql/schema/"):
            yield unit[1], unit.end(), end, False
        elif body := re.compile(r"AS \$\$(.*?)\$\$", re.DOTALL).search(code, unit.end(), end):
            yield unit[1], *body.span(1), "LANGUAGE plpgsql" in code[unit.end() : body.start()]


def _blanked(text: str) -> str:
    """Return the text with comments and the insides of strings replaced, everything else at its place."""
    code = re.sub(r"--[^\n]*", lambda match: " " * len(match[0]), text)
    return re.sub(r"'(?:[^'\n]|'')*'", lambda match: "'" + "x" * (len(match[0]) - 2) + "'", code)
