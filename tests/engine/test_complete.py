"""Completing a job in its handler's own transaction: together with what it wrote, or not at all."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import AbortReason, Continue, Holdfast, Job, LeaseLost
from tests.kit.pace import AT_ONCE, PATIENT, QUICK, ms
from tests.kit.waiting import serving, until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.kit.ledger import Ledger

WRITE = "INSERT INTO effect (job) VALUES (%s)"


@pytest.fixture(autouse=True)
def effects(ledger: Ledger) -> None:
    ledger.do("CREATE TABLE effect (job bigint NOT NULL)")


def written(ledger: Ledger) -> list[int]:
    return [job for (job,) in ledger.rows("SELECT job FROM effect ORDER BY job")]


async def test_what_the_handler_wrote_commits_with_the_completion(app: Holdfast, ledger: Ledger, database: str) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> str:
        async with await psycopg.AsyncConnection.connect(database) as conn, conn.transaction():
            await conn.execute(WRITE, [job.id])
            return await job.complete(conn, f"done {job.id}")

    job = ledger.enqueue_one(act.new())
    async with app.worker(**QUICK) as worker:
        await until(lambda: worker.counts.get("job_completed") == 1)
    assert ledger.job(job)[:3] == ("completed", 1, f"done {job}")
    assert written(ledger) == [job]
    assert "job_lost" not in worker.counts


async def test_a_rollback_takes_the_completion_with_it(app: Holdfast, ledger: Ledger, database: str) -> None:
    @app.job("act", retry=AT_ONCE)
    async def act(job: Job[None]) -> str:
        async with await psycopg.AsyncConnection.connect(database) as conn, conn.transaction():
            await conn.execute(WRITE, [job.id])
            await job.complete(conn, "done")
            if job.attempt == 1:
                raise ValueError("after all, no")
            return "done"

    job = ledger.enqueue_one(act.new())
    async with app.worker(**QUICK) as worker:
        await until(lambda: worker.counts.get("job_completed") == 1)
    assert ledger.job(job).attempt == 2
    assert ledger.attempts(job) == [(1, "retry"), (2, "completed")]
    assert written(ledger) == [job]


async def test_a_completion_that_is_never_committed_is_noticed(app: Holdfast, ledger: Ledger, database: str) -> None:
    @app.job("act", retry=AT_ONCE)
    async def act(job: Job[None]) -> str:
        conn = await psycopg.AsyncConnection.connect(database)
        await conn.execute(WRITE, [job.id])
        await job.complete(conn, "done")
        await (conn.commit() if job.attempt == 2 else conn.rollback())
        await conn.close()
        return "done"

    job = ledger.enqueue_one(act.new())
    async with app.worker(**QUICK) as worker:
        await until(lambda: worker.counts.get("job_completed") == 1)
    assert worker.counts["job_retried"] == 1
    [(code, error)] = ledger.rows("SELECT error_code, error FROM holdfast.attempt WHERE outcome = 'retry'")
    assert code == "NotCommitted"
    assert "never committed" in error
    assert written(ledger) == [job]


async def test_a_transaction_that_is_still_open_is_waited_for(app: Holdfast, ledger: Ledger, database: str) -> None:
    conns: list[psycopg.AsyncConnection[Any]] = []

    @app.job("act", retry=AT_ONCE)
    async def act(job: Job[None]) -> str:
        conn = await psycopg.AsyncConnection.connect(database)
        await job.complete(conn, "done")
        conns.append(conn)
        return "done"

    job = ledger.enqueue_one(act.new())
    async with app.worker(**QUICK) as worker:
        await until(lambda: conns and serving(worker).finisher._open == 1)
        await conns[0].commit()
        await until(lambda: worker.counts.get("job_completed") == 1)
        await conns[0].close()
    assert ledger.job(job).attempt == 1


async def test_a_lost_lease_rolls_back(app: Holdfast, ledger: Ledger, database: str) -> None:
    lost: list[AbortReason] = []
    taken = asyncio.Event()

    @app.job("act")
    async def act(job: Job[None]) -> None:
        async with await psycopg.AsyncConnection.connect(database) as conn:
            await conn.execute(WRITE, [job.id])
            # Somebody takes the row away, and this worker has not heard of it.
            ledger.do("UPDATE holdfast.job SET lock_token = lock_token + 1, locked_by = 0")
            with pytest.raises(LeaseLost) as caught:
                await job.complete(conn, None)
            lost.append(caught.value.reason)
            assert job.signal.reason is caught.value.reason
            taken.set()
            raise caught.value

    ledger.enqueue(act.new())
    async with app.worker(**PATIENT) as worker:
        await taken.wait()
        await until(lambda: worker.counts.get("job_lost") == 1)
    assert lost == [AbortReason.taken_by_another_worker]
    assert written(ledger) == []
    assert ledger.statuses() == {"processing": 1}


async def test_a_handler_that_goes_on_after_its_commit_is_not_disturbed(
    app: Holdfast, ledger: Ledger, database: str
) -> None:
    ended = asyncio.Event()

    @app.job("act")
    async def act(job: Job[None]) -> None:
        async with await psycopg.AsyncConnection.connect(database) as conn:
            await job.complete(conn, None)
        beat = serving(worker).heartbeat
        now = beat.beats
        await until(lambda: beat.beats >= now + 2)
        assert not job.signal.aborted
        ended.set()

    async with app.worker(**QUICK) as worker:
        ledger.enqueue(act.new())  # only now is there a `worker` for the handler
        await ended.wait()
        await until(lambda: worker.counts.get("job_completed") == 1)


async def test_a_continuation_in_the_handlers_transaction(app: Holdfast, ledger: Ledger, database: str) -> None:
    @app.job("last")
    async def last(job: Job[None], number: int) -> str:
        return f"{job.chain_id}: {number}"

    @app.job("first")
    async def first(job: Job[None]) -> str | Continue[str]:
        async with await psycopg.AsyncConnection.connect(database) as conn:
            await conn.execute(WRITE, [job.id])
            return await job.complete(conn, Continue(last.new(7)))

    job = ledger.enqueue_one(first.new())
    async with app.worker(**QUICK) as worker:
        await until(lambda: worker.counts.get("job_completed") == 2)
    assert written(ledger) == [job]
    assert ledger.rows("SELECT kind, result, chain_id FROM holdfast.job_history ORDER BY id") == [
        ("first", None, None),
        ("last", f"{job}: 7", job),
    ]


async def test_twice_is_an_error(app: Holdfast, ledger: Ledger, database: str) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> None:
        async with await psycopg.AsyncConnection.connect(database) as conn:
            await job.complete(conn, None)
            with pytest.raises(Exception, match="completed already"):
                await job.complete(conn, None)

    ledger.enqueue(act.new())
    async with app.worker(**QUICK) as worker:
        await until(lambda: worker.counts.get("job_completed") == 1)


async def test_only_in_read_committed(app: Holdfast, ledger: Ledger, database: str) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> None:
        async with await psycopg.AsyncConnection.connect(database) as conn:
            await conn.set_isolation_level(psycopg.IsolationLevel.SERIALIZABLE)
            await job.complete(conn, None)

    job = ledger.enqueue_one(act.new().options(max_attempts=1))
    async with app.worker(**QUICK) as worker:
        await until(lambda: worker.counts.get("job_failed") == 1)
    assert ledger.job(job).error_code == "WrongIsolation"


async def _asyncpg(database: str, job: Job[Any]) -> None:
    import asyncpg

    conn = await asyncpg.connect(database)
    try:
        async with conn.transaction():
            await conn.execute(WRITE.replace("%s", "$1"), job.id)
            await job.complete(conn, "done")
    finally:
        await conn.close()


async def _async_session(database: str, job: Job[Any]) -> None:
    from sqlalchemy import text
    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

    engine = create_async_engine(database.replace("postgresql://", "postgresql+psycopg://"))
    async with AsyncSession(engine) as session, session.begin():
        await session.execute(text(WRITE.replace("%s", ":job")), {"job": job.id})
        await job.complete(session, "done")
    await engine.dispose()


@pytest.mark.parametrize("complete", [_asyncpg, _async_session])
async def test_on_every_async_connection(
    app: Holdfast, ledger: Ledger, database: str, complete: Callable[[str, Job[Any]], Awaitable[None]]
) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> str:
        await complete(database, job)
        return "done"

    job = ledger.enqueue_one(act.new())
    async with app.worker(**QUICK) as worker:
        await until(lambda: worker.counts.get("job_completed") == 1)
    assert ledger.job(job).result == "done"
    assert written(ledger) == [job]


def _psycopg(database: str, job: Job[Any]) -> None:
    with psycopg.connect(database) as conn:
        conn.execute(WRITE, [job.id])
        job.sync.complete(conn, "done")


def _session(database: str, job: Job[Any]) -> None:
    from sqlalchemy import create_engine, text
    from sqlalchemy.orm import Session

    engine = create_engine(database.replace("postgresql://", "postgresql+psycopg://"))
    with Session(engine) as session, session.begin():
        session.execute(text(WRITE.replace("%s", ":job")), {"job": job.id})
        job.sync.complete(session, "done")
    engine.dispose()


@pytest.mark.parametrize("complete", [_psycopg, _session])
async def test_on_every_sync_connection(
    app: Holdfast, ledger: Ledger, database: str, complete: Callable[[str, Job[Any]], None]
) -> None:
    @app.job("act")
    def act(job: Job[None]) -> str:
        complete(database, job)
        return "done"

    job = ledger.enqueue_one(act.new())
    async with app.worker(**QUICK) as worker:
        await until(lambda: worker.counts.get("job_completed") == 1)
    assert ledger.job(job).result == "done"
    assert written(ledger) == [job]


def in_process(job: Job[None], database: str) -> str:
    assert os.environ.get("PYTEST_CURRENT_TEST") is not None
    job.progress(0.5, "half")
    _psycopg(database, job)
    return "done"


async def test_in_a_process_of_its_own(app: Holdfast, ledger: Ledger, database: str) -> None:
    act = app.job("act", executor="process")(in_process)
    job = ledger.enqueue_one(act.new(database))
    async with app.worker(**PATIENT) as worker:
        await until(lambda: worker.counts.get("job_completed") == 1)
    assert ledger.job(job)[:3] == ("completed", 1, "done")
    assert written(ledger) == [job]


def test_a_job_that_no_worker_runs_cannot_be_completed(ledger: Ledger) -> None:
    job: Job[None] = Job(id=7, kind="act", state=None)
    with pytest.raises(Exception, match="not run by a worker"):
        job.sync.complete(ledger.conn, None)
    job.progress(0.5)
    assert job.blockers == ()


async def test_progress_is_seen_in_the_row_and_written_rarely(app: Holdfast, ledger: Ledger) -> None:
    go = asyncio.Event()

    @app.job("act")
    async def act(job: Job[None]) -> None:
        for page in range(1000):
            job.progress(page / 1000, f"page\x00 {page}")
        await go.wait()

    job = ledger.enqueue_one(act.new())
    before = ledger.value("SELECT coalesce(sum(n_tup_upd), 0) FROM pg_stat_user_tables WHERE relname = 'job'")
    async with app.worker(**PATIENT) as worker:
        await until(
            lambda: (
                ledger.rows("SELECT progress, progress_note FROM holdfast.job WHERE id = %s", job)
                == [(pytest.approx(0.999), "page 999")]
            )
        )
        go.set()
        await until(lambda: worker.counts.get("job_completed") == 1)
    ledger.do("SELECT pg_stat_force_next_flush()")
    after = ledger.value("SELECT coalesce(sum(n_tup_upd), 0) FROM pg_stat_user_tables WHERE relname = 'job'")
    assert after - before < 10


def test_progress_is_from_nothing_to_all() -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        Job(id=7, kind="act", state=None).progress(1.5)


async def test_a_released_lease_is_not_stopped_by_progress(app: Holdfast, ledger: Ledger) -> None:
    """Progress of a job that was lost meanwhile is not stored."""
    reported = asyncio.Event()

    @app.job("act")
    async def act(job: Job[None]) -> None:
        ledger.do("UPDATE holdfast.job SET lock_token = lock_token + 1, locked_by = 0")
        job.progress(0.5)
        await asyncio.sleep(ms(50).total_seconds())
        reported.set()

    ledger.enqueue(act.new())
    async with app.worker(**PATIENT):
        await reported.wait()
    assert ledger.rows("SELECT progress FROM holdfast.job") == [(None,)]
