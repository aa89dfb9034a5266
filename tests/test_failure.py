from __future__ import annotations

import time
from datetime import date  # noqa: TC003 - pydantic reads it
from typing import TYPE_CHECKING, Any, Literal

import asyncpg
import psycopg
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, ValidationError, field_validator
from sqlalchemy.ext.asyncio import create_async_engine

from holdfast._logs.failure import CODE_LIMIT, TEXT_LIMIT, Failure

if TYPE_CHECKING:
    from collections.abc import Callable

SECRET = "hunter2"  # noqa: S105 - what must not appear


def text_of(message: str) -> str:
    return Failure.of(RuntimeError(message)).text


def test_the_code_is_the_class_or_the_errors_own() -> None:
    class DeclinedError(Exception):
        code: object = "card_declined"

    assert Failure.of(KeyError("a")) == Failure("KeyError", "'a'")
    assert Failure.of(DeclinedError("no")) == Failure("card_declined", "no")
    for code in ("", "x" * 101, 404, None):
        error = DeclinedError("no")
        error.code = code
        assert Failure.of(error).code == "DeclinedError"


def test_a_long_class_name_is_cut() -> None:
    assert len(Failure.of(type("E" * 500, (Exception,), {})()).code) == CODE_LIMIT


def test_the_text_is_one_bounded_line() -> None:
    assert text_of("a\n\tb\r\n  c\x00\x1b[31m\x85d\u2028e") == "a b c [31m d e"
    assert text_of("half \ud800 pair") == "half ? pair"
    assert text_of("a\u202ecba") == "acba"
    assert text_of("x" * 2_000) == "x" * 2_000
    assert text_of("x" * 2_001) == "x" * 1_999 + "…"
    assert text_of("") == "RuntimeError"


@given(st.text(st.characters(exclude_categories=())), st.text(st.characters(exclude_categories=())))
def test_every_failure_can_be_stored(code: str, text: str) -> None:
    failure = Failure(code, text)
    assert 1 <= len(failure.code) <= CODE_LIMIT
    assert 1 <= len(failure.text) <= TEXT_LIMIT
    assert "\x00" not in failure.text.encode().decode()
    assert failure.text == " ".join(failure.text.split())
    assert Failure(failure.code, failure.text).code == failure.code


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("no postgres://app:hunter2@db:5432/app", "no postgres://app:***@db:5432/app"),
        ("no redis://:hunter2@cache/0 or amqp://u:hunter2@mq", "no redis://:***@cache/0 or amqp://u:***@mq"),
        ("no postgresql+asyncpg://u:p@hunter2/x@db/app", "no postgresql+asyncpg://u:***@db/app"),
        ("host=db password=hunter2 user=app", "host=db password=*** user=app"),
        ("host=db password='hun\\' hunter2' user=app", "host=db password=*** user=app"),
        ("PGPASSWORD=hunter2 psql", "PGPASSWORD=*** psql"),
        ("db?user=a&password=hunter2&x=1", "db?user=a&password=***&x=1"),
        ("{'password': 'hunter2', 'user': 'a'}", "{'password': ***, 'user': 'a'}"),
        ('{"db_password": "hunter2"}', '{"db_password": ***}'),
        ("pwd=hunter2;server=db", "pwd=***;server=db"),
        ("http://db:5432/ is down, see a@b.c", "http://db:5432/ is down, see a@b.c"),
        ("wrong password", "wrong password"),
    ],
)
def test_passwords_are_masked(message: str, shown: str) -> None:
    assert text_of(message) == shown


def test_a_password_that_is_cut_in_two_is_masked() -> None:
    for size in range(8_100, 8_200, 7):
        assert SECRET[:4] not in text_of("x" * size + " postgres://app:" + SECRET * 2_000)


@pytest.mark.parametrize("part", ["a://b:", "password='", "[SQL: ", "query argument $1", "\n", "x" * 50 + "://"])
def test_hostile_messages_take_no_time(part: str) -> None:
    started = time.process_time()
    text_of(part * 100_000)
    assert time.process_time() - started < 2


def test_an_error_that_cannot_be_printed_is_named() -> None:
    class OddError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    class WorseError(Exception):
        def __str__(self) -> str:
            return 7  # type: ignore[return-value]  # noqa: PLE0307 - that is the mistake

        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

    assert Failure.of(OddError()) == Failure("OddError", "<OddError that cannot be printed>")
    assert Failure.of(WorseError()) == Failure("WorseError", "<WorseError that cannot be printed>")


