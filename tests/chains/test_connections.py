"""The verbs on chains, jobs, queues and schedules, on every kind of connection a caller may bring."""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
import psycopg
import pytest
import sqlalchemy as sa
from django.db import connection
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from holdfast import ChainAwaited, Continue, Every, Holdfast, Job, SettingsError
from holdfast._drivers import run_sync
from holdfast._store.schedule import register_schedules
from tests.kit.databases import clone
from tests.kit.django_config import connected

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    from holdfast import Kind
    from tools.postgres import Server

HOUR = timedelta(hours=1)
AT = datetime(2040, 1, 1, tzinfo=UTC)


@asynccontextmanager
async def psycopg_async(database: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(database, row_factory=dict_row) as conn:
        yield conn


@asynccontextmanager
async def asyncpg_connection(database: str) -> AsyncIterator[Any]:
    conn = await asyncpg.connect(database)
    try:
        yield conn
    finally:
        await conn.close()


@asynccontextmanager
async def sqlalchemy_async(database: str) -> AsyncIterator[Any]:
    engine = create_async_engine(database.replace("postgresql://", "postgresql+asyncpg://"))
    try:
        async with AsyncSession(engine) as session:
            yield session
    finally:
        await engine.dispose()


@contextmanager
def sqlalchemy_sync(database: str) -> Iterator[Any]:
    engine = sa.create_engine(database.replace("postgresql://", "postgresql+psycopg://"))
    try:
        with Session(engine) as session:
            yield session
    finally:
        engine.dispose()


@contextmanager
def django_connection(database: str) -> Iterator[Any]:
    with connected(default=database):
        yield connection


@pytest.fixture
def act(app: Holdfast) -> Kind[..., str]:
    @app.job("act")
    def act(job: Job[None]) -> str:
        return "acted"

    return act


@pytest.mark.parametrize("connected", [psycopg_async, asyncpg_connection, sqlalchemy_async])
async def test_async(
    app: Holdfast,
    database: str,
    act: Kind[..., str],
    connected: Callable[[str], AbstractAsyncContextManager[Any]],
) -> None:
    async with connected(database) as conn:
        handle = await app.enqueue(conn, act.new())
        last = await app.enqueue_group(conn, [act.new()], then=act.new().options(after=[handle]))
        assert await app.complete_chain(conn, handle, Continue(act.new())) == "completed"
        assert await app.complete_chain(conn, handle, "done") == "completed"
        assert await app.complete_chain(conn, handle, "again") == "already_ended"
        chain = await app.get_chain(conn, handle)
        assert chain is not None
        assert (len(chain.jobs), chain.result) == (2, "done")
        page = await app.list_jobs(conn, kind="act", status="completed", limit=1)
        assert ([job.chain_id for job in page.jobs], page.next) == ([handle.id], page.jobs[0].id)
        lines = await app.list_chains(conn, kind="act", status="blocked", before=last.id + 1, limit=5)
        assert [(line.id, line.last_id) for line in lines] == [(last.id, last.id)]
        assert await app.delete_chains(conn, [last, handle], cascade=True) == [handle.id, last.id]


@pytest.mark.parametrize("connected", [psycopg.connect, sqlalchemy_sync, django_connection])
def test_sync(
    app: Holdfast, database: str, act: Kind[..., str], connected: Callable[[str], AbstractContextManager[Any]]
) -> None:
    with connected(database) as conn:
        handle = app.sync.enqueue(conn, act.new())
        last = app.sync.enqueue_group(conn, [act.new()], then=act.new().options(after=[handle]))
        assert app.sync.complete_chain(conn, handle, Continue(act.new())) == "completed"
        assert app.sync.complete_chain(conn, handle, "done") == "completed"
        assert app.sync.complete_chain(conn, handle, "again") == "already_ended"
        chain = app.sync.get_chain(conn, handle)
        assert chain is not None
        assert (len(chain.jobs), chain.result) == (2, "done")
        page = app.sync.list_jobs(conn, kind="act", status="completed", limit=1)
        assert ([job.chain_id for job in page.jobs], page.next) == ([handle.id], page.jobs[0].id)
        lines = app.sync.list_chains(conn, kind="act", status="blocked", before=last.id + 1, limit=5)
        assert [(line.id, line.last_id) for line in lines] == [(last.id, last.id)]
        assert app.sync.delete_chains(conn, [last, handle], cascade=True) == [handle.id, last.id]
        blocker = app.sync.enqueue(conn, act.new())
        waiter = app.sync.enqueue(conn, act.new().options(after=[blocker]))
        with pytest.raises(ChainAwaited) as caught:
            app.sync.delete_chains(conn, [blocker])
        assert caught.value.waiters == (waiter.id,)
        if hasattr(conn, "rollback"):
            conn.rollback()


@pytest.mark.parametrize("connected", [psycopg_async, asyncpg_connection, sqlalchemy_async])
async def test_verbs_on_jobs_queues_and_schedules(
    app: Holdfast,
    database: str,
    act: Kind[[], str],
    connected: Callable[[str], AbstractAsyncContextManager[Any]],
) -> None:
    register(act, database)
    async with connected(database) as conn:
        handle = await app.enqueue(conn, act.new().options(delay=HOUR, priority=3))
        assert await app.reschedule(conn, handle, at=AT) == "rescheduled"
        job = await app.get_job(conn, handle)
        assert job is not None
        assert (job.id, job.status, job.priority, job.available_at, job.progress) == (handle.id, "pending", 3, AT, None)
        assert await app.reschedule(conn, handle, delay=HOUR) == "rescheduled"
        assert await app.complete_chain(conn, handle, "done") == "completed"
        job = await app.get_job(conn, handle)
        assert job is not None
        assert (job.status, job.result, job.finished_at is None) == ("completed", "done", False)
        assert (await app.retry(conn, handle, again=True)).status == "not_failed"
        assert await app.pause_queue(conn, "slow")
        assert await app.resume_queue(conn, "slow")
        assert await app.pause_schedule(conn, "hourly")
        assert [(line.name, line.paused) for line in await app.list_schedules(conn)] == [("hourly", True)]
        assert await app.resume_schedule(conn, "hourly")
        assert await app.trigger_schedule(conn, "hourly")
        assert await app.edit_schedule(conn, "hourly", Every(2 * HOUR))
        assert [(line.triggered, line.edited) for line in await app.list_schedules(conn, limit=5)] == [(True, True)]
        assert await app.remove_schedule(conn, "hourly")
        assert not await app.pause_schedule(conn, "hourly")
        assert not await app.trigger_schedule(conn, "hourly")
        assert await app.list_ticks(conn) == []


@pytest.mark.parametrize("connected", [psycopg.connect, sqlalchemy_sync, django_connection])
def test_sync_verbs_on_jobs_queues_and_schedules(
    app: Holdfast, database: str, act: Kind[[], str], connected: Callable[[str], AbstractContextManager[Any]]
) -> None:
    register(act, database)
    with connected(database) as conn:
        handle = app.sync.enqueue(conn, act.new().options(delay=HOUR, priority=3))
        assert app.sync.reschedule(conn, handle, at=AT) == "rescheduled"
        job = app.sync.get_job(conn, handle)
        assert job is not None
        assert (job.id, job.status, job.priority, job.available_at, job.progress) == (handle.id, "pending", 3, AT, None)
        assert app.sync.reschedule(conn, handle, delay=HOUR) == "rescheduled"
        assert app.sync.complete_chain(conn, handle, "done") == "completed"
        job = app.sync.get_job(conn, handle)
        assert job is not None
        assert (job.status, job.result, job.finished_at is None) == ("completed", "done", False)
        assert app.sync.retry(conn, handle, again=True).status == "not_failed"
        assert app.sync.pause_queue(conn, "slow")
        assert app.sync.resume_queue(conn, "slow")
        assert app.sync.pause_schedule(conn, "hourly")
        assert [(line.name, line.paused) for line in app.sync.list_schedules(conn)] == [("hourly", True)]
        assert app.sync.resume_schedule(conn, "hourly")
        assert app.sync.trigger_schedule(conn, "hourly")
        assert app.sync.edit_schedule(conn, "hourly", Every(2 * HOUR))
        assert [(line.triggered, line.edited) for line in app.sync.list_schedules(conn, limit=5)] == [(True, True)]
        assert app.sync.remove_schedule(conn, "hourly")
        assert not app.sync.pause_schedule(conn, "hourly")
        assert not app.sync.trigger_schedule(conn, "hourly")
        assert app.sync.list_ticks(conn) == []


def register(act: Kind[[], str], database: str) -> None:
    """Store a schedule as a worker does when it starts."""
    with psycopg.connect(database) as conn:
        run_sync(conn, register_schedules([("hourly", Every(HOUR), act.new())]))


async def test_the_schema_is_made_and_up_to_date(server: Server) -> None:
    with clone(server, "template0") as empty:
        app = Holdfast(empty)
        applied = await app.migrate()
        assert applied[0] == "0001_schema"
        assert await app.migrate() == []
        assert Holdfast().sync.migrate(url=empty) == []
        with psycopg.connect(empty) as conn:
            app.sync.enqueue(conn, app.declare("elsewhere", dict).new({}))


def test_a_database_to_migrate_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_DATABASE_URL", raising=False)
    with pytest.raises(SettingsError, match="no database: give Holdfast an address, or name one with url="):
        Holdfast().sync.migrate()
