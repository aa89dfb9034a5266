"""Databases and connections whose encoding lacks a character: refused at the call, and a dead letter at a result."""

from __future__ import annotations

from datetime import timedelta
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import psycopg
import pytest
import sqlalchemy as sa
from django.db import connection, transaction
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from holdfast import Holdfast, InvalidEvent, InvalidJob, Job, Reschedule, Retry
from holdfast._engine.runner import Counts, Runner, Tick
from holdfast._engine.runners.ticker import Limits
from holdfast._model.schedule import Every
from holdfast._store.schema import migrate
from tests.kit.databases import clone, encoded
from tests.kit.django_config import connected
from tests.kit.fleet import SOON, crew, make_due, runs, schedule
from tests.kit.ledger import Ledger
from tests.kit.pace import QUICK
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tools.postgres import Server

EURO = "5 €"
_LOGS = "SELECT log, traceback FROM holdfast.attempt WHERE job_id = %s ORDER BY ended_at"
app = Holdfast()
noted = app.event("said", str)


@app.job("note")
async def note(text: str = "") -> str:
    return text


@pytest.fixture(scope="module")
def latin1_template(server: Server) -> Iterator[str]:
    with encoded(server, "LATIN1") as name:
        with psycopg.connect(server.url(name), autocommit=True, client_encoding="UTF8") as conn:
            migrate(conn)
        yield name


@pytest.fixture
def latin1(server: Server, latin1_template: str) -> Iterator[str]:
    with clone(server, latin1_template) as url:
        yield url


SYNC: dict[str, tuple[type[Exception], Callable[[Any], object]]] = {
    "enqueue": (InvalidJob, lambda conn: app.sync.enqueue(conn, note.new(EURO))),
    "enqueue_with_options": (
        InvalidJob,
        lambda conn: app.sync.enqueue(conn, note.new("").options(headers={"price": EURO})),
    ),
    "enqueue_many": (InvalidJob, lambda conn: app.sync.enqueue_many(conn, [note.new("ü"), note.new(EURO)])),
    "enqueue_group": (InvalidJob, lambda conn: app.sync.enqueue_group(conn, [note.new(EURO)], then=note.new())),
    "publish": (InvalidEvent, lambda conn: app.sync.publish(conn, noted.new(EURO))),
    "publish_many": (InvalidEvent, lambda conn: app.sync.publish_many(conn, [noted.new("ü"), noted.new(EURO)])),
}
ASYNC: dict[str, tuple[type[Exception], Callable[[Any], Any]]] = {
    "enqueue": (InvalidJob, lambda conn: app.enqueue(conn, note.new(EURO))),
    "enqueue_many": (InvalidJob, lambda conn: app.enqueue_many(conn, [note.new("ü"), note.new(EURO)])),
    "enqueue_group": (InvalidJob, lambda conn: app.enqueue_group(conn, [note.new(EURO)], then=note.new())),
    "publish": (InvalidEvent, lambda conn: app.publish(conn, noted.new(EURO))),
    "publish_many": (InvalidEvent, lambda conn: app.publish_many(conn, [noted.new("ü"), noted.new(EURO)])),
}


@pytest.mark.parametrize("encoding", ["UTF8", "LATIN1"], ids=lambda name: f"client_{name}")
@pytest.mark.parametrize("verb", SYNC)
def test_sync_verbs_refuse_what_the_database_cannot_store(latin1: str, verb: str, encoding: str) -> None:
    error, call = SYNC[verb]
    refusal = pytest.raises(error, match="a text has a character that cannot be stored: use a database")
    with psycopg.connect(latin1, client_encoding=encoding) as conn, refusal:
        call(conn)
    engine = sa.create_engine(latin1.replace("postgresql://", "postgresql+psycopg://") + f"?client_encoding={encoding}")
    with Session(engine) as session, refusal:
        call(session)
    engine.dispose()


@pytest.mark.parametrize("verb", SYNC)
def test_django_refuses_what_the_database_cannot_store(latin1: str, verb: str) -> None:
    error, call = SYNC[verb]
    with connected(default=latin1), pytest.raises(error, match="cannot be stored"), transaction.atomic():
        call(connection)


@pytest.mark.parametrize("verb", ASYNC)
async def test_async_verbs_refuse_what_the_database_cannot_store(latin1: str, verb: str) -> None:
    error, call = ASYNC[verb]
    refusal = pytest.raises(error, match="cannot be stored")
    async with await psycopg.AsyncConnection.connect(latin1) as conn:
        with refusal:
            await call(conn)
    plain: asyncpg.Connection[Any] = await asyncpg.connect(latin1)
    with refusal:
        await call(plain)
    await plain.close()
    for driver in ("psycopg", "asyncpg"):
        engine = create_async_engine(latin1.replace("postgresql://", f"postgresql+{driver}://"))
        async with AsyncSession(engine) as session:
            with refusal:
                await call(session)
        await engine.dispose()


