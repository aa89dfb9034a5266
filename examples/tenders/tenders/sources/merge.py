"""One record made of the records of both sources, field by field, preferring the fuller one."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from tenders.sources.record import Licitacion

# The page cuts long texts, and marks the cut.
_CUT = ("…", "...")


def merged(fetched: Licitacion | None, scraped: Licitacion | None) -> Licitacion:
    """Return one record of the same tender. If both sources have as much, the API's is taken."""
    if fetched is None or scraped is None:
        found = fetched or scraped
        if found is None:
            raise ValueError("merged: a record expected, got none")
        return found
    chosen: dict[str, Any] = {
        field.name: fuller(getattr(fetched, field.name), getattr(scraped, field.name)) for field in fields(Licitacion)
    }
    return Licitacion(**chosen)


def fuller(one: Any, other: Any) -> Any:
    """Return the fuller value. A text that was cut is less than one that was not.

    >>> fuller("Compra de equipos médicos", "Compra de equipos médicos para el hospi…")
    'Compra de equipos médicos'
    >>> fuller("Compra", "Compra de equipos"), fuller(None, 7), fuller(5, 7)
    ('Compra de equipos', 7, 5)
    """
    if one is None or other is None:
        return other if one is None else one
    if isinstance(one, str) and isinstance(other, str):
        return max((one, other), key=_fullness)
    return one


def _fullness(text: str) -> tuple[bool, int]:
    return not text.rstrip().endswith(_CUT), len(text)
