"""Statements on the application's own tables, and on their copies in the schema `archive`.

All other statements are fixed text in `sql/`. These are composed, since the names of tables and columns are the
application's, and so is the number of columns and foreign keys: a parameter can stand for a value, and not for a name.
Names are quoted as `Identifier`, values as `Literal`. Three texts are used as they are: the condition of a declaration,
which is a part of the application's program, `TypeName`, which only the catalog gives, and the relation of a period,
which is an `Identifier` or comes from the catalog. There are no parameters, since a name may have a percent sign.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import date

    from holdfast._store.catalog import Reference, TypeName

# Older rows stay: the name of their month would not have six digits.
_OLDEST = "1000-01-01"
# No table can have this name, so that it hides none.
_REFERRING = Identifier("referring.row")
_AND, _COMMA, _NOTHING = SQL(" AND "), SQL(", "), SQL("")


class PeriodRows(NamedTuple):
    """The rows of a period: those of `relation` whose column `at` is in it."""

    relation: str
    """Quoted, with its schema."""
    at: str
    starts_on: str
    ends_on: str
    id: str | None
    """The column to sort by."""
    unique: bool
    """Whether an id occurs once, and has an index: then the rows are read in slices."""
    late: bool
    """Whether the relation has the column `late`, which is null in rows that are in their partition."""

    def copy(self, columns: Iterable[str], *, after: int | None, limit: int) -> Composed:
        """Return the COPY of the rows, or of a slice: at most `limit` rows with ids after `after`.

        The literals have no type of their own, so they take that of their column.
        """
        at = Identifier(self.at)
        conditions: list[Composable] = [
            SQL("{} >= {}").format(at, Literal(self.starts_on)),
            SQL("{} < {}").format(at, Literal(self.ends_on)),
        ]
        if self.late:
            conditions.append(SQL("late IS NULL"))
        if after is not None and self.id:
            conditions.append(SQL("{} > {}").format(Identifier(self.id), Literal(after)))
        return SQL("COPY (SELECT {} FROM {} WHERE {}{}{}) TO STDOUT (FORMAT csv, ENCODING 'UTF8')").format(
            _names(columns),
            SQL(self.relation),
            _AND.join(conditions),
            SQL(" ORDER BY {}").format(Identifier(self.id)) if self.id else _NOTHING,
            SQL(" LIMIT {}").format(Literal(limit)) if self.unique else _NOTHING,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OldRows:
    """The rows of a table that are to leave for the schema `archive`."""

    schema: str
    name: str
    at: str
    hot: str
    """How long rows stay, such as `12 months`."""
    where: str | None
    columns: Sequence[str]
    archived: Identifier
    references: Sequence[Reference]
    by_place: bool
    """Whether rows are read in the order in which they are stored, and not in that of `at`."""

    def choose(self, *, after: str | None, limit: int) -> Composed:
        """Return a query that locks the next rows which may leave, and skips those that another transaction has locked.

        It goes on where the last batch ended: rows that are old and stay are not read again for every batch. The rows
        come in the order of time if an index has it, and else in the order in which they are stored: to sort a table
        for each batch would take hours.
        """
        at = Identifier(self.at)
        position = SQL("ctid") if self.by_place else at
        conditions = [*self._old(), *self._unreferenced()]
        if after is not None:
            # Equal times may be on both sides of the end of a batch.
            passed = SQL("{} > {}::tid") if self.by_place else SQL("{} >= {}")
            conditions.append(passed.format(position, Literal(after)))
        return SQL(
            "SELECT ctid::text, tableoid::bigint, {position}::text, "
            "pg_catalog.date_trunc('month', {at}::timestamp)::date "
            "FROM {table} WHERE {conditions} {order} LIMIT {limit} FOR UPDATE SKIP LOCKED"
        ).format(
            position=position,
            at=at,
            table=self._table,
            conditions=_AND.join(conditions),
            order=_NOTHING if self.by_place else SQL("ORDER BY {}").format(at),
            limit=Literal(limit),
        )

    def move(self, table: int, places: Sequence[str]) -> Composed:
        """Return a statement that moves locked rows by their places. `table`: their own one, of one with partitions.

        It looks for references anew: a row that refers to one of these may have been committed just before it was
        locked, and no other can be since.
        """
        conditions = [
            SQL("ctid = ANY ({}::tid[])").format(Literal(list(places))),
            SQL("tableoid = {}").format(Literal(table)),
            *self._unreferenced(),
        ]
        return SQL(
            "WITH gone AS (DELETE FROM {table} WHERE {conditions} RETURNING {names}) "
            "INSERT INTO {archived} ({names}) SELECT {names} FROM gone"
        ).format(
            table=self._table, conditions=_AND.join(conditions), archived=self.archived, names=_names(self.columns)
        )

    @property
    def _table(self) -> Identifier:
        return Identifier(self.schema, self.name)

    def _old(self) -> list[Composable]:
        at = Identifier(self.at)
        conditions: list[Composable] = [
            SQL("{} < pg_catalog.now() - {}::interval").format(at, Literal(self.hot)),
            SQL("{} >= {}").format(at, Literal(_OLDEST)),
        ]
        if self.where:
            # On a line of its own, since it may end in a comment.
            conditions.append(SQL("({}\n)").format(SQL(self.where)))
        return conditions

    def _unreferenced(self) -> list[Composable]:
        """Return that no other row refers to a row, for each foreign key. A row may refer to itself."""
        conditions: list[Composable] = []
        own = Identifier(self.name)
        for reference in self.references:
            pairs = zip(reference.columns, reference.to_columns, strict=True)
            same: list[Composable] = [
                SQL("{}.{} = {}.{}").format(_REFERRING, Identifier(column), own, Identifier(to)) for column, to in pairs
            ]
            if (reference.schema, reference.table) == (self.schema, self.name):
                place = SQL("({row}.tableoid, {row}.ctid) <> ({own}.tableoid, {own}.ctid)")
                same.append(place.format(row=_REFERRING, own=own))
            conditions.append(
                SQL("NOT EXISTS (SELECT FROM {} AS {} WHERE {})").format(
                    Identifier(reference.schema, reference.table), _REFERRING, _AND.join(same)
                )
            )
        return conditions


def create_schema(name: str) -> Composed:
    return SQL("CREATE SCHEMA {}").format(Identifier(name))


def create_archived(table: Identifier, types: Mapping[str, TypeName], *, at: str) -> Composed:
    """Return a statement that creates a table with these columns, partitioned by the column `at`."""
    return SQL("CREATE TABLE {} ({}) PARTITION BY RANGE ({})").format(table, _declared(types), Identifier(at))


def describe_table(table: Identifier, comment: str) -> Composed:
    return SQL("COMMENT ON TABLE {} IS {}").format(table, Literal(comment))


def create_index(table: Identifier, column: str) -> Composed:
    return SQL("CREATE INDEX ON {} ({})").format(table, Identifier(column))


def add_column(table: Identifier, name: str, type_: TypeName) -> Composed:
    return SQL("ALTER TABLE {} ADD COLUMN {}").format(table, _declared({name: type_}))


def change_type(table: Identifier, column: str, type_: TypeName) -> Composed:
    return SQL("ALTER TABLE {} ALTER COLUMN {} TYPE {}").format(table, Identifier(column), SQL(type_))


def create_month(month: Identifier, table: Identifier, starts_on: date, ends_on: date) -> Composed:
    """Return a statement that creates the partition of a month, unless it exists."""
    bounds = (Literal(starts_on.isoformat()), Literal(ends_on.isoformat()))
    return SQL("CREATE TABLE IF NOT EXISTS {} PARTITION OF {} FOR VALUES FROM ({}) TO ({})").format(
        month, table, *bounds
    )


def lock_against_writers(table: Identifier) -> Composed:
    """Return a statement after which no row comes or goes until the end of the transaction. Readers do not wait."""
    return SQL("LOCK TABLE {} IN SHARE MODE").format(table)


def count_rows(table: Identifier) -> Composed:
    return SQL("SELECT count(*) FROM {}").format(table)


def drop_table(table: Identifier) -> Composed:
    return SQL("DROP TABLE {}").format(table)


def ensure_table(table: Identifier, types: Mapping[str, TypeName]) -> Composed:
    return SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(table, _declared(types))


def load_rows(table: Identifier, columns: Iterable[str]) -> Composed:
    """Return the COPY that adds rows to a table."""
    return SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(table, _names(columns))


def _names(columns: Iterable[str]) -> Composed:
    return _COMMA.join(map(Identifier, columns))


def _declared(types: Mapping[str, TypeName]) -> Composed:
    return _COMMA.join(SQL("{} {}").format(Identifier(name), SQL(type_)) for name, type_ in types.items())
