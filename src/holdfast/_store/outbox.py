"""Importing rows of another table: reads, locks and marks them there, and records each imported row once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

from holdfast._store.statement import Statement, blocks, column, many, nothing, statement, text_array

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from holdfast._store.statement import Parameter, Row

T = TypeVar("T")

MOST_TYPES = 1_000
"""The most types of rows that are counted."""
_WORD = re.compile(r"<<(\w+)>>")
_NOTHING = "NULL"
_ID = "after_id"


class OutboxColumn(NamedTuple):
    """A column of the other table."""

    name: str
    type: str
    """As SQL writes it, e.g. `character varying(40)`."""
    plain_type: str
    """Without length or precision."""
    required: bool
    """Whether it is NOT NULL."""
    unique: bool
    """Whether it alone has a unique index."""


class OutboxRow(NamedTuple):
    """A row of the other table."""

    id: str
    type: str | None
    payload: str | bytes | None
    key: str | None
    due: str | None
    """A time in UTC, as PostgreSQL writes it."""
    created: str | None
    """Its place in the order of creation; None if rows are read in the order of their ids."""


class TypeCount(NamedTuple):
    """How many rows of a type are not imported yet."""

    type: str | None
    rows: int


Condition: TypeAlias = "tuple[OutboxColumn, tuple[str, ...] | None]"
"""A column and the values that it may have; None: it must be null."""


@dataclass(frozen=True, slots=True)
class OutboxTable:
    """Another table: which of its columns mean what, and which of its rows are to be imported."""

    schema: str
    name: str
    id: OutboxColumn
    type: OutboxColumn
    payload: OutboxColumn
    key: OutboxColumn | None = None
    due: OutboxColumn | None = None
    created: OutboxColumn | None = None
    """Rows are imported in its order, oldest first. Default: in the order of ids."""
    conditions: tuple[Condition, ...] = ()
    """All of them hold for a row that is to be imported."""

    @property
    def source(self) -> str:
        """The table's name as it is recorded and shown: quoted where SQL needs it."""
        return f"{_shown(self.schema)}.{_shown(self.name)}"

    def count_rows(self) -> Statement[list[TypeCount]]:
        """Count the rows that are not imported yet, by type, the most frequent first."""
        return self._statement("count_rows", many(TypeCount), {"source": self.source, "limit": MOST_TYPES})

    def read_rows(
        self, *, types: Sequence[str] | None, after: OutboxRow | None, limit: int, lock: bool
    ) -> Statement[list[OutboxRow]]:
        """Read up to `limit` rows, in order, imported or not.

        `types`: None reads all. `after`: the last row of the page before. `lock`: until the end of the transaction;
        rows that another transaction has locked are skipped.
        """
        params: dict[str, Parameter] = {"types": None if types is None else text_array(types), "limit": limit}
        if after is not None:
            params |= {_ID: after.id} | ({} if self.created is None else {"after_created": after.created})
        name = "lock_rows" if lock else "read_rows"
        return self._statement(name, many(OutboxRow), params, after=_after(self, after))

    def mark_rows(self, ids: Iterable[str], values: Sequence[tuple[OutboxColumn, str]]) -> Statement[None]:
        """Set these columns of the rows."""
        params: dict[str, Parameter] = {f"set_{place}": value for place, (_, value) in enumerate(values)}
        params["ids"] = text_array(ids)
        assigned = [
            _fill("assigned", column=_quoted(column.name), param=f"set_{place}", column_type=column.type)
            for place, (column, _) in enumerate(values)
        ]
        return self._statement("mark_rows", nothing, params, assignments=", ".join(assigned))

    def delete_rows(self, ids: Iterable[str]) -> Statement[None]:
        return self._statement("delete_rows", nothing, {"ids": text_array(ids)})

    def imported_rows(self, ids: Iterable[str]) -> Statement[list[str]]:
        return statement("imported_rows", column, source=self.source, ids=text_array(ids))

    def record_imports(self, ids: Iterable[str]) -> Statement[list[str]]:
        """Record that this transaction imports the rows; return those that no other import has recorded."""
        return statement("record_imports", column, source=self.source, ids=text_array(ids))

    def _statement(
        self,
        name: str,
        read: Callable[[Sequence[Row]], T],
        params: Mapping[str, Parameter],
        *,
        after: str = "",
        assignments: str = "",
    ) -> Statement[T]:
        wheres = [_condition(place, *condition) for place, condition in enumerate(self.conditions)]
        if "<<conditions>>" in _fill(name):
            given = [(place, values) for place, (_, values) in enumerate(self.conditions) if values is not None]
            params = {**params, **{f"where_{place}": text_array(values) for place, values in given}}
        created, id_ = _created(self), f"r.{_quoted(self.id.name)}"
        sql = _fill(
            name,
            table=f"{_quoted(self.schema)}.{_quoted(self.name)}",
            id=_quoted(self.id.name),
            id_type=self.id.type,
            type=_quoted(self.type.name),
            payload=f"r.{_quoted(self.payload.name)}" + ("" if self.payload.plain_type == "bytea" else "::text"),
            key=_NOTHING if self.key is None else f"r.{_quoted(self.key.name)}",
            due=_NOTHING if self.due is None else f"r.{_quoted(self.due.name)}",
            created=created,
            order=id_ if self.created is None else f"{created}, {id_}",
            conditions="".join(wheres),
            after=after,
            assignments=assignments,
        )
        return Statement(sql, params, read)


def list_columns(schema: str, table: str) -> Statement[list[OutboxColumn]]:
    """Return the columns of a table, in their order; none if there is no such table."""
    return statement("list_columns", many(OutboxColumn), schema=schema, table=table)


def list_tables() -> Statement[list[str]]:
    """Return the names of other tables, with their schemas."""
    return statement("list_tables", column)


def _created(table: OutboxTable) -> str:
    if table.created is None:
        return _NOTHING
    name = _quoted(table.created.name)
    return f"r.{name}" if table.created.required else _fill("created_or_first", column=name)


def _after(table: OutboxTable, after: OutboxRow | None) -> str:
    if after is None:
        return ""
    id_, id_type = _quoted(table.id.name), table.id.type
    if table.created is None:
        return _fill("after_id", id=id_, id_type=id_type)
    return _fill("after_created", id=id_, id_type=id_type, created=_created(table), created_type=table.created.type)


def _condition(place: int, which: OutboxColumn, values: tuple[str, ...] | None) -> str:
    return _fill("is_null" if values is None else "equals", column=_quoted(which.name), param=f"where_{place}")


def _fill(name: str, **words: str) -> str:
    """Return the text of this name, with the words that are given in their places."""
    texts = _texts()

    def fill(word: re.Match[str]) -> str:
        given = words.get(word[1])
        if given is None and word[1] in texts:
            return _WORD.sub(fill, texts[word[1]])
        return word[0] if given is None else given

    return _WORD.sub(fill, texts[name])


@cache
def _texts() -> dict[str, str]:
    text = files("holdfast._store").joinpath("sql", "outbox", "rows.sql").read_text("utf-8")
    return {name: sql.rstrip() for _, name, sql in blocks(text)}


def _quoted(name: str) -> str:
    """Return a name quoted for SQL, its percent signs doubled beside placeholders."""
    return '"' + name.replace('"', '""').replace("%", "%%") + '"'


def _shown(name: str) -> str:
    return name if re.fullmatch(r"[a-z_][a-z0-9_$]*", name) else '"' + name.replace('"', '""') + '"'
