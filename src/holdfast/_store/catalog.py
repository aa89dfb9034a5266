"""The catalog of PostgreSQL: reads the columns, keys and references of the application's tables.

A table is given as SQL writes it: quoted, with its schema.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, NewType

from holdfast._store.statement import Statement, many, one_or_none, statement, value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast._store.statement import Row


TypeName = NewType("TypeName", str)
"""A type as the catalog writes it. Such text may become a part of a statement, and no other text that is not quoted."""


class Reference(NamedTuple):
    """A foreign key that refers to a table."""

    schema: str
    table: str
    columns: list[str]
    to_columns: list[str]


class ArchivedTable(NamedTuple):
    """A table in the schema `archive`."""

    comment: str | None
    partition_key: str | None
    """As the server writes it, such as `RANGE (created_at)`."""


def read_types(table: str) -> Statement[dict[str, TypeName]]:
    """Return the types of the columns of a table, in their order; none if there is no such table."""
    return statement("read_types", _types, table=table)


def read_archived_table(table: str) -> Statement[ArchivedTable | None]:
    """Return a table of the schema `archive`; None if there is no such table."""
    return statement("read_archived_table", one_or_none(ArchivedTable), table=table)


def list_references() -> Statement[list[tuple[str, str]]]:
    """Return each pair of tables, with their schemas, the first of which refers to the second."""
    return statement("list_references", list)


def references_to(table: str) -> Statement[list[Reference]]:
    """Return the foreign keys that refer to a table."""
    return statement("references_to", many(Reference), table=table)


def read_primary_key(table: str) -> Statement[str | None]:
    """Return the column of the table's primary key, if it is one whole number: files are sorted by it."""
    return statement("read_primary_key", one_or_none(str), table=table)


def is_read_by_place(table: str, at: str) -> Statement[bool]:
    """Return whether a table is one heap without an index that has its rows in the order of the column `at`."""
    return statement("is_read_by_place", value, table=table, at=at)


def table_exists(table: str) -> Statement[bool]:
    return statement("table_exists", value, table=table)


def schema_exists(schema: str) -> Statement[bool]:
    return statement("schema_exists", value, schema=schema)


def proven_type(text: str) -> Statement[TypeName | None]:
    """Return the text if the catalog writes a type like this with the current search_path, else None.

    Text that is no type may raise an error of PostgreSQL.
    """
    return statement("proven_type", one_or_none(TypeName), text=text)


def _types(rows: Sequence[Row]) -> dict[str, TypeName]:
    return {name: TypeName(type_) for name, type_ in rows}
