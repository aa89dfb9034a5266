"""The declaration of a table of the application whose old rows are archived."""

from __future__ import annotations

import hashlib
import re
from dataclasses import KW_ONLY, dataclass, field
from datetime import date
from typing import Literal, NamedTuple, cast

from psycopg import sql

SCHEMA = "archive"
"""Holds the old rows of the application's tables."""

_SPAN = re.compile(r"([1-9][0-9]{0,4}) (day|month|year)s?")
_NAME = re.compile(r"(?:([^\W\d][\w$ -]*)\.)?([^\W\d][\w$ -]*)")
# Bytes of a name in PostgreSQL, less the end of the name of a month.
_LONGEST = 63 - len("_202603")


class CalendarSpan(NamedTuple):
    """A length of time by the calendar."""

    number: int
    unit: Literal["day", "month", "year"]

    @classmethod
    def parse(cls, name: str, text: object) -> CalendarSpan:
        """Return the span in `text`, such as "12 months". `name`: of the argument, for the error."""
        found = _SPAN.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise ValueError(f'{name}: a number of days, months or years expected, such as "90 days", got {text!r:.60}')
        return cls(int(found[1]), found[2])  # type: ignore[arg-type]

    def __str__(self) -> str:
        return f"{self.number} {self.unit}{'s' if self.number > 1 else ''}"


@dataclass(frozen=True, slots=True)
class Archive:
    """A table whose old rows leave: first for the schema `archive`, then, month by month, for the object store.

    `table`: its name as PostgreSQL stores it, with its schema unless that is `public`. `at`: its column of time. `hot`:
    how long rows stay in the table, such as "12 months" or "90 days". `where`: a condition of SQL that a row must meet
    to leave; it is a part of your program, so no user's text belongs in it. Default: none. `keep`: how long a month
    stays in the schema `archive` after it was verified in the object store. Default: "30 days".

    >>> Archive("deliveries", "completed_at", hot="90 days", where="status in ('ok', 'failed')").source
    'public.deliveries'
    """

    table: str
    at: str
    _: KW_ONLY
    hot: str
    where: str | None = None
    keep: str = "30 days"
    schema: str = field(init=False, repr=False)
    name: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        table, at = cast("object", self.table), cast("object", self.at)
        found = _NAME.fullmatch(table) if isinstance(table, str) else None
        if found is None:
            raise ValueError(
                f'table: a name expected, such as "deliveries" or "sales.deliveries", got {self.table!r:.60}'
            )
        if not isinstance(at, str) or not at:
            raise ValueError(f'at: the name of a column of time expected, such as "created_at", got {self.at!r:.60}')
        if not isinstance(self.where, str | None):
            raise TypeError(f"where: a condition of SQL expected, got {type(self.where).__name__}")
        CalendarSpan.parse("hot", self.hot)
        CalendarSpan.parse("keep", self.keep)
        object.__setattr__(self, "schema", found[1] or "public")
        object.__setattr__(self, "name", found[2])

    @property
    def source(self) -> str:
        """The table with its schema, as in the records of the archive."""
        return f"{self.schema}.{self.name}"

    @property
    def table_name(self) -> sql.Identifier:
        """The table, quoted."""
        return sql.Identifier(self.schema, self.name)

    @property
    def archived_name(self) -> str:
        """The name of its table in the schema `archive`."""
        name = self.name if self.schema == "public" else f"{self.schema}_{self.name}"
        if len(name.encode()) <= _LONGEST:
            return name
        # PostgreSQL would cut the month off.
        digest = hashlib.sha256(name.encode()).hexdigest()[:8]
        return f"{name.encode()[: _LONGEST - 9].decode(errors='ignore')}_{digest}"

    @property
    def archived(self) -> sql.Identifier:
        """Its table in the schema `archive`, quoted."""
        return sql.Identifier(SCHEMA, self.archived_name)

    @property
    def comment(self) -> str:
        """The comment by which its table in the schema `archive` is known."""
        return f"Rows of {self.source} that Holdfast has moved here"

    def month(self, starts_on: date) -> sql.Identifier:
        """Return the table of one month in the schema `archive`, quoted."""
        return sql.Identifier(SCHEMA, f"{self.archived_name}_{starts_on:%Y%m}")


def month_after(month: date) -> date:
    """Return the first day of the next month.

    >>> month_after(date(2026, 12, 1))
    datetime.date(2027, 1, 1)
    """
    return date(month.year + month.month // 12, month.month % 12 + 1, 1)