def test_groups_are_summed_up() -> None:
    inner = ExceptionGroup("inner", [KeyError("k"), ConnectionError("redis://:hunter2@c")])
    failure = Failure.of(ExceptionGroup("outer", [ValueError("v"), inner]))
    assert failure == Failure(
        "ExceptionGroup", "3 errors: ValueError: v; KeyError: 'k'; ConnectionError: redis://:***@c"
    )
    many = ExceptionGroup("many", [ValueError("x" * 9_999)] * 50)
    assert Failure.of(many).text.startswith("50 errors: ValueError: xxx")
    assert Failure.of(many).text.endswith("; …")


def test_validation_errors_show_no_input() -> None:
    class Cat(BaseModel):
        type: Literal["cat"]

    class Dog(BaseModel):
        type: Literal["dog"]

    class Order(BaseModel):
        count: int
        day: date
        notes: dict[str, int]
        pet: Cat | Dog = Field(discriminator="type")
        owner: str = ""

        @field_validator("owner")
        @classmethod
        def check(cls, value: str) -> str:
            raise ValueError(f"nobody is called {value}")

    with pytest.raises(ValidationError) as caught:
        Order.model_validate(
            {"count": SECRET, "day": SECRET, "notes": {"hunter2 !": SECRET}, "pet": {"type": SECRET}, "owner": SECRET}
        )
    failure = Failure.of(caught.value)
    assert failure.code == "ValidationError"
    assert SECRET not in failure.text
    assert failure.text.startswith("Order: count: Input should be a valid integer")
    assert "owner: Value error, nobody is called …" in failure.text


CREATE = "CREATE TABLE person (email text PRIMARY KEY)"
INSERT = "INSERT INTO person VALUES ('hunter2')"


def assert_text_has_no_value(exc: BaseException, code: str) -> None:
    failure = Failure.of(exc)
    assert SECRET in str(exc)
    assert SECRET not in failure.text
    assert failure.code == code
    assert 'duplicate key value violates unique constraint "person_pkey"' in failure.text


def test_psycopg_errors_show_no_data(connect: Callable[..., psycopg.Connection[Any]]) -> None:
    conn = connect()
    conn.execute(CREATE)
    conn.execute(INSERT)
    with pytest.raises(psycopg.Error) as caught:
        conn.execute(INSERT)
    assert_text_has_no_value(caught.value, "UniqueViolation")
    with pytest.raises(psycopg.Error) as caught:
        conn.execute("SELECT 'hunter2' FROM nowhere")
    assert Failure.of(caught.value) == Failure("UndefinedTable", 'relation "nowhere" does not exist')
    wrapped = RuntimeError(f"could not save: {caught.value}")
    assert Failure.of(wrapped).text == 'could not save: relation "nowhere" does not exist'


async def test_asyncpg_errors_show_no_data(database: str) -> None:
    conn = await asyncpg.connect(database)
    try:
        await conn.execute(CREATE)
        await conn.execute(INSERT)
        with pytest.raises(asyncpg.PostgresError) as caught:
            await conn.execute(INSERT)
        assert_text_has_no_value(caught.value, "UniqueViolationError")
        with pytest.raises(asyncpg.DataError) as invalid:
            await conn.fetch("SELECT $1::int", SECRET)
        assert Failure.of(invalid.value) == Failure("DataError", "invalid input for query argument $1")
    finally:
        await conn.close()


def test_sqlalchemy_errors_show_no_data(database: str) -> None:
    engine = sa.create_engine(database.replace("postgresql://", "postgresql+psycopg://"))
    with engine.connect() as conn:
        conn.execute(sa.text(CREATE))
        conn.execute(sa.text("INSERT INTO person VALUES (:email)"), {"email": SECRET})
        with pytest.raises(sa.exc.IntegrityError) as caught:
            conn.execute(sa.text("INSERT INTO person VALUES (:email)"), {"email": SECRET})
    engine.dispose()
    assert_text_has_no_value(caught.value, "IntegrityError")
    wrapped = RuntimeError(f"could not save: {caught.value}")
    assert SECRET not in Failure.of(wrapped).text


async def test_sqlalchemy_over_asyncpg_shows_no_data(database: str) -> None:
    engine = create_async_engine(database.replace("postgresql://", "postgresql+asyncpg://"))
    async with engine.connect() as conn:
        await conn.execute(sa.text(CREATE))
        await conn.execute(sa.text("INSERT INTO person VALUES (:email)"), {"email": SECRET})
        with pytest.raises(sa.exc.IntegrityError) as caught:
            await conn.execute(sa.text("INSERT INTO person VALUES (:email)"), {"email": SECRET})
    await engine.dispose()
    assert_text_has_no_value(caught.value, "IntegrityError")
