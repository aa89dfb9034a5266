"""The one rule, as one table: the same secrets are hidden wherever a text is stored, logged or shown."""

from __future__ import annotations

import doctest
import json
import logging
import time
from typing import TYPE_CHECKING

import pytest

from holdfast._logs import masking
from holdfast._logs.failure import Failure
from holdfast._logs.log import HumanFormatter, JsonFormatter
from holdfast._logs.masking import MASK, is_secret, mask, mask_value
from holdfast._model.settings import Settings
from holdfast._ops.redaction import Redaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECRET = "hunter2"  # noqa: S105 - what must not appear
CASES = [
    ("no postgres://app:hunter2@db:5432/app", "no postgres://app:***@db:5432/app"),
    ("redis://:hunter2@cache/0 or amqp://u:hunter2@mq", "redis://:***@cache/0 or amqp://u:***@mq"),
    ("nats://a:hunter2@one,nats://b:hunter2@two", "nats://a:***@one,nats://b:***@two"),
    ("postgresql+asyncpg://u:p@hunter2/x@db/app", "postgresql+asyncpg://u:***@db/app"),
    ("https://hunter2@sentry.example/12", "https://***@sentry.example/12"),
    ("https://hooks.slack.com/services/T0/B0/hunter2", "https://hooks.slack.com/***"),
    ("https://discord.example/api/webhooks/12/hunter2", "https://discord.example/api/webhooks/***"),
    ("GET https://h/x?token=hunter2&y=1 failed", "GET https://h/x?token=***&y=1 failed"),
    ("https://h/o?X-Amz-Signature=hunter2&y=1", "https://h/o?X-Amz-Signature=***&y=1"),
    ("host=db password=hunter2 user=app", "host=db password=*** user=app"),
    ("host=db password='hun\\' hunter2' user=app", "host=db password=*** user=app"),
    ("password='a hunter2 that never ends", "password=***"),
    ("PGPASSWORD=hunter2 psql", "PGPASSWORD=*** psql"),
    ("pwd=hunter2;server=db", "pwd=***;server=db"),
    ("password: hunter2", "password: ***"),
    ("password: swordfish", "password: ***"),
    ("{'password': 'hunter2', 'user': 'a'}", "{'password': ***, 'user': 'a'}"),
    ('{"db_password": "hunter2"}', '{"db_password": ***}'),
    ('"{\\"password\\": \\"hunter2\\"}"', '"{\\"password\\": ***}"'),
    ("api_key=hunter2", "api_key=***"),
    ("X-Api-Key: hunter2", "X-Api-Key: ***"),
    ("error=token=hunter2", "error=token=***"),
    ("secret_key = hunter2", "secret_key = ***"),
    ("AWS_SECRET_ACCESS_KEY: hunter2", "AWS_SECRET_ACCESS_KEY: ***"),
    ("credentials=hunter2 jwt=hunter2 passphrase=hunter2", "credentials=*** jwt=*** passphrase=***"),
    ("dsn=hunter2 auth=hunter2", "dsn=*** auth=***"),
    ("Authorization: Bearer hunter2", "Authorization: Bearer ***"),
    ("proxy-authorization: Basic hunter2", "proxy-authorization: Basic ***"),
    ("{'headers': {'Authorization': 'Bearer hunter2'}}", "{'headers': {'Authorization': ***}}"),
    ("headers['Authorization'] = 'Token hunter2'", "headers['Authorization'] = ***"),
    ("sent Bearer hunter2.hunter2", "sent Bearer ***"),
    ("Cookie: sid=hunter2; other=hunter2", "Cookie: ***"),
    ("cmd --password hunter2 --user me", "cmd --password *** --user me"),
    ("it is eyJhbGciOiJI.eyJzdWIiOiIx.hunter2hunter2", "it is ***"),
    ("-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY----- in it", "*** in it"),
]
PLAIN = [
    "http://db:5432/ is down, see a@b.c",
    "https://x.example/orders?mail=a@b.c",
    "wrong password",
    "token: expired",
    "auth:5432 refused the connection",
    "bearer authentication is required",
    "KeyError: 'user'",
    "tokens_used=7, secretary=Ada",
    "password=",
]


