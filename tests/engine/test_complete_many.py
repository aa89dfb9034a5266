"""Completing the jobs of a batch in its handler's own transaction, with one statement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import AbortReason, Continue, Holdfast, HoldfastError, Item, Job
from holdfast.testing import Testing
from tests.kit.pace import AT_ONCE, QUICK
from tests.kit.waiting import until

if TYPE_CHECKING:
    from tests.kit.ledger import Ledger

WRITE = "INSERT INTO effect SELECT unnest(%s::bigint[])"
BATCH = {"queues": {"post": 1}, **QUICK}


@dataclass
class Letter:
    number: int


@pytest.fixture(autouse=True)
def effects(ledger: Ledger) -> None:
    ledger.do("CREATE TABLE effect (job bigint NOT NULL)")


def written(ledger: Ledger) -> list[int]:
    return [job for (job,) in ledger.rows("SELECT job FROM effect ORDER BY job")]


async def test_what_the_handler_wrote_commits_with_all_completions(
    app: Holdfast, ledger: Ledger, database: str
) -> None:
    @app.batch("post", size=20, queue="post")
    async def post(items: list[Item[Letter]]) -> None:
        async with await psycopg.AsyncConnection.connect(database) as conn:
            await conn.execute(WRITE, [[item.job.id for item in items]])
            ends = {item.job: f"sent {item.args.number}" for item in items}
            assert await app.complete_many(conn, ends) == []

    ids = ledger.enqueue(*[post.new(Letter(number)) for number in range(20)])
    async with app.worker(**BATCH) as worker:
        await until(lambda: worker.counts.get("job_completed") == 20)
    assert written(ledger) == ids
    assert [ledger.job(one)[:3] for one in ids] == [("completed", 1, f"sent {number}") for number in range(20)]
    assert ledger.rows("SELECT count(*) FROM holdfast.attempt") == [(0,)]
    assert ledger.rows("SELECT count(*) FROM holdfast.job_history WHERE ran_ms IS NULL") == [(0,)]


async def test_a_job_that_is_lost_is_returned_and_the_others_are_completed(
    app: Holdfast, ledger: Ledger, database: str
) -> None:
    reasons: list[AbortReason | None] = []

    @app.batch("post", size=3, queue="post")
    async def post(items: list[Item[Letter]]) -> None:
        # Another worker takes the second one, and this one does not learn of it before it completes.
        ledger.do(f"UPDATE holdfast.job SET lock_token = lock_token + 1, locked_by = 0 WHERE id = {items[1].job.id}")
        async with await psycopg.AsyncConnection.connect(database) as conn:
            lost = await app.complete_many(conn, {item.job: "sent" for item in items})
            assert lost == [items[1].job]
            await conn.execute(WRITE, [[item.job.id for item in items if item.job not in lost]])
        reasons.extend(item.job.signal.reason for item in items)

    first, second, third = ledger.enqueue(*[post.new(Letter(number)) for number in range(3)])
    async with app.worker(**BATCH) as worker:
        await until(lambda: worker.counts.get("job_completed") == 2 and worker.counts.get("job_lost") == 1)
    assert written(ledger) == [first, third]
    assert [ledger.status(one) for one in (first, second, third)] == ["completed", "processing", "completed"]
    assert reasons == [None, AbortReason.taken_by_another_worker, None]


async def test_a_rollback_takes_all_completions_with_it(app: Holdfast, ledger: Ledger, database: str) -> None:
    @app.batch("post", size=3, queue="post", retry=AT_ONCE)
    async def post(items: list[Item[Letter]]) -> None:
        async with await psycopg.AsyncConnection.connect(database) as conn:
            await conn.execute(WRITE, [[item.job.id for item in items]])
            await app.complete_many(conn, {item.job: None for item in items})
            if items[0].job.attempt == 1:
                await conn.rollback()

    ids = ledger.enqueue(*[post.new(Letter(number)) for number in range(3)])
    async with app.worker(**BATCH) as worker:
        await until(lambda: worker.counts.get("job_completed") == 3)
    assert written(ledger) == ids
    retried = "SELECT DISTINCT error_code FROM holdfast.attempt WHERE outcome = 'retry'"
    assert ledger.rows(retried) == [("NotCommitted",)]


async def test_some_are_completed_here_and_the_others_by_what_is_returned(
    app: Holdfast, ledger: Ledger, database: str
) -> None:
    @app.job("after")
    async def after(job: Job[None], number: int) -> str:
        return f"after {number}"

    @app.batch("post", size=4, queue="post")
    async def post(items: list[Item[Letter]]) -> list[str | Continue[str]]:
        ends: list[str | Continue[str]] = ["sent", Continue(after.new(1)), "returned", Continue(after.new(3))]
        async with await psycopg.AsyncConnection.connect(database) as conn:
            await app.complete_many(conn, {item.job: end for item, end in zip(items[:2], ends[:2], strict=True)})
        return ends

    ids = ledger.enqueue(*[post.new(Letter(number)) for number in range(4)])
    async with app.worker(queues={"post": 1, "default": 1}, **QUICK) as worker:
        await until(lambda: worker.counts.get("job_completed") == 6)
        assert [await app.wait(one) for one in ids] == ["sent", "after 1", "returned", "after 3"]


async def test_on_a_sync_connection(app: Holdfast, ledger: Ledger, database: str) -> None:
    @app.batch("post", size=3, queue="post")
    def post(items: list[Item[Letter]]) -> None:
        with psycopg.connect(database) as conn:
            conn.execute(WRITE, [[item.job.id for item in items]])
            assert app.sync.complete_many(conn, {item.job: "sent" for item in items}) == []

    ids = ledger.enqueue(*[post.new(Letter(number)) for number in range(3)])
    async with app.worker(**BATCH) as worker:
        await until(lambda: worker.counts.get("job_completed") == 3)
    assert written(ledger) == ids


async def test_in_a_test_of_the_application(app: Holdfast, ledger: Ledger, database: str) -> None:
    @app.batch("post", size=3)
    async def post(items: list[Item[Letter]]) -> None:
        async with await psycopg.AsyncConnection.connect(database) as conn:
            await app.complete_many(conn, {item.job: "sent" for item in items})

    ledger.enqueue(post.new(Letter(1)), post.new(Letter(2)))
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        drained = await Testing(app, conn).drain()
    assert [(ran.outcome, ran.result) for ran in drained] == [("completed", "sent")] * 2


async def test_what_cannot_be_completed_is_named(app: Holdfast, ledger: Ledger) -> None:
    job: Job[None] = Job(id=7, kind="post", state=None)
    assert app.sync.complete_many(ledger.conn, {}) == []
    with pytest.raises(HoldfastError, match="job 7 is not run by a worker"):
        app.sync.complete_many(ledger.conn, {job: None})
    wrong: Any = [job]
    with pytest.raises(TypeError, match=r"complete_many: expected a mapping such as \{item.job: result\}, got list"):
        app.sync.complete_many(ledger.conn, wrong)
    wrong = {7: None}
    with pytest.raises(TypeError, match="got int in it"):
        app.sync.complete_many(ledger.conn, wrong)


async def test_twice_is_an_error(app: Holdfast, ledger: Ledger, database: str) -> None:
    @app.batch("post", size=3, queue="post")
    async def post(items: list[Item[Letter]]) -> None:
        async with await psycopg.AsyncConnection.connect(database) as conn:
            ends = {item.job: None for item in items}
            await app.complete_many(conn, ends)
            with pytest.raises(HoldfastError, match="completed already"):
                await app.complete_many(conn, ends)

    ledger.enqueue(post.new(Letter(1)))
    async with app.worker(**BATCH) as worker:
        await until(lambda: worker.counts.get("job_completed") == 1)
