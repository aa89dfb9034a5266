from __future__ import annotations

import doctest
import json
from typing import Any

import pytest

from holdfast._model.codec import JsonCodec
from holdfast._ops import redaction
from holdfast._ops.redaction import HIDDEN, Redaction


def test_the_example_is_true() -> None:
    result = doctest.testmod(redaction)
    assert (result.attempted, result.failed) == (1, 0)


@pytest.mark.parametrize(
    "name",
    ["password", "Password", "PASSWORD", "user_password", "userPassword", "X-Api-Key", "apiKey", "api key",
     "accessToken", "refresh_token", "client-secret", "Authorization", "Set-Cookie", "credit.card",
     "privateKey", "iban"],
)  # fmt: skip
def test_a_field_is_hidden_however_its_name_is_written(name: str) -> None:
    assert Redaction().apply("k", {"a": [{name: {"deep": 1}}]}) == ({"a": [{name: HIDDEN}]}, True)


@pytest.mark.parametrize("name", ["tokens_used", "passwords_changed", "to", "card", "secretary", "key"])
def test_other_fields_are_shown(name: str) -> None:
    assert Redaction().apply("k", {name: 1}) == ({name: 1}, False)


@pytest.mark.parametrize("value", [None, 7, "password", [1, [2]], {}, {"a": None}])
def test_what_holds_nothing_to_hide_is_shown_as_it_is(value: Any) -> None:
    assert Redaction().apply("k", value) == (value, False)


def test_the_names_of_the_application_are_hidden_too() -> None:
    shown = Redaction(frozenset({"Date-Of-Birth"})).apply("k", {"date_of_birth": "1815-12-10", "iban": "GB00"})
    assert shown.value == {"date_of_birth": HIDDEN, "iban": "GB00"}


def test_the_function_sees_what_is_left_and_decides_by_kind() -> None:
    def only_ids(kind: str, value: Any) -> Any:
        assert "hush" not in str(value)
        return value if kind == "plain" else {"id": value["id"]}

    hiding = Redaction(function=only_ids)
    payload = {"id": 7, "to": "a@b.c", "password": "hush"}
    assert hiding.apply("mail", payload) == ({"id": 7}, True)
    assert hiding.apply("plain", payload) == ({"id": 7, "to": "a@b.c", "password": HIDDEN}, True)
    assert payload["password"] == "hush", "what is stored is not changed"  # noqa: S105 - made up


def test_a_function_that_fails_or_answers_with_no_json_shows_nothing() -> None:
    def failing(_kind: str, _value: Any) -> Any:
        raise KeyError("hush")

    assert Redaction(function=failing).apply("k", {"a": 1}) == (HIDDEN, True)
    assert Redaction(function=lambda _kind, _value: object()).apply("k", {"a": 1}) == (HIDDEN, True)


def test_what_is_too_deep_to_look_at_is_hidden() -> None:
    deep: Any = {"password": "hush"}
    for _ in range(200):
        deep = [deep]
    shown = Redaction().apply("k", deep)
    assert shown.redacted
    assert "hush" not in str(shown.value)


@pytest.mark.parametrize("bad", ["\0", "\ud800"])
def test_what_the_codec_has_wrapped_is_looked_into(bad: str) -> None:
    stored = json.loads(JsonCodec().encode({"to": f"a{bad}b", "password": "hunter2"}))
    assert stored.keys() == {"$json"}
    for value in (stored, {"event": stored}, [stored]):
        shown = Redaction().apply("mail.send", value)
        assert "hunter2" not in repr(shown)
        assert shown.redacted
        json.dumps(shown.value, ensure_ascii=False).encode()


def test_what_is_wrapped_and_holds_nothing_to_hide_is_shown_plainly() -> None:
    stored = json.loads(JsonCodec().encode({"to": "a\0b"}))
    assert Redaction().apply("mail.send", stored) == ({"to": "a\0b"}, False)


def test_what_looks_wrapped_and_is_not_is_hidden() -> None:
    assert Redaction().apply("mail.send", {"$json": "{password=hunter2"}) == (HIDDEN, True)


def test_the_function_gets_what_was_wrapped() -> None:
    seen: list[Any] = []
    stored = json.loads(JsonCodec().encode({"to": "a\0b"}))
    Redaction(function=lambda _, value: seen.append(value)).apply("mail.send", stored)
    assert seen == [{"to": "a\0b"}]


def test_a_function_that_changes_what_it_is_given_has_redacted_it() -> None:
    def redact(_kind: str, value: Any) -> Any:
        value["to"] = "nobody"
        return value

    assert Redaction(function=redact).apply("mail.send", {"to": "ada"}) == ({"to": "nobody"}, True)
