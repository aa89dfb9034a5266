from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast._model.errors import HoldfastError
from holdfast._store import schema
from holdfast._store.needs import TRIALS, steps
from holdfast._store.script import split

# Whatever hides a semicolon, and plain words. Two words that touch could make another token, so a space stands between.
ANY = st.text(alphabet="ab;'\"$-\\ \n", max_size=8)
TOKENS = st.one_of(
    st.sampled_from(["SELECT", "a1", "x$y", "$1", "(", ")", ",", "=", "::text", "date'1;'", "BEGIN", "END", "a-b"]),
    ANY.map(lambda text: "'" + text.replace("'", "''") + "'"),
    ANY.map(lambda text: "E'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"),
    ANY.map(lambda text: '"' + text.replace('"', '""') + '"'),
    st.tuples(st.sampled_from(["", "a", "_b1"]), ANY)
    .filter(lambda quote: f"${quote[0]}$" not in f"{quote[1]}$")
    .map(lambda quote: f"${quote[0]}${quote[1]}${quote[0]}$"),
    ANY.map(lambda text: "-- " + text.replace("\n", " ") + "\n"),
)
# At least one token that is no comment.
STATEMENTS = st.lists(TOKENS, max_size=6).map(lambda tokens: " ".join([*tokens, "x"]).strip())


@given(st.lists(STATEMENTS, max_size=5))
def test_statements_are_found_again(statements: list[str]) -> None:
    assert split(";\n".join(statements)) == statements
    assert split("".join(f"{statement} ; -- done;\n" for statement in statements)) == [
        statement if number == 0 else f"-- done;\n{statement}" for number, statement in enumerate(statements)
    ]


@pytest.mark.parametrize("text", ["", " \n", ";", "; ;\n;", "-- only this; and that", "-- one\n;-- two\n"])
def test_what_does_nothing_is_left_out(text: str) -> None:
    assert split(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1 /* a; b */",
        "SELECT 'a",
        'SELECT "a',
        "DO $$ a",
        "DO $a$ b $b$",
        "CREATE FUNCTION f() BEGIN ATOMIC; END",
    ],
)
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(HoldfastError, match=r"line 2: a script with .+ cannot be split into statements"):
        split(f"SELECT 1;\n{text};")


def test_our_own_scripts_are_read() -> None:
    for migration in schema.migrations():
        assert split(migration.sql), migration.name
        # Nothing is lost but semicolons, space and comments.
        for piece in split(migration.sql):
            assert piece in migration.sql
    for trial in TRIALS:
        assert len(steps(trial)) > 4
