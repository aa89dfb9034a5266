"""Handlers: run as a worker runs them, on the connection of the test."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import AbortReason, Busy, Continue, Fail, Handle, Holdfast, Job, JsonCodec, Reschedule, Retry
from holdfast._logs import log as logs
from holdfast._model.errors import NotCommitted
from holdfast.testing import Testing
from tests.testing.codec import Backwards

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Conn = psycopg.AsyncConnection[Any]


@pytest.mark.parametrize("way", ["raised", "returned"])
async def test_fail_reschedule_and_busy(app: Holdfast, conn: Conn, kit: Testing, way: str) -> None:
    @app.job("say")
    async def say(job: Job[None], what: str) -> Fail | Reschedule | Busy:
        output: dict[str, Fail | Reschedule | Busy] = {
            "fail": Fail("no"),
            "again": Reschedule(timedelta(minutes=5)),
            "busy": Busy(timedelta(minutes=5)),
        }
        if way == "raised":
            raise output[what]
        return output[what]

    handles: list[Handle[Any]] = [await app.enqueue(conn, say.new(what)) for what in ("fail", "again", "busy")]
    failing, again, busy = handles
    drained = await kit.drain(raise_errors=False)
    assert (drained.failed, drained.rescheduled, drained.released) == ([failing.id], [again.id], [busy.id])
    attempts = await (await conn.execute("SELECT attempt, available_at > now() FROM holdfast.job")).fetchall()
    assert attempts == [(0, True), (0, True)], "neither counts, and both wait"
    await app.enqueue(conn, say.new("fail"))
    with pytest.raises(Fail, match="no"):
        await kit.drain()


async def test_a_job_that_is_put_off_to_a_moment(app: Holdfast, conn: Conn, kit: Testing) -> None:
    @app.job("remind")
    async def remind(job: Job[None], at: datetime) -> Reschedule | None:
        return Reschedule(at) if at > datetime.now(UTC) else None

    handle = await app.enqueue(conn, remind.new(datetime.now(UTC) + timedelta(hours=1)))
    assert (await kit.drain()).rescheduled == [handle.id]
    assert (await kit.drain()).attempts == ()
    await kit.travel(timedelta(hours=1))
    assert (await kit.drain()).rescheduled == [handle.id], "it was due, and asked again: real time has not passed"


@pytest.mark.parametrize("codec", [JsonCodec(), Backwards()])
async def test_what_a_handler_completed_itself_is_reported_with_its_result(conn: Conn, codec: JsonCodec) -> None:
    app = Holdfast(codec=codec)

    @app.job("count")
    async def count(job: Job[None], number: int) -> int | Continue[int]:
        async with conn.transaction():
            return await job.complete(conn, number or Continue(count.new(42)))

    await app.enqueue(conn, count.new(0))
    drained = await Testing(app, conn).drain()
    assert [(ran.outcome, ran.result) for ran in drained] == [("completed", None), ("completed", 42)]


@pytest.mark.parametrize("way", ["raised", "rolled back"])
async def test_a_completion_that_is_undone_is_a_failure(app: Holdfast, conn: Conn, kit: Testing, way: str) -> None:
    @app.job("count")
    async def count(job: Job[None]) -> int:
        async with conn.transaction(force_rollback=way == "rolled back"):
            await job.complete(conn, 42)
            if way == "raised":
                raise ValueError("no")
        return 42

    handle = await app.enqueue(conn, count.new())
    drained = await kit.drain(raise_errors=False)
    assert drained.retried == [handle.id]
    assert [ran.error_code for ran in drained] == ["ValueError" if way == "raised" else "NotCommitted"]
    with pytest.raises(ValueError if way == "raised" else NotCommitted):
        await kit.run_job(handle)


async def test_middlewares_codec_headers_and_logs_are_those_of_a_worker(conn: Conn) -> None:
    app = Holdfast(codec=Backwards())
    seen: list[Any] = []

    async def outer(job: Job[Any], worker: str, step: Callable[[], Awaitable[object]]) -> object:
        seen.append((job.kind, worker, dict(job.headers)))
        return f"<{await step()}>"

    app.middlewares.append(outer)

    @app.job("greet")
    def greet(job: Job[None], name: str) -> str:
        seen.append((threading.current_thread() is threading.main_thread(), dict(logs.context.get())["kind"]))
        return f"hello {name}"

    kit = Testing(app, conn)
    await app.enqueue(conn, greet.new("a").options(headers={"trace": "x"}))
    (ran,) = await kit.drain()
    assert ran.result == "<hello a>"
    assert seen == [("greet", "holdfast.testing", {"trace": "x"}), (False, "greet")]
    await kit.assert_enqueued(greet.new("a"))
    row = await (await conn.execute("SELECT payload, result FROM holdfast.job_history")).fetchone()
    assert row == ({"sealed": '}"a":"eman"{'}, {"sealed": '">a olleh<"'})
    assert not logs.context.get()


async def test_the_state_is_the_lifespans_entered_once_per_drain(conn: Conn) -> None:
    entered: list[str] = []

    @asynccontextmanager
    async def resources(app: Holdfast) -> AsyncIterator[str]:
        entered.append("in")
        yield "pool"
        entered.append("out")

    app = Holdfast(lifespan=resources)
    seen: list[object] = []

    @app.job("use")
    async def use(job: Job[str]) -> None:
        seen.append(job.state)

    for _ in range(2):
        await app.enqueue(conn, use.new())
    await Testing(app, conn).drain()
    assert (seen, entered) == (["pool", "pool"], ["in", "out"])
    await app.enqueue(conn, use.new())
    await Testing(app, conn, state=conn).drain()
    assert seen[2] is conn
    assert len(entered) == 2, "where a state is given, nothing is entered"


async def test_a_handler_on_the_tests_own_connection(app: Holdfast, conn: Conn) -> None:
    """It sees what the test wrote, its block is a savepoint, and a statement that fails undoes no more than that."""
    await conn.execute("CREATE TEMP TABLE invoice (id int PRIMARY KEY)")

    @app.job("bill", retry=Retry(max_attempts=1))
    async def bill(job: Job[psycopg.AsyncConnection[Any]], number: int) -> None:
        async with job.state.transaction():
            await job.state.execute("INSERT INTO invoice VALUES (%s)", [number])

    kit = Testing(app, conn, state=conn)
    good, bad = [await app.enqueue(conn, bill.new(1)) for _ in range(2)]
    drained = await kit.drain(raise_errors=False)
    assert (drained.completed, drained.failed) == ([good.id], [bad.id])
    assert isinstance(drained.attempts[1].exception, psycopg.errors.UniqueViolation)


async def test_a_transaction_that_a_handler_broke_does_not_hide_why(database: str, app: Holdfast) -> None:
    @app.job("break")
    async def break_it(job: Job[psycopg.AsyncConnection[Any]]) -> None:
        try:
            await job.state.execute("SELECT 1 / 0")
        except psycopg.Error as exc:
            raise LookupError("no such card") from exc

    async with await psycopg.AsyncConnection.connect(database) as conn:
        await app.enqueue(conn, break_it.new())
        with pytest.raises(LookupError) as caught:
            await Testing(app, conn, state=conn).drain()
        assert isinstance(caught.value.__cause__, psycopg.errors.DivisionByZero)
        assert "could not be written: current transaction is aborted" in caught.value.__notes__[0]
        await conn.rollback()
        await app.enqueue(conn, break_it.new())
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            await Testing(app, conn, state=conn).drain(raise_errors=False)
        await conn.rollback()


async def test_a_handler_that_hangs_is_stopped(app: Holdfast, conn: Conn, kit: Testing) -> None:
    reported: list[Any] = []

    @app.job("hang")
    async def hang(job: Job[None]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            reported.append(job.signal.reason)

    handle = await app.enqueue(conn, hang.new())
    with pytest.raises(AssertionError, match=rf"hang \(job {handle.id}\) was still running"):
        await kit.drain(timeout=timedelta(seconds=3))
    assert reported == [AbortReason.timeout]


async def test_max_runtime_ends_an_attempt_as_in_a_worker(app: Holdfast, conn: Conn, kit: Testing) -> None:
    @app.job("slow", max_runtime=timedelta(milliseconds=20))
    async def slow(job: Job[None]) -> None:
        await asyncio.Event().wait()

    handle = await app.enqueue(conn, slow.new())
    drained = await kit.drain(raise_errors=False)
    assert drained.retried == [handle.id]
    assert "max_runtime" in str(drained.attempts[0])


async def test_cancelling_a_drain_cancels_the_handler(app: Holdfast, conn: Conn, kit: Testing) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    @app.job("hang")
    async def hang(job: Job[None]) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    await app.enqueue(conn, hang.new())
    draining = asyncio.ensure_future(kit.drain(raise_errors=False))
    await begun.wait()
    draining.cancel()
    with pytest.raises(asyncio.CancelledError):
        await draining
    await asyncio.wait_for(ended.wait(), 20)


async def test_a_payload_that_does_not_fit_fails_the_test(app: Holdfast, conn: Conn, kit: Testing) -> None:
    @app.job("count")
    async def count(job: Job[None], number: int) -> None: ...

    handle = await app.enqueue(conn, count.new(1))
    await conn.execute('UPDATE holdfast.job SET payload = \'{"number": "many"}\'')
    with pytest.raises(AssertionError, match=rf"count \(job {handle.id}, attempt 1\).*number"):
        await kit.drain()
    await kit.travel(timedelta(minutes=11))
    assert (await kit.drain(raise_errors=False)).failed == [handle.id], "the grace of a deploy is over"


async def test_a_handler_for_a_process_runs_here_without_a_state(app: Holdfast, conn: Conn) -> None:
    render = app.job("render", executor="process")(page_and_state)
    await app.enqueue(conn, render.new(3))
    (ran,) = await Testing(app, conn, state="given").drain()
    assert ran.result == [3, None]


def page_and_state(job: Job[Any], page: int) -> list[Any]:
    return [page, job.state]