@pytest.fixture
def _no_names_of_others(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    masking._added.cache_clear()
    yield
    masking._added.cache_clear()


def log_line(text: str) -> str:
    return HumanFormatter().format(logging.makeLogRecord({"msg": "%s", "args": (text,)}))


def json_line(text: str) -> str:
    return str(json.loads(JsonFormatter().format(logging.makeLogRecord({"msg": "%s", "args": (text,)})))["message"])


def extra_of_a_line(text: str) -> str:
    return str(json.loads(JsonFormatter().format(logging.makeLogRecord({"msg": "x", "why": [text]})))["why"][0])


def setting(text: str) -> str:
    rows = Settings.load({"HOLDFAST_ARCHIVE_BUCKET": " ".join(text.split())}).rows()
    return next(row.value for row in rows if row.name == "HOLDFAST_ARCHIVE_BUCKET")


WAYS: list[Callable[[str], str]] = [
    mask,
    lambda text: Failure.of(RuntimeError(text)).text,
    log_line,
    json_line,
    extra_of_a_line,
    lambda text: str(Redaction().apply("k", [text]).value[0]),
    setting,
]


def test_the_example_is_true() -> None:
    result = doctest.testmod(masking)
    assert (result.attempted, result.failed) == (1, 0)


@pytest.mark.parametrize(("text", "shown"), CASES)
def test_a_secret_is_hidden_and_the_rest_is_not(text: str, shown: str) -> None:
    assert mask(text) == shown
    assert mask(shown) == shown
    for way in WAYS:
        assert SECRET not in way(text)
        assert MASK in way(text)


@pytest.mark.parametrize("text", PLAIN)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert mask(text) == text


@pytest.mark.parametrize("limit", range(40, 80, 3))
def test_a_secret_that_is_cut_is_hidden(limit: int) -> None:
    shown = mask("x" * 20 + " postgres://app:" + SECRET * 20 + "@db", limit)
    assert SECRET[:3] not in shown


def test_values_are_masked_by_the_names_of_their_fields_and_within_texts() -> None:
    value = {"a": [{"Secret-Key": {"b": 1}}, "token=x"], "n": 7, "auth": None}
    assert mask_value(value) == {"a": [{"Secret-Key": MASK}, "token=***"], "n": 7, "auth": MASK}


def test_extra_fields_of_a_line_are_hidden_by_their_names() -> None:
    line = JsonFormatter().format(logging.makeLogRecord({"msg": "x", "api_key": SECRET, "token": 7}))
    assert json.loads(line)["api_key"] == MASK
    assert json.loads(line)["token"] == 7


@pytest.mark.usefixtures("_no_names_of_others")
def test_the_environment_adds_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_SECRET_NAMES", "x-shop-pin, Birth Day,,")
    assert mask("X_SHOP_PIN=1234 birth_day=2 token=3 day=4") == "X_SHOP_PIN=*** birth_day=*** token=*** day=4"
    assert is_secret("xShopPin")
    assert not is_secret("")
    assert Redaction().apply("k", {"birthDay": "1815-12-10"}).redacted


@pytest.mark.parametrize(
    "part",
    ["a://b:", "password='", 'token="', "[SQL: ", "x" * 50 + "://", "eyJ-", "a=", "a:'", "--a ", "cookie: a;",
     "-----BEGIN PRIVATE KEY-----", "Bearer ", "://hooks/", "token=token=", "a.", "bot12345:", "\\'", '"a":{', "://a@"],
)  # fmt: skip
def test_hostile_texts_take_time_by_their_length_only(part: str) -> None:
    started = time.process_time()
    mask((part * 70_000)[:65_536])
    assert time.process_time() - started < 3
