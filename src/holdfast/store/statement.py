"""One statement, built once and run by whichever driver the caller's connection needs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

T_co = TypeVar("T_co", covariant=True)

Parameter: TypeAlias = str | int | float | bool | None
Row: TypeAlias = tuple[Any, ...]

_BLOCK = re.compile(r"^-- name: (\w+)\n(.+?)(?=^-- name: |\Z)", re.MULTILINE | re.DOTALL)
_SPECIAL = re.compile(r'(["\\])')

PINNED_PATH = "pg_catalog, pg_temp"
"""The search_path under which every statement of the library that names anything unqualified runs."""

# What is left of a statement that only calls functions, without these, has no operator and no unqualified call in it.
_QUALIFIED = re.compile(
    r"--[^\n]*|%\(\w+\)s|::\w+(?:\[\])?|=>|'[^']*'|\w+\.\w+\s*\(|^SELECT \*|\bcoalesce\(", re.MULTILINE
)
_UNQUALIFIED = re.compile(
    r"[-=<>~!@#%^&|+/?*]|\w\s*\(|\b(?:IN|BETWEEN|LIKE|DISTINCT|CASE|USING|ANY|ALL|SOME|INTERVAL|NULLIF)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Statement(Generic[T_co]):
    """SQL with %(name)s placeholders, each used once, parameters any library can send, and how to read the rows."""

    sql: str
    params: Mapping[str, Parameter]
    read: Callable[[Sequence[Row]], T_co]


@cache
def statements() -> Mapping[str, str]:
    """Every named statement of the library."""
    found: dict[str, str] = {}
    for file in sorted(files("holdfast.store").joinpath("sql").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".sql"):
            for name, sql in _BLOCK.findall(file.read_text("utf-8")):
                if name in found:
                    raise ValueError(f"two statements are named {name}")
                found[name] = sql.strip()
    return found


@cache
def names_nothing(sql: str) -> bool:
    """Tell whether a statement has no function or operator in it that PostgreSQL looks up by the search_path.

    A function or operator in `public` whose argument types match exactly is preferred over a polymorphic one of
    `pg_catalog`, whatever the order of the search_path. A statement for which this is false is run where the
    search_path is pinned, see `pin_names`.
    """
    return _UNQUALIFIED.search(_QUALIFIED.sub("", sql)) is None


def pin_names(*, local: bool) -> Statement[None]:
    """Resolve unqualified names in `pg_catalog` alone: in the session, or only in the transaction if `local`."""
    return Statement(statements()["pin_names"], {"path": PINNED_PATH, "local": local}, lambda _: None)


def number_array(numbers: Iterable[int]) -> str:
    """Return a PostgreSQL array of integers as text: any driver can send it, and none takes long to write it."""
    return f"{{{','.join(map(str, numbers))}}}"


def text_array(texts: Iterable[str | None]) -> str:
    """Return a PostgreSQL array of texts as text."""
    return f"{{{','.join(['NULL' if text is None else _quoted(text) for text in texts])}}}"


def _quoted(text: str) -> str:
    return '"' + _SPECIAL.sub(r"\\\1", text) + '"'
