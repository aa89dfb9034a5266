"""The same story on every connection, in a transaction that is rolled back, at every level of isolation."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
import psycopg
import pytest
import sqlalchemy as sa
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from holdfast import AbortReason, Holdfast, Job, UnsupportedConnection
from holdfast.testing import Testing
from tests.testing.story import Story

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

LEVELS = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]


@pytest.fixture(params=["psycopg", "asyncpg"])
async def sa_conn(request: pytest.FixtureRequest, database: str) -> AsyncIterator[Any]:
    engine = create_async_engine(database.replace("postgresql://", f"postgresql+{request.param}://"))
    async with engine.connect() as conn:
        yield conn
    await engine.dispose()


@pytest.fixture(autouse=True)
def nothing_is_left(database: str) -> Iterator[None]:
    yield
    with psycopg.connect(database) as conn:
        for table in ("job", "job_history", "job_failed", "worker", "unique_window"):
            assert conn.execute(f"SELECT count(*) FROM holdfast.{table}".encode()).fetchone() == (0,)


@pytest.mark.parametrize("level", LEVELS)
async def test_psycopg(database: str, level: str) -> None:
    async with await psycopg.AsyncConnection.connect(database, row_factory=dict_row) as conn:
        await conn.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
        async with conn.transaction():
            story = Story()
            await story.report(Testing(story.app, conn))
        await conn.rollback()


@pytest.mark.parametrize("level", ["read_committed", "repeatable_read", "serializable"])
async def test_asyncpg(database: str, level: Any) -> None:
    conn: asyncpg.Connection[Any] = await asyncpg.connect(database)
    transaction = conn.transaction(isolation=level)
    await transaction.start()
    async with conn.transaction():
        story = Story()
        await story.report(Testing(story.app, conn))
    await transaction.rollback()
    await conn.close()


@pytest.mark.parametrize("level", LEVELS)
async def test_a_connection_of_sqlalchemy(sa_conn: Any, level: str) -> None:
    await sa_conn.execution_options(isolation_level=level)
    async with sa_conn.begin() as transaction:
        story = Story()
        await story.report(Testing(story.app, sa_conn))
        await transaction.rollback()


async def test_an_async_session_of_sqlalchemy(sa_conn: Any) -> None:
    async with (
        sa_conn.begin() as transaction,
        AsyncSession(bind=sa_conn, join_transaction_mode="create_savepoint") as session,
    ):
        story = Story()
        await story.report(Testing(story.app, session))
        await session.commit()
        await transaction.rollback()


@pytest.mark.parametrize("level", LEVELS)
def test_sync_psycopg(database: str, level: str) -> None:
    with psycopg.connect(database) as conn:
        conn.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
        with conn.transaction():
            story = Story()
            story.report_sync(Testing(story.app, conn))
        conn.rollback()


@pytest.fixture
def sync_conn(database: str) -> Iterator[sa.Connection]:
    engine = sa.create_engine(database.replace("postgresql://", "postgresql+psycopg://"))
    with engine.connect() as conn:
        yield conn
    engine.dispose()


def test_a_session_of_sqlalchemy(sync_conn: sa.Connection) -> None:
    with sync_conn.begin() as transaction, Session(sync_conn, join_transaction_mode="create_savepoint") as session:
        story = Story()
        story.report_sync(Testing(story.app, session))
        session.commit()
        transaction.rollback()


def test_plain_handlers_of_a_sync_drain_run_in_the_tests_own_thread(sync_conn: sa.Connection) -> None:
    app = Holdfast()
    seen: dict[str, Any] = {}

    @app.job("plain")
    def plain(job: Job[None]) -> None:
        seen["plain"] = threading.current_thread()
        seen["loop"] = asyncio.run(asyncio.sleep(0, "no other loop runs here"))

    @app.job("async")
    async def on_loop(job: Job[None]) -> None:
        seen["async"] = threading.current_thread()

    with sync_conn.begin() as transaction:
        app.sync.enqueue_many(sync_conn, [plain.new(), on_loop.new()])
        assert len(Testing(app, sync_conn).sync.drain().completed) == 2
        transaction.rollback()
    assert seen["plain"] is threading.current_thread()
    assert seen["async"] is not threading.current_thread()
    assert "loop" in seen


def test_a_lifespan_of_a_sync_drain(sync_conn: sa.Connection) -> None:
    @asynccontextmanager
    async def resources(app: Holdfast) -> AsyncIterator[asyncio.Event]:
        yield asyncio.Event()

    app = Holdfast(lifespan=resources)

    @app.job("set")
    async def put(job: Job[asyncio.Event]) -> bool:
        job.state.set()
        return await job.state.wait()

    with sync_conn.begin() as transaction:
        assert Testing(app, sync_conn).sync.run_job(put.new()).result is True
        transaction.rollback()


def test_what_a_handler_raises_reaches_a_sync_test(sync_conn: sa.Connection) -> None:
    app = Holdfast()

    class Quit(BaseException):
        pass

    @app.job("plain")
    def plain(job: Job[None]) -> None:
        raise LookupError("plain")

    @app.job("async")
    async def on_loop(job: Job[None]) -> None:
        raise Quit

    with sync_conn.begin() as transaction:
        kit = Testing(app, sync_conn)
        with pytest.raises(LookupError, match="plain") as caught:
            kit.sync.run_job(plain.new())
        assert caught.traceback[-1].name == "plain"
        with pytest.raises(Quit):
            kit.sync.run_job(on_loop.new())
        app.sync.enqueue(sync_conn, plain.new())
        with pytest.raises(AssertionError, match="more is due"):
            kit.sync.drain(limit=0)
        transaction.rollback()


def test_a_sync_drain_is_bounded(sync_conn: sa.Connection) -> None:
    app = Holdfast()
    reasons: list[Any] = []

    @app.job("async")
    async def on_loop(job: Job[None]) -> None:
        await asyncio.Event().wait()

    @app.job("plain")
    def plain(job: Job[None]) -> None:
        assert job.signal.wait_in_thread(10)
        reasons.append(job.signal.reason)

    with sync_conn.begin() as transaction:
        kit = Testing(app, sync_conn)
        for job in (on_loop.new(), plain.new()):
            with pytest.raises(AssertionError, match="was still running when the time was up"):
                kit.sync.run_job(job, timeout=timedelta(milliseconds=20))
        transaction.rollback()
    assert reasons == [AbortReason.timeout], "a plain function is told, and waited for"


def test_ctrl_c_ends_a_drain_at_once(database: str) -> None:
    app = Holdfast()

    @app.job("plain")
    def plain(job: Job[None]) -> None:
        raise KeyboardInterrupt

    threads = set(threading.enumerate())
    with psycopg.connect(database) as conn:
        with pytest.raises(KeyboardInterrupt):
            Testing(app, conn).sync.run_job(plain.new(), raise_errors=False)
        conn.rollback()
    for left in set(threading.enumerate()) - threads:
        left.join(10)
        assert not left.is_alive(), "and leaves no event loop behind"


async def test_the_wrong_verb_says_which_is_right(database: str) -> None:
    story = Story()
    with psycopg.connect(database) as conn:
        kit = Testing(story.app, conn)
        for verb in (kit.drain, lambda: kit.run_job(story.first), lambda: kit.assert_enqueued(story.first)):
            with pytest.raises(UnsupportedConnection, match=r"write holdfast\.sync\.\w+\(…\), without await"):
                await verb()
    async with await psycopg.AsyncConnection.connect(database) as other:
        kit = Testing(story.app, other)
        for wrong in (kit.sync.drain, lambda: kit.sync.assert_enqueued(story.first)):
            with pytest.raises(UnsupportedConnection, match=r"write await holdfast\.\w+\(…\)") as refused:
                wrong()
            ours = [entry for entry in refused.traceback if "_testing" in str(entry.path)]
            assert len(ours) == 1, "which pytest hides"
