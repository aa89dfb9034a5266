"""A table of the terminal: what is asked, which columns are shown of it, and what can be done to a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from datetime import datetime

    from holdfast.ops.answer import Overview
    from holdfast.ops.desk import Desk
    from holdfast.ops.person import Person
    from holdfast.top.cell import Cell
    from holdfast.top.words import Words

T = TypeVar("T")


class Look(NamedTuple):
    """What a sheet is read with. The overview has just been read, and its time is PostgreSQL's."""

    desk: Desk
    overview: Overview
    words: Words

    @property
    def now(self) -> datetime:
        return self.overview.at


class Found(NamedTuple, Generic[T]):
    rows: Sequence[T]
    note: str = ""
    """What one should know of them, e.g. how far was looked."""


class Page(NamedTuple):
    """Something to read, line by line."""

    title: str
    lines: Sequence[str]


class Jump(NamedTuple):
    """Another sheet, filtered."""

    sheet: str
    words: Words


class Plan(NamedTuple):
    """What an action would do, asked before it is done."""

    question: str
    detail: str
    act: Callable[[], Awaitable[str]]
    """Do it, and say what was done."""


class Action(NamedTuple, Generic[T]):
    name: str
    plan: Callable[[Desk, Person, T], Awaitable[Plan]]
    """Look at what would be done; `Refused` says why nothing would."""


class Column(NamedTuple, Generic[T]):
    title: str
    cell: Callable[[T, datetime], Cell]
    right: bool = False


def figures(title: str, cell: Callable[[T, datetime], Cell]) -> Column[T]:
    """Make a column of numbers: flush right, and sorted from the most down."""
    return Column(title, cell, right=True)


Opened: TypeAlias = Page | Jump


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet(Generic[T]):
    name: str
    title: str
    one: str
    """What a row is, for counting: `queue`."""
    columns: tuple[Column[T], ...]
    read: Callable[[Look], Awaitable[Found[T]]]
    row_id: Callable[[T], str]
    """What a row is known by from one look to the next."""
    sorted_by: str
    falling: bool = True
    empty: str
    """Said when there is no row."""
    open: Callable[[Look, T], Awaitable[Opened]]
    """What the key Enter shows of a row."""
    actions: tuple[Action[T], ...] = ()
    asks: frozenset[str] = frozenset()
    """Words of a filter that the database answers, and not the rows that are shown."""


AnySheet: TypeAlias = Sheet[Any]
