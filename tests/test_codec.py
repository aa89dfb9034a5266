from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidJob, JsonCodec, PayloadTooLarge

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

codec = JsonCodec()

# Every Python string, NUL characters and lone surrogates included.
strings = st.text(st.characters(exclude_categories=()))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | strings,
    lambda inner: st.lists(inner) | st.dictionaries(strings, inner),
)


@given(values)
def test_what_json_can_say_survives(value: object) -> None:
    text = codec.encode(value)
    assert codec.decode(text) == value
    text.encode()
    json.loads(text)


def test_plain_text_stays_readable() -> None:
    assert codec.encode({"to": "Zoë 😀", "n": 1}) == '{"to":"Zoë 😀","n":1}'


@pytest.mark.parametrize(
    "value", [{"a": "x\0y"}, {"a": "\ud800"}, {"\udc00": "\\u0000"}, {"$json": "1"}, {"$json": {}}]
)
def test_what_postgresql_cannot_read_is_wrapped(value: object, connect: Callable[..., psycopg.Connection[Any]]) -> None:
    text = codec.encode(value)
    assert codec.decode(text) == value
    row = connect().execute(
        "SELECT (p::json)::text, p::json ->> 'none', (p::jsonb) ->> 'none' FROM (SELECT %s) AS t (p)", [text]
    )
    assert row.fetchone() == (text, None, None)


def test_a_foreign_object_with_our_key_is_left_alone() -> None:
    assert codec.decode('{"$json":1}') == {"$json": 1}
    assert codec.decode('{"$json":"1","b":2}') == {"$json": "1", "b": 2}


@pytest.mark.parametrize(
    ("value", "name"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity"), ([1, math.nan], "NaN")]
)
def test_numbers_that_json_does_not_have_are_refused_by_their_place(value: object, name: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        codec.encode({"a": value}, kind="mail")
    place = "a.1" if isinstance(value, list) else "a"
    assert str(caught.value) == f"mail: {place} is {name}, which JSON does not have: pass None or a string instead"


@pytest.mark.parametrize("value", [{1, 2}, object(), b"bytes"])
def test_what_json_cannot_say_is_refused(value: object) -> None:
    with pytest.raises(InvalidJob, match=r"mail: a value is not JSON-serializable"):
        codec.encode({"a": value}, kind="mail")


def test_a_value_that_holds_itself_is_refused() -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(InvalidJob, match="payload: a value is not JSON-serializable"):
        codec.encode(endless)


@pytest.mark.parametrize("text", ["", "{", '{"a":NaN}', "Infinity", "nonsense", '{"$json":"{"}'])
def test_text_that_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(InvalidJob, match="not JSON"):
        codec.decode(text)


def test_size_is_measured_in_bytes() -> None:
    assert JsonCodec(max_bytes=6).encode("éé") == '"éé"'
    with pytest.raises(PayloadTooLarge) as caught:
        JsonCodec(max_bytes=5).encode("éé", kind="mail")
    assert (caught.value.kind, caught.value.size, caught.value.limit) == ("mail", 6, 5)


def test_the_limit_is_256_kib_and_the_error_does_not_carry_the_payload() -> None:
    secret = "s3cret" * 50_000
    with pytest.raises(PayloadTooLarge) as caught:
        codec.encode({"a": secret})
    assert caught.value.limit == 262_144
    assert "s3cret" not in repr(caught.value)
