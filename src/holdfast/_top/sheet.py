"""A table of the terminal: its query, its columns, and the actions on a row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from datetime import datetime

    from holdfast._ops.caller import Person
    from holdfast._ops.responses.fleet import Overview
    from holdfast._ops.service import Service
    from holdfast._top.cell import Cell

T = TypeVar("T")


class Query(NamedTuple):
    """The inputs of a table's query. The overview was just read, and its time is PostgreSQL's."""

    service: Service
    overview: Overview
    words: Words

    @property
    def now(self) -> datetime:
        return self.overview.at


class SheetRows(NamedTuple, Generic[T]):
    rows: Sequence[T]
    note: str = ""
    """A remark about the rows, e.g. how far the search reached."""


class TextPage(NamedTuple):
    title: str
    lines: Sequence[str]


class Jump(NamedTuple):
    """A jump to another table, filtered."""

    sheet: str
    words: Words


class Plan(NamedTuple):
    """The preview of an action, for confirmation."""

    question: str
    detail: str
    act: Callable[[], Awaitable[str]]
    """Runs the action and returns a message."""


def toggle(what: str, act: Callable[[], Awaitable[str]], *, paused: bool, resumes: str, pauses: str) -> Plan:
    """Return the plan that resumes something paused, or pauses it."""
    return Plan(f"Resume {what}?", resumes, act) if paused else Plan(f"Pause {what}?", pauses, act)


class Action(NamedTuple, Generic[T]):
    name: str
    plan: Callable[[Service, Person, T], Awaitable[Plan]]
    """Previews the action. Raises RequestRefused if it would do nothing."""


class Column(NamedTuple, Generic[T]):
    title: str
    cell: Callable[[T, datetime], Cell]
    right: bool = False


def figures(title: str, cell: Callable[[T, datetime], Cell]) -> Column[T]:
    """Return a column of numbers: right-aligned and sorted descending."""
    return Column(title, cell, right=True)


Opened: TypeAlias = TextPage | Jump


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Generic[T]):
    """The definition of a table: its columns, its order and how its rows are named."""

    name: str
    one: str
    """The singular noun of a row, for counting: `queue`."""
    columns: tuple[Column[T], ...]
    row_id: Callable[[T], str]
    """Identifies a row across reads."""
    sorted_by: str
    falling: bool = True
    empty: str
    """Shown if there are no rows."""
    asks: frozenset[str] = frozenset()
    """Filter fields that the database applies, instead of the loaded rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet(Table[T]):
    """A table of one database, with the query that fills it."""

    title: str
    read: Callable[[Query], Awaitable[SheetRows[T]]]
    open: Callable[[Query, T], Awaitable[Opened]]
    """Returns the page or the jump that Enter opens for a row."""
    actions: tuple[Action[T], ...] = ()


AnyTable: TypeAlias = Table[Any]
AnySheet: TypeAlias = Sheet[Any]


@dataclass(frozen=True, slots=True)
class Words:
    """A case-insensitive filter."""

    anywhere: tuple[str, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, text: str) -> Self:
        """Parse `mail status:failed`: the text before the first colon names a column."""
        anywhere: list[str] = []
        fields: dict[str, str] = {}
        for given in text.split():
            name, colon, value = given.partition(":")
            if colon and name and value:
                fields[name.lower()] = value
            else:
                anywhere.append(given)
        return cls(tuple(anywhere), fields)

    def __bool__(self) -> bool:
        return bool(self.anywhere or self.fields)

    def __str__(self) -> str:
        return " ".join([*(f"{name}:{value}" for name, value in self.fields.items()), *self.anywhere])

    def match(self, cells: Mapping[str, str]) -> bool:
        """Return whether a row matches. Columns that it does not have are ignored."""
        low = {title.lower(): text.casefold() for title, text in cells.items()}
        return all(value.casefold() in low[name] for name, value in self.fields.items() if name in low) and all(
            any(given.casefold() in text for text in low.values()) for given in self.anywhere
        )
