"""Which database this is, by whatever address and through whatever pooler it is reached."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.store.statement import Row, Statement, statements

if TYPE_CHECKING:
    from collections.abc import Sequence


def identify_database() -> Statement[str]:
    """Ask for a word, of digits and a hyphen, that no other database shares."""
    return Statement(statements()["identify_database"], {}, _only)


def _only(rows: Sequence[Row]) -> str:
    answer: str = rows[0][0]
    return answer
