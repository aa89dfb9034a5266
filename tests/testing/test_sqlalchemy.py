"""SQLAlchemy's pattern: a connection with an outer transaction, and sessions that join it by savepoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

from holdfast import Holdfast, Job, Retry
from holdfast.testing import Testing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


class Model(DeclarativeBase):
    pass


class Invoice(Model):
    __tablename__ = "invoice"
    id: Mapped[int] = mapped_column(primary_key=True)
    paid: Mapped[bool] = mapped_column(default=False)


app = Holdfast()


@app.job("charge", retry=Retry(max_attempts=1))
async def charge(job: Job[async_sessionmaker[AsyncSession]], invoice_id: int) -> None:
    async with job.state() as session, session.begin():
        invoice = await session.get_one(Invoice, invoice_id)
        invoice.paid = True
        await session.flush()
        await app.enqueue(session, send_receipt.new(invoice_id))
        if invoice_id < 0:
            await session.execute(sa.insert(Invoice).values(id=invoice_id, paid=False))


@app.job("receipt.send")
async def send_receipt(job: Job[async_sessionmaker[AsyncSession]], invoice_id: int) -> bool:
    async with job.state() as session:
        return (await session.get_one(Invoice, invoice_id)).paid


@app.job("charge.sync")
def charge_sync(job: Job[sessionmaker[Session]], invoice_id: int) -> None:
    with job.state.begin() as session:
        session.get_one(Invoice, invoice_id).paid = True


async def pay(session: AsyncSession, invoice_id: int) -> None:
    """Do as an endpoint does, its commit included."""
    session.add(Invoice(id=invoice_id))
    await app.enqueue(session, charge.new(invoice_id))
    await session.commit()


@pytest.fixture(params=["psycopg", "asyncpg"])
async def outer(request: pytest.FixtureRequest, database: str, connect: Any) -> AsyncIterator[AsyncConnection]:
    connect().execute("CREATE TABLE invoice (id int PRIMARY KEY, paid boolean NOT NULL)")
    engine = create_async_engine(database.replace("postgresql://", f"postgresql+{request.param}://"))
    async with engine.connect() as conn:
        transaction = await conn.begin()
        yield conn
        await transaction.rollback()
    await engine.dispose()
    for table in ("invoice", "holdfast.job", "holdfast.job_history"):
        assert connect().execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


@pytest.fixture
def sessions(outer: AsyncConnection) -> async_sessionmaker[AsyncSession]:
    return async_sessionmaker(outer, join_transaction_mode="create_savepoint")


@pytest.fixture
async def session(sessions: async_sessionmaker[AsyncSession]) -> AsyncIterator[AsyncSession]:
    async with sessions() as session:
        yield session


@pytest.fixture
def holdfast_app() -> Holdfast:
    return app


@pytest.fixture
def holdfast_connection(session: AsyncSession) -> AsyncSession:
    return session


@pytest.fixture
def holdfast_state(sessions: async_sessionmaker[AsyncSession]) -> async_sessionmaker[AsyncSession]:
    return sessions


async def test_code_that_commits_is_rolled_back_with_its_jobs(holdfast: Testing, session: AsyncSession) -> None:
    await pay(session, 7)
    await holdfast.assert_enqueued(charge.new(7))
    drained = await holdfast.drain()
    assert [ran.result for ran in drained] == [None, True]
    await session.refresh(await session.get_one(Invoice, 7))
    assert (await session.get_one(Invoice, 7)).paid


async def test_what_a_handler_raises_undoes_its_own_session_only(holdfast: Testing, session: AsyncSession) -> None:
    await pay(session, -7)
    drained = await holdfast.drain(raise_errors=False)
    assert isinstance(drained.attempts[0].exception, IntegrityError)
    await holdfast.assert_enqueued(send_receipt.new(-7), times=0)
    assert not (await session.get_one(Invoice, -7)).paid


async def test_on_the_outer_connection(
    outer: AsyncConnection, session: AsyncSession, sessions: async_sessionmaker[AsyncSession]
) -> None:
    await pay(session, 7)
    await session.rollback()
    drained = await Testing(app, outer, state=sessions).drain()
    assert len(drained.completed) == 2


@pytest.fixture
def sync_outer(database: str, connect: Any) -> Iterator[sa.Connection]:
    connect().execute("CREATE TABLE invoice (id int PRIMARY KEY, paid boolean NOT NULL)")
    engine = sa.create_engine(database.replace("postgresql://", "postgresql+psycopg://"))
    with engine.connect() as conn:
        transaction = conn.begin()
        yield conn
        transaction.rollback()
    engine.dispose()
    assert connect().execute("SELECT count(*) FROM invoice").fetchone() == (0,)


def test_sync_sessions(sync_outer: sa.Connection) -> None:
    sessions = sessionmaker(sync_outer, join_transaction_mode="create_savepoint")
    with sessions() as session:
        session.add(Invoice(id=7))
        app.sync.enqueue(session, charge_sync.new(7))
        session.commit()
        holdfast = Testing(app, session, state=sessions)
        holdfast.sync.assert_enqueued(charge_sync.new(7))
        assert len(holdfast.sync.drain().completed) == 1
        session.expire_all()
        assert session.get_one(Invoice, 7).paid