async def test_a_result_that_the_database_cannot_store_is_a_dead_letter(latin1: str) -> None:
    app = Holdfast(latin1)

    @app.job("price")
    async def price() -> str:
        return EURO

    @app.job("plain")
    async def plain() -> str:
        return "ü"

    @app.job("own", retry=Retry(max_attempts=1))
    async def own(job: Job[None]) -> None:
        async with await psycopg.AsyncConnection.connect(latin1) as conn:
            await job.complete(conn, EURO)

    with Ledger(latin1) as ledger:
        ids = ledger.enqueue(price.new(), own.new(), *[plain.new() for _ in range(20)])
        async with app.worker(**QUICK):
            await until(lambda: ledger.statuses() == {"failed": 2, "completed": 20})
        assert 'no equivalent in encoding "LATIN1"' in (ledger.job(ids[0]).error or "")
        assert ledger.job(ids[1]).error_code == "InvalidJob"
        kept = app.sync.get_job(ledger.conn, plain.handle(ids[2]))
        assert kept is not None
        assert kept.result == "ü"


async def test_an_error_that_the_database_cannot_store_is_stored_in_plain_ascii(latin1: str) -> None:
    app = Holdfast(latin1)

    @app.job("again", retry=Retry(max_attempts=2, base=timedelta(0), jitter=timedelta(0)))
    async def again() -> None:
        raise ValueError(EURO)

    with Ledger(latin1) as ledger:
        job = ledger.enqueue_one(again.new())
        async with app.worker(**QUICK):
            await until(lambda: ledger.statuses() == {"failed": 1})
        assert ledger.attempts(job) == [(1, "retry"), (2, "failed")]
        assert ledger.job(job)[3:5] == ("ValueError", "5 \\u20ac")


async def test_a_log_that_the_database_cannot_store_is_given_up_before_the_ending(latin1: str) -> None:
    app = Holdfast(latin1)
    seen: list[int] = []

    @app.job("act", retry=Retry(max_attempts=1), keep_logs="info")
    async def act(job: Job[None], sign: int) -> None:
        job.log.info("5 %c", sign)
        seen.append(job.id)
        if seen.count(job.id) == 1:
            raise Reschedule(0)
        raise ValueError("no")

    with Ledger(latin1) as ledger:
        lost, kept = ledger.enqueue(act.new(ord("€")), act.new(ord("£")))
        async with app.worker(**QUICK):
            await until(lambda: ledger.statuses() == {"failed": 2})
        assert ledger.attempts(lost) == [(1, "reschedule"), (1, "failed")]
        [(none, no_trace), (also_none, trace)] = ledger.rows(_LOGS, lost)
        assert (none, no_trace, also_none) == (None, None, None)
        assert trace.endswith("ValueError: no")
        assert [log.endswith("holdfast.job: 5 £") for log, _ in ledger.rows(_LOGS, kept)] == [True, True]


async def test_a_run_whose_error_the_database_cannot_store_is_recorded_in_plain_ascii(latin1: str) -> None:
    def fail(_: Tick) -> Counts:
        raise ValueError(EURO)

    runner = Runner("bill", fail, every=Every(timedelta(hours=1)))
    with psycopg.connect(latin1, autocommit=True) as conn:
        async with crew(latin1, runner) as at:
            await at.ticker.tick(runner, Limits(None, SOON))
            make_due(conn, "bill")
            assert (await at.ticker.tick(runner, Limits(None, SOON))).outcome == "failed"
        assert runs(conn) == [("bill", "failed", None, "ValueError")] * 2
        assert schedule(conn, "bill", "slot_at") == (None,)


async def test_own_connections_choose_the_encoding_themselves(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    app = Holdfast(f"{database}?client_encoding=LATIN1")

    @app.job("price")
    async def price(text: str) -> str:
        return text + "!"

    async with app.worker(**QUICK):
        async with await psycopg.AsyncConnection.connect(database, client_encoding="UTF8") as conn:
            handle = await app.enqueue(conn, price.new(EURO))
        assert await app.wait(handle, timeout=20) == EURO + "!"


def test_all_sql_is_ascii() -> None:
    """A comment in a function's body is stored with it, in the encoding of the database."""
    found = list(Path(str(files("holdfast._store"))).rglob("*.sql"))
    assert len(found) > 10
    assert [path.name for path in found if not path.read_text("utf-8").isascii()] == []
