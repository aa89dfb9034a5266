from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import pytest

from holdfast._store.statement import (
    column,
    many,
    nothing,
    number_array,
    one,
    one_or_none,
    statement,
    statements,
    text_array,
    value,
)
from tests.kit.workers import number

if TYPE_CHECKING:
    from tests.kit.workers import Connect

_PLACEHOLDER = re.compile(r"%\((\w+)\)s")


def test_every_statement_can_be_prepared(connect: Connect) -> None:
    """On a freshly migrated database: no statement names what the schema has not."""
    conn = connect()
    assert statements()
    for name, sql in statements().items():
        places = iter(range(1, 100))
        # %% is how a percent sign is written beside placeholders.
        numbered = _PLACEHOLDER.sub(lambda _, places=places: f"${next(places)}", sql).replace("%%", "%")  # type: ignore[misc]
        conn.execute(f"PREPARE {name} AS {numbered}".encode())
    assert number(conn, "SELECT count(*) FROM pg_prepared_statements") == len(statements())


def test_a_statement_is_one_command() -> None:
    for name, sql in statements().items():
        assert ";" not in sql, name


class Pair(NamedTuple):
    id: int
    name: str


def test_rows_become_values() -> None:
    rows = [(1, "a"), (2, "b")]
    assert statement("read_clock", nothing).read(rows) is None
    assert (value(rows), column(rows)) == (1, [1, 2])
    assert one(Pair)(rows) == one_or_none(Pair)(rows) == Pair(1, "a")
    assert one_or_none(Pair)([]) is None
    assert many(Pair)(rows) == [Pair(1, "a"), Pair(2, "b")]


TEXTS = [
    "plain",
    "",
    "NULL",
    'quo"ted',
    "back\\slash",
    "{brace,comma}",
    " spaces ",
    "new\nline",
    "ünïcode",
    "'",
    '\\\\"',
]


def test_arrays_of_texts_arrive_as_they_were(connect: Connect) -> None:
    conn = connect()
    given = [*TEXTS, None]
    assert number(conn, "SELECT %s::text[]", text_array(given)) == given
    assert number(conn, "SELECT %s::text[]", text_array([])) == []


@pytest.mark.parametrize("numbers", [[], [1], [3, -1, 2**63 - 1]], ids=len)
def test_arrays_of_numbers_arrive_as_they_were(connect: Connect, numbers: list[int]) -> None:
    assert number(connect(), "SELECT %s::bigint[]", number_array(numbers)) == numbers
