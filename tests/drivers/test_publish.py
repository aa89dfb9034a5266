"""Events on every kind of connection: there when the caller's transaction commits, and never if it does not."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any

import asyncpg
import psycopg
import pytest
import sqlalchemy as sa
from django.db import connection, transaction
from opentelemetry import trace
from pydantic import BaseModel, Field, PositiveInt
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from holdfast import Holdfast, InvalidEvent, PayloadTooLarge, UnsupportedConnection
from holdfast._drivers import run_sync
from holdfast._store.statement import Statement
from tests.kit.django_config import connected

if TYPE_CHECKING:
    from collections.abc import Callable

    Connect = Callable[..., psycopg.Connection[Any]]


@dataclass(frozen=True)
class Paid:
    invoice: int
    on: date = date(2026, 1, 2)


class Shipped(BaseModel):
    order: PositiveInt


class BackOutError(Exception):
    pass


app = Holdfast()
paid = app.event("invoice.paid", Paid)
shipped = app.event("order.shipped", Shipped, version=3)
posted = app.event("said", dict[str, Any])

SPAN = trace.SpanContext(0x1234, 0x5678, is_remote=False, trace_flags=trace.TraceFlags(1))
TRACEPARENT = "00-00000000000000000000000000001234-0000000000005678-01"


def log(database: str) -> list[Any]:
    """Return what the committed events say, in the order of their ids."""
    with psycopg.connect(database) as conn:
        rows = conn.execute("SELECT (payload ->> 'invoice')::int FROM holdfast.event ORDER BY id").fetchall()
    return [row[0] for row in rows]


async def test_psycopg(database: str) -> None:
    async with await psycopg.AsyncConnection.connect(database) as conn:
        await app.publish(conn, paid.new(Paid(1)))
        await conn.rollback()
        first = await app.publish(conn, paid.new(Paid(2)))
        rest = await app.publish_many(conn, [paid.new(Paid(3)), paid.new(Paid(4))])
        async with conn.transaction(force_rollback=True):
            await app.publish_many(conn, [paid.new(Paid(5)), paid.new(Paid(6))])
        assert log(database) == []
        assert [first, *rest] == sorted([first, *rest])
        await conn.commit()
        assert log(database) == [2, 3, 4]
        async with conn.pipeline():
            await app.publish(conn, paid.new(Paid(7)))
            await app.publish(conn, paid.new(Paid(8)))
        assert await app.publish_many(conn, []) == []
    assert log(database) == [2, 3, 4, 7, 8]


def test_psycopg_sync(database: str) -> None:
    with psycopg.connect(database) as conn:
        app.sync.publish(conn, paid.new(Paid(1)))
        conn.rollback()
        first = app.sync.publish(conn, paid.new(Paid(2)))
        rest = app.sync.publish_many(conn, [paid.new(Paid(3)), paid.new(Paid(4))])
        assert first < rest[0] < rest[1]
        assert app.sync.publish_many(conn, []) == []
        assert log(database) == []
    assert log(database) == [2, 3, 4]


async def test_asyncpg(database: str) -> None:
    conn: asyncpg.Connection[Any] = await asyncpg.connect(database)
    with suppress(BackOutError):
        async with conn.transaction():
            await app.publish(conn, paid.new(Paid(1)))
            raise BackOutError
    async with conn.transaction():
        first = await app.publish(conn, paid.new(Paid(2), key="k", headers={"a": "b"}))
        rest = await app.publish_many(conn, [paid.new(Paid(3)), paid.new(Paid(4))])
        assert log(database) == []
    assert first < rest[0] < rest[1]
    await app.publish(conn, paid.new(Paid(5)))
    wrong: Any = conn
    with pytest.raises(UnsupportedConnection):
        app.sync.publish(wrong, paid.new(Paid(6)))
    await conn.close()
    assert log(database) == [2, 3, 4, 5]


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_sqlalchemy(database: str, driver: str) -> None:
    engine = create_async_engine(database.replace("postgresql://", f"postgresql+{driver}://"))
    async with AsyncSession(engine) as session:
        await app.publish(session, paid.new(Paid(1)))
        await session.rollback()
        await app.publish(session, paid.new(Paid(2), key="k", headers={"a": "b"}))
        nested = await session.begin_nested()
        await app.publish(session, paid.new(Paid(3)))
        await nested.rollback()
        await app.publish_many(session, [paid.new(Paid(4)), paid.new(Paid(5))])
        assert log(database) == []
        await session.commit()
    async with engine.begin() as conn:
        await app.publish(conn, paid.new(Paid(6)))
        await conn.run_sync(lambda sync: app.sync.publish(sync, paid.new(Paid(7))))
    await engine.dispose()
    assert log(database) == [2, 4, 5, 6, 7]


def test_sqlalchemy_sync(database: str) -> None:
    engine = sa.create_engine(database.replace("postgresql://", "postgresql+psycopg://"))
    with Session(engine) as session:
        app.sync.publish(session, paid.new(Paid(1)))
        session.rollback()
        app.sync.publish_many(session, [paid.new(Paid(2)), paid.new(Paid(3))])
        session.commit()
    with engine.begin() as conn:
        app.sync.publish(conn, paid.new(Paid(4)))
    engine.dispose()
    assert log(database) == [2, 3, 4]


def test_django(database: str) -> None:
    with connected(default=database):
        with suppress(BackOutError), transaction.atomic():
            app.sync.publish(connection, paid.new(Paid(1)))
            raise BackOutError
        with transaction.atomic():
            app.sync.publish(connection, paid.new(Paid(2)))
            app.sync.publish_many(connection, [paid.new(Paid(3)), paid.new(Paid(4))])
            assert log(database) == []
    assert log(database) == [2, 3, 4]


async def test_other_things_are_refused(database: str) -> None:
    async with await psycopg.AsyncConnection.connect(database) as conn:
        wrong: Any = conn
        with pytest.raises(UnsupportedConnection, match=r"without \.sync"):
            app.sync.publish(wrong, paid.new(Paid(1)))
        for given in (paid, Paid(1), "invoice.paid"):
            wrong = given
            with pytest.raises(TypeError, match=r"app\.publish: .*\.new\(payload\)"):
                await app.publish(conn, wrong)
            with pytest.raises(TypeError, match=r"app\.publish_many: .*\.new\(payload\)"):
                await app.publish_many(conn, [wrong])


def test_from_sql_and_from_a_trigger(connect: Connect) -> None:
    conn = connect()
    conn.execute("SELECT holdfast.publish('invoice.paid', '{\"invoice\": 7}', key => '7')")
    conn.execute(
        """CREATE TABLE bill (id int, paid_at timestamptz);
        CREATE FUNCTION publish_paid() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            PERFORM holdfast.publish(
                'invoice.paid', json_build_object('invoice', NEW.id), key => NEW.id::text, version => 2);
            RETURN NULL;
        END $$;
        CREATE TRIGGER paid AFTER UPDATE ON bill FOR EACH ROW EXECUTE FUNCTION publish_paid();
        INSERT INTO bill VALUES (8, NULL), (9, NULL)"""
    )
    conn.execute("UPDATE bill SET paid_at = now() WHERE id = 8")
    with conn.transaction(force_rollback=True):
        conn.execute("UPDATE bill SET paid_at = now() WHERE id = 9")
    rows = conn.execute("SELECT topic, payload, key, version FROM holdfast.event ORDER BY id").fetchall()
    assert rows == [("invoice.paid", {"invoice": 7}, "7", 1), ("invoice.paid", {"invoice": 8}, "8", 2)]


COLUMNS = "SELECT topic, payload, version, key, headers, trace, xid = pg_current_xact_id(), shard FROM holdfast.event"


@pytest.mark.parametrize("many", [False, True])
def test_every_column_arrives(connect: Connect, many: bool) -> None:
    conn = connect()
    event = shipped.new(Shipped(order=7), key='k "1"', headers={"tenant": "a\nb"})
    with trace.use_span(trace.NonRecordingSpan(SPAN)), conn.transaction():
        if many:
            app.sync.publish_many(conn, [event, shipped.new(Shipped(order=8), key='k "1"')])
        else:
            app.sync.publish(conn, event)
        first, *rest = conn.execute(f"{COLUMNS} ORDER BY id".encode()).fetchall()
    assert first[:7] == ("order.shipped", {"order": 7}, 3, 'k "1"', {"tenant": "a\nb"}, TRACEPARENT, True)
    assert all(row[-1] == first[-1] for row in rest), "events of one key are of one shard"
    app.sync.publish(conn, shipped.new(Shipped(order=9)))
    last = conn.execute(f"{COLUMNS} ORDER BY id DESC LIMIT 1".encode()).fetchone()
    assert last is not None
    assert last[3:6] == (None, None, None)


@pytest.mark.parametrize("text", ["plain", "Zoë 😀", "'; %s %(a)s {} \\ \" :a", "line\nline"])
@pytest.mark.parametrize("many", [False, True])
def test_any_text_survives(connect: Connect, text: str, many: bool) -> None:
    conn = connect()
    event = posted.new({"text": text, "n": 10**30}, key=text.partition("\n")[0], headers={"h": text})
    if many:
        app.sync.publish_many(conn, [event])
    else:
        app.sync.publish(conn, event)
    row = conn.execute("SELECT payload::text, key, headers FROM holdfast.event").fetchone()
    assert row is not None
    assert posted.read(row[0]) == {"text": text, "n": 10**30}
    assert row[1:] == (text.partition("\n")[0], {"h": text})


def test_what_does_not_fit_its_topic_is_not_published() -> None:
    wrong: Any = {"order": 0}
    with pytest.raises(InvalidEvent, match=r"order\.shipped: Shipped: order: .*greater than 0"):
        shipped.new(wrong)
    broken: Any = Paid(1, on="soon")  # type: ignore[arg-type]
    with pytest.raises(InvalidEvent, match=r"invoice\.paid: it has a value that is not of the type") as caught:
        paid.new(broken)
    assert "soon" not in str(caught.value)
    for options in ({"key": ""}, {"key": "x" * 501}, {"headers": {"a": 1}}, {"headers": {"": "a"}}):
        given: Any = options
        with pytest.raises(InvalidEvent, match=r"^invoice\.paid: (key|headers)"):
            paid.new(Paid(1), **given)
    with pytest.raises((InvalidEvent, PayloadTooLarge)):
        posted.new({"text": "x" * 2**24})


@dataclass
class Counted:
    copies: Annotated[int, Field(gt=0)]


def test_instances_are_validated_before_they_are_published() -> None:
    counted = Holdfast().event("counted", list[Counted])
    assert counted.read(counted.new([Counted(1)]).payload) == [Counted(1)]
    with pytest.raises(InvalidEvent, match=r"^counted: .*copies: Input should be greater than 0"):
        counted.new([Counted(1), Counted(-1)])


def test_what_is_read_is_validated_too() -> None:
    assert paid.read('{"invoice": 7, "on": "2026-02-03"}') == Paid(7, date(2026, 2, 3))
    with pytest.raises(InvalidEvent, match=r"order\.shipped"):
        shipped.read('{"order": -1}')
    with pytest.raises(InvalidEvent, match=r"order\.shipped"):
        shipped.read("{")


def test_what_the_database_refuses_of_an_event(connect: Connect) -> None:
    conn = connect()

    for call, rule in {
        "'', '{}'": "topic: 1 to 200 bytes",
        "'t', '{}', key => ''": "key: 1 to 500 bytes",
        "'t', '{}', version => 0": "version: 1 to 32767",
    }.items():
        with pytest.raises(InvalidEvent, match=rule):
            run_sync(conn, Statement(f"SELECT holdfast.publish({call})", {}, len))


@pytest.mark.parametrize(("name", "version"), [("", 1), ("t" * 201, 1), ("t\n", 1), ("t", 0), ("t", 40_000)])
def test_what_is_no_topic(name: str, version: int) -> None:
    with pytest.raises(InvalidEvent, match=r"topic|version"):
        Holdfast().event(name, Paid, version=version)
