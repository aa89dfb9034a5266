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


def number_array(numbers: Iterable[int]) -> str:
    """Return a PostgreSQL array of integers as text: any driver can send it, and none takes long to write it."""
    return f"{{{','.join(map(str, numbers))}}}"


def text_array(texts: Iterable[str | None]) -> str:
    """Return a PostgreSQL array of texts as text."""
    return f"{{{','.join(['NULL' if text is None else _quoted(text) for text in texts])}}}"


def _quoted(text: str) -> str:
    return '"' + _SPECIAL.sub(r"\\\1", text) + '"'
