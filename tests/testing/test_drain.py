"""Draining runs jobs as a worker would, in one transaction that is not committed."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import Holdfast, Job, Limit, Retry
from holdfast.testing import Ran, Testing

if TYPE_CHECKING:
    Conn = psycopg.AsyncConnection[Any]


async def test_everything_due_runs_and_what_that_enqueues(app: Holdfast, conn: Conn, kit: Testing) -> None:
    order = []

    @app.job("step", queue="steps")
    async def step(job: Job[None], left: int) -> int:
        order.append(left)
        if left:
            await app.enqueue(conn, step.new(left - 1))
        return left

    first = await app.enqueue(conn, step.new(3))
    drained = await kit.drain()
    assert order == [3, 2, 1, 0]
    assert drained.completed == [ran.id for ran in drained]
    assert len(drained) == 4
    assert drained.attempts[0] == Ran(first.id, "step", 1, "completed", result=3)
    assert not len(await kit.drain()), "nothing is left"


async def test_jobs_run_by_priority_then_in_the_order_they_were_enqueued(
    app: Holdfast, conn: Conn, kit: Testing
) -> None:
    order = []

    @app.job("note")
    async def note(job: Job[None], name: str) -> None:
        order.append(name)

    jobs = [note.new("a").options(queue="other"), note.new("b"), note.new("urgent").options(priority=0), note.new("c")]
    for job in jobs:
        await app.enqueue(conn, job)
    await kit.drain()
    assert order == ["urgent", "a", "b", "c"], "queues that no kind names are drained too"


async def test_what_is_not_due_and_what_others_handle_is_left_alone(app: Holdfast, conn: Conn, kit: Testing) -> None:
    @app.job("later")
    async def later(job: Job[None]) -> None: ...

    elsewhere = app.declare("elsewhere", dict[str, int])
    await app.enqueue(conn, later.new().options(delay=timedelta(hours=1)))
    await app.enqueue(conn, elsewhere.new({"n": 1}))
    await app.enqueue(conn, later.new().options(queue="paused"))
    await conn.execute("INSERT INTO holdfast.queue (name, paused) VALUES ('paused', true)")
    assert not len(await kit.drain())
    assert [job.status for job in await kit.enqueued(later)] == ["pending", "pending"]


async def test_what_a_handler_raises_is_raised_when_its_ending_is_written(
    app: Holdfast, conn: Conn, kit: Testing
) -> None:
    @app.job("charge", retry=Retry(max_attempts=2))
    async def charge(job: Job[None]) -> None:
        raise LookupError("no such card")

    handle = await app.enqueue(conn, charge.new())
    with pytest.raises(LookupError, match="no such card") as caught:
        await kit.drain()
    assert caught.traceback[-1].name == "charge", "the traceback leads into the handler"
    row = await (await conn.execute("SELECT status::text, attempt, last_error FROM holdfast.job")).fetchone()
    assert row == ("pending", 1, "no such card")

    drained = await kit.drain(raise_errors=False)
    assert not len(drained), "it waits for its retry"
    await kit.travel(timedelta(minutes=1))
    drained = await kit.drain(raise_errors=False)
    assert drained.failed == [handle.id]
    (ran,) = drained
    assert (ran.attempt, ran.error_code, ran.error) == (2, "LookupError", "no such card")
    assert isinstance(ran.exception, LookupError)


async def test_a_job_that_enqueues_itself_for_ever_is_stopped(app: Holdfast, conn: Conn, kit: Testing) -> None:
    runs = []

    @app.job("loop")
    async def loop(job: Job[None]) -> None:
        runs.append(job.id)
        await app.enqueue(conn, loop.new())

    await app.enqueue(conn, loop.new())
    with pytest.raises(AssertionError, match="5 attempts were made and more is due"):
        await kit.drain(limit=5)
    assert len(runs) == 5
    with pytest.raises(AssertionError, match="0 seconds have passed, 0 attempts were made"):
        await kit.drain(timeout=timedelta(0))


async def test_order_keys_keep_their_order(app: Holdfast, conn: Conn, kit: Testing) -> None:
    order = []

    @app.job("entry", retry=Retry(max_attempts=2))
    async def entry(job: Job[None], number: int) -> None:
        order.append(number)
        if number == 1 and job.attempt == 1:
            raise RuntimeError

    for number in (1, 2, 3):
        await app.enqueue(conn, entry.new(number).options(order_key="account 7"))
    assert len(await kit.drain(raise_errors=False)) == 1, "the others wait behind the one that will be retried"
    await kit.travel(timedelta(minutes=1))
    await kit.drain()
    assert order == [1, 1, 2, 3]


async def test_expired_and_cancelled_jobs_do_not_run(app: Holdfast, conn: Conn, kit: Testing) -> None:
    @app.job("offer")
    async def offer(job: Job[None]) -> None:
        raise AssertionError

    expired = await app.enqueue(conn, offer.new().options(expires=timedelta(hours=1)))
    called_off = await app.enqueue(conn, offer.new())
    assert await app.cancel(conn, called_off.id) == "cancelled"
    await kit.travel(timedelta(hours=1))
    assert (await kit.drain()).cancelled == [expired.id]


async def test_a_worker_of_the_test_leaves_nothing_behind(
    app: Holdfast, conn: Conn, kit: Testing, database: str
) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    await app.enqueue(conn, act.new())
    await kit.drain()
    rows = await (await conn.execute("SELECT name, stopped_at IS NOT NULL FROM holdfast.worker")).fetchall()
    assert rows == [("holdfast.testing", True)]
    with psycopg.connect(database) as other:
        for table in ("worker", "job", "job_history"):
            assert other.execute(f"SELECT count(*) FROM holdfast.{table}".encode()).fetchone() == (0,)


async def test_without_a_transaction_it_works_as_well(database: str, app: Holdfast) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        handle = await app.enqueue(conn, act.new())
        assert (await Testing(app, conn).drain()).completed == [handle.id]


async def test_a_lease_that_time_took_is_lost(app: Holdfast, conn: Conn, kit: Testing) -> None:
    """A worker that died is a row of a test's own: its job is reaped, and runs again at once."""

    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    handle = await app.enqueue(conn, act.new())
    await conn.execute(
        "UPDATE holdfast.job SET status = 'processing', attempt = 1, locked_by = 0, lock_token = 0,"
        " locked_until = clock_timestamp() + interval '1 minute'"
    )
    assert not len(await kit.drain())
    await kit.travel(timedelta(minutes=1))
    drained = await kit.drain()
    assert drained.lost == drained.completed == [handle.id]


async def test_jobs_with_limits_run_one_batch_after_the_other(app: Holdfast, conn: Conn, kit: Testing) -> None:
    """Also under a limit that a worker has stored there: what has no room yet runs later in the same drain."""
    await conn.execute("INSERT INTO holdfast.limit_rule (name, concurrency) VALUES ('act', 1)")

    @app.job("act", limits=[Limit(concurrency=1)])
    async def act(job: Job[None]) -> None: ...

    await app.enqueue_many(conn, [act.new() for _ in range(5)])
    await app.enqueue(conn, act.new())
    assert len((await kit.drain()).completed) == 6
