"""One statement, built once and run by the driver of the caller's connection."""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from holdfast._model.errors import HoldfastError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Parameter: TypeAlias = str | int | float | bool | None
Row: TypeAlias = tuple[Any, ...]

_BLOCK = re.compile(r"^-- (name|part): (\w+)\n(.+?)(?=^-- (?:name|part): |\Z)", re.MULTILINE | re.DOTALL)
_PART = re.compile(r"\{\{(\w+)\}\}")
_SPECIAL = re.compile(r'(["\\])')

PINNED_PATH = "pg_catalog, pg_temp"
"""The search_path for every statement of the library that uses unqualified names."""

# A statement that only calls qualified functions has no operator and no unqualified call left when these are removed.
_QUALIFIED = re.compile(
    r"--[^\n]*|%\(\w+\)s|::\w+(?:\[\])?|=>|'[^']*'|\w+\.\w+\s*\(|^SELECT \*|\bcoalesce\("
    r"|\bOPERATOR\(pg_catalog\.[^)]+\)(?: ANY)?(?: \()?|\bSET \w+ =|\b(?:AND|OR|NOT|WHERE|AS|FROM)\s*\(",
    re.MULTILINE,
)
_UNQUALIFIED = re.compile(
    r"[-=<>~!@#%^&|+/?*]|\w\s*\(|\b(?:IN|BETWEEN|LIKE|DISTINCT|CASE|USING|ANY|ALL|SOME|INTERVAL|NULLIF)\b",
    re.IGNORECASE,
)


class Statement(NamedTuple, Generic[T_co]):
    """SQL with %(name)s placeholders, parameters for any driver, and a function that reads the rows."""

    sql: str
    params: Mapping[str, Parameter]
    read: Callable[[Sequence[Row]], T_co]
    unfit: type[HoldfastError] | None = None
    """The error for a text that the encoding of the database or the connection lacks. None: that of the driver."""

    def then(self, make: Callable[[T_co], T]) -> Statement[T]:
        """Return the same statement, whose value is what `make` returns for the value of this one."""
        read = self.read
        return Statement(self.sql, self.params, lambda rows: make(read(rows)), self.unfit)

    def storing(self, unfit: type[HoldfastError]) -> Statement[T_co]:
        """Return the same statement, which raises `unfit` for a text that cannot be stored there."""
        return Statement(self.sql, self.params, self.read, unfit)


def statement(name: str, read: Callable[[Sequence[Row]], T], /, **params: Parameter) -> Statement[T]:
    """Return the statement of this name in `sql/`, with how its rows become a value, and its parameters."""
    return Statement(statements()[name], params, read)


@cache
def statements() -> Mapping[str, str]:
    """Return every named statement of the library. `{{name}}` in its text stands for the part of that name."""
    found: dict[str, dict[str, str]] = {"name": {}, "part": {}}
    for file in sorted(files("holdfast._store").joinpath("sql").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".sql"):
            for block, name, sql in blocks(file.read_text("utf-8")):
                if found[block].setdefault(name, sql.strip()) != sql.strip():
                    raise ValueError(f"two statements are named {name}")
    parts = found["part"]
    return {name: _PART.sub(lambda part: parts[part[1]], sql) for name, sql in found["name"].items()}


def blocks(text: str) -> list[tuple[str, str, str]]:
    """Return the blocks of a file of SQL: `name` or `part`, its name, its text."""
    return _BLOCK.findall(text)


def nothing(_rows: Sequence[Row]) -> None:
    """Ignore the rows."""


def value(rows: Sequence[Row]) -> Any:
    """Return the first column of the only row."""
    return rows[0][0]


def column(rows: Sequence[Row]) -> list[Any]:
    """Return the first column of all rows."""
    return [row[0] for row in rows]


def one(row_type: Callable[..., T]) -> Callable[[Sequence[Row]], T]:
    """Return a function that reads the only row."""
    return lambda rows: row_type(*rows[0])


def one_or_none(row_type: Callable[..., T]) -> Callable[[Sequence[Row]], T | None]:
    """Return a function that reads the only row; None when there is no row."""
    return lambda rows: row_type(*rows[0]) if rows else None


def many(row_type: Callable[..., T]) -> Callable[[Sequence[Row]], list[T]]:
    """Return a function that reads all rows."""
    return lambda rows: [row_type(*row) for row in rows]


@cache
def names_nothing(sql: str) -> bool:
    """Return whether a statement has no function or operator that PostgreSQL resolves by the search_path.

    A function or operator in `public` whose argument types match exactly is preferred over a polymorphic one of
    `pg_catalog`, whatever the order of the search_path. A statement for which this is False must run with a pinned
    search_path, see `pin_names`.
    """
    return _UNQUALIFIED.search(_QUALIFIED.sub("", sql)) is None


def pin_names(*, local: bool) -> Statement[None]:
    """Resolve unqualified names only in `pg_catalog`: for the session, or for the transaction if `local`."""
    return statement("pin_names", nothing, path=PINNED_PATH, local=local)


def pin_plans() -> Statement[None]:
    """Let no statistics of this session decide how jobs are found: the table may have been empty a second ago."""
    return statement("pin_plans", nothing)


def read_path() -> Statement[str]:
    """Return the search_path of the session."""
    return statement("read_path", value)


def restore_path(path: str) -> Statement[None]:
    """Set the search_path of the transaction, where it was pinned."""
    return statement("pin_names", nothing, path=path, local=True)


def time_text(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()


def json_text(fields: Mapping[str, object] | None) -> str | None:
    """Return a JSON object as text; None when there are no fields."""
    return json.dumps(dict(fields)) if fields else None


def number_array(numbers: Iterable[int]) -> str:
    """Return a PostgreSQL array of integers as text, which every driver can send and encodes fast."""
    return f"{{{','.join(map(str, numbers))}}}"


def text_array(texts: Iterable[str | None]) -> str:
    """Return a PostgreSQL array of texts as text."""
    return f"{{{','.join(['NULL' if text is None else _quoted(text) for text in texts])}}}"


def _quoted(text: str) -> str:
    return '"' + _SPECIAL.sub(r"\\\1", text) + '"'
