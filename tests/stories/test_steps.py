"""Handlers that record their steps, on a real worker: what runs once, what is raised again, and what is refused."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import asyncpg
import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from holdfast import (
    AbortReason,
    Fail,
    Holdfast,
    InvalidStep,
    Item,
    Job,
    LeaseLost,
    Reschedule,
    Retry,
    Step,
    StoryChanged,
)
from holdfast._engine.jobs import recorder
from tests.kit.pace import AT_ONCE, QUICK, ms
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit.ledger import Found, Ledger


T = TypeVar("T")


@dataclass
class Charge:
    id: str


class Declined(Exception):  # noqa: N818 - as an application names it
    def __init__(self, amount: int, *, reason: str) -> None:
        super().__init__(f"{amount} declined")
        self.reason = reason


class Bank:
    """Counts the calls of what steps call."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def charge(self, order: int, *, amount: int = 1) -> Charge:
        self.calls.append("charge")
        return Charge(f"ch-{order}-{amount}")

    async def named(self, name: str) -> str:
        self.calls.append(name)
        return name

    def fee(self, order: int) -> int:
        self.calls.append(f"fee in {threading.current_thread().name}")
        return order * 2

    async def book(self, conn: psycopg.AsyncConnection[Any], order: int) -> list[Charge]:
        self.calls.append("book")
        await conn.execute("INSERT INTO entry VALUES (%s)", [order])
        return [Charge(str(order))]

    def book_now(self, conn: psycopg.Connection[Any], order: int) -> int:
        self.calls.append("book")
        conn.execute("INSERT INTO entry VALUES (%s)", [order])
        return order


@pytest.fixture
def bank(ledger: Ledger) -> Bank:
    ledger.do("CREATE TABLE entry (number bigint NOT NULL)")
    return Bank()


async def ended(app: Holdfast, ledger: Ledger, job: int) -> Found:
    """Run a worker until the job has ended."""
    async with app.worker(**QUICK):
        await until(lambda: ledger.status(job) in {"completed", "failed", "cancelled"}, 20)
    return ledger.job(job)


def entries(ledger: Ledger) -> list[int]:
    return [number for (number,) in ledger.rows("SELECT number FROM entry ORDER BY 1")]


def left(ledger: Ledger) -> int:
    found: int = ledger.value("SELECT (SELECT count(*) FROM holdfast.step) + (SELECT count(*) FROM holdfast.message)")
    return found


async def test_what_was_recorded_runs_once_and_has_its_type_again(app: Holdfast, ledger: Ledger, bank: Bank) -> None:
    seen: list[object] = []

    @app.job("fulfil", retry=AT_ONCE)
    async def fulfil(job: Job[None], order: int) -> str:
        charge = await job.step("charge", bank.charge, order, amount=3)
        fee = await job.step("fee", bank.fee, order)
        seen.append((charge, fee))
        if len(seen) == 1:
            raise ConnectionError("after both")
        return charge.id

    job = ledger.enqueue_one(fulfil.new(7))
    assert (await ended(app, ledger, job)).result == "ch-7-3"
    assert seen == [(Charge("ch-7-3"), 14)] * 2
    assert bank.calls == ["charge", "fee in holdfast-runner-step-fee"]
    [(journal,)] = ledger.rows("SELECT steps FROM holdfast.job_history")
    assert [(entry["name"], entry["result"]) for entry in journal] == [("charge", {"id": "ch-7-3"}), ("fee", 14)]
    assert left(ledger) == 0


async def test_a_result_is_at_once_what_it_will_be(app: Holdfast, ledger: Ledger) -> None:
    """A function may return a subclass, whose other fields the declared type does not keep."""

    @dataclass
    class Detailed(Charge):
        extra: int = 3

    async def charge() -> Charge:
        return Detailed("x", 9)

    seen: list[object] = []

    @app.job("fulfil", retry=Retry(max_attempts=1))
    async def fulfil(job: Job[None]) -> None:
        seen.append(type(await job.step("charge", charge)))

    assert (await ended(app, ledger, ledger.enqueue_one(fulfil.new()))).status == "completed"
    assert seen == [Charge]


async def test_the_writes_of_step_on_commit_with_its_record(
    app: Holdfast, ledger: Ledger, bank: Bank, database: str
) -> None:
    attempts: list[int] = []

    @app.job("fulfil", retry=AT_ONCE)
    async def fulfil(job: Job[None], order: int) -> str:
        attempts.append(job.attempt)
        async with await psycopg.AsyncConnection.connect(database) as conn:
            booked = await job.step_on(conn, "book", bank.book, order)
            if len(attempts) == 1:
                raise ConnectionError("before the commit")
        if len(attempts) == 2:
            raise ConnectionError("after the commit")
        return booked[0].id

    job = ledger.enqueue_one(fulfil.new(7))
    assert (await ended(app, ledger, job)).result == "7"
    # The first was rolled back with its record, so the function was called again. The second has committed.
    assert bank.calls == ["book", "book"]
    assert entries(ledger) == [7]


async def test_step_on_takes_connections_of_other_libraries(app: Holdfast, ledger: Ledger, database: str) -> None:
    engine = create_async_engine(database.replace("postgresql://", "postgresql+psycopg://"))
    ledger.do("CREATE TABLE entry (number bigint NOT NULL)")

    async def with_asyncpg(conn: asyncpg.Connection[Any], number: int) -> int:
        await conn.execute("INSERT INTO entry VALUES ($1)", number)
        return number

    async def with_session(session: AsyncSession, number: int) -> int:
        await session.execute(text("INSERT INTO entry VALUES (:number)"), {"number": number})
        return number

    @app.job("fulfil", retry=AT_ONCE)
    async def fulfil(job: Job[None]) -> int:
        conn = await asyncpg.connect(database)
        async with conn.transaction():
            one = await job.step_on(conn, "asyncpg", with_asyncpg, 1)
        await conn.close()
        async with AsyncSession(engine) as session:
            two = await job.step_on(session, "SQLAlchemy", with_session, 2)
            await session.commit()
        await job.sleep("cool off", ms(1))
        return one + two

    job = ledger.enqueue_one(fulfil.new())
    assert (await ended(app, ledger, job)).result == 3
    assert entries(ledger) == [1, 2]
    await engine.dispose()


async def test_a_story_sleeps_without_a_slot_or_an_attempt(app: Holdfast, ledger: Ledger, bank: Bank) -> None:
    begun: list[int] = []

    @app.job("fulfil", retry=Retry(max_attempts=1))
    async def fulfil(job: Job[None]) -> str:
        begun.append(job.attempt)
        await job.step("before", bank.named, "before")
        await job.sleep("cool off", ms(200))
        await job.sleep("until", datetime.now(UTC) - timedelta(days=1))
        return await job.step("after", bank.named, "after")

    job = ledger.enqueue_one(fulfil.new())
    async with app.worker(**QUICK) as worker:
        await until(lambda: ledger.status(job) == "pending" and ledger.value("SELECT count(*) FROM holdfast.step") == 2)
        [(later, attempt, locked, due)] = ledger.rows(
            "SELECT later, attempt, locked_by, available_at = (SELECT due FROM holdfast.step WHERE due IS NOT NULL) "
            "FROM holdfast.job"
        )
        assert (later, attempt, locked, due) == (True, 0, None, True)
        await until(lambda: worker.counts.get("job_rescheduled") == 1)
        await until(lambda: ledger.status(job) == "completed")
    assert begun == [1, 1]
    assert bank.calls == ["before", "after"]


async def test_a_sleep_of_days_ends_by_the_clock_of_the_database(app: Holdfast, ledger: Ledger) -> None:
    @app.job("fulfil")
    async def fulfil(job: Job[None]) -> str:
        await job.sleep("cool off", timedelta(days=3))
        return "done"

    job = ledger.enqueue_one(fulfil.new())
    async with app.worker(**QUICK):
        await until(lambda: ledger.rows("SELECT FROM holdfast.job WHERE later"))
        # Claimed early, as when an operator runs it now: it sleeps on.
        ledger.do("UPDATE holdfast.job SET available_at = now(), later = NULL")
        ledger.do("SELECT holdfast.wake_sleepers('{default}', '{fulfil}')")
        await until(
            lambda: ledger.rows("SELECT FROM holdfast.job WHERE later AND available_at > now() + interval '2 days'")
        )
        ledger.do("UPDATE holdfast.step SET due = due - interval '3 days'")
        ledger.do("UPDATE holdfast.job SET available_at = now(), later = NULL")
        await until(lambda: ledger.status(job) == "completed")


async def test_a_plain_handler_is_a_story_too(app: Holdfast, ledger: Ledger, bank: Bank, database: str) -> None:
    runs: list[int] = []

    @app.job("fulfil", retry=AT_ONCE)
    def fulfil(job: Job[None], order: int) -> str:
        runs.append(job.attempt)
        fee = job.sync.step(Step("fee", key=order), bank.fee, order)
        with psycopg.connect(database) as conn:
            job.sync.step_on(conn, "book", bank.book_now, order)
        try:
            job.sync.sleep("cool off", ms(100))
        except Exception:  # noqa: BLE001 - a suspension passes it
            return "went on"
        if len(runs) == 2:
            raise ConnectionError("once more")
        return f"{fee}"

    job = ledger.enqueue_one(fulfil.new(7))
    assert (await ended(app, ledger, job))[:3] == ("completed", 2, "14")
    assert len(bank.calls) == 2
    assert entries(ledger) == [7]


async def test_a_caught_failure_is_raised_again(app: Holdfast, ledger: Ledger, bank: Bank) -> None:
    """Without its record, an attempt after a crash could charge, and take the other branch."""
    seen: list[object] = []

    async def charge() -> Charge:
        bank.calls.append("charge")
        raise Declined(7, reason="poor")

    @app.job("fulfil", retry=AT_ONCE)
    async def fulfil(job: Job[None]) -> str:
        try:
            await job.step("charge", charge)
        except Declined as exc:
            seen.append((str(exc), exc.reason))
            await job.step("mail", bank.named, "mail")
            if len(seen) == 1:
                # Its context is the failure, which the handler has gone on from.
                raise ConnectionError("in the branch")  # noqa: B904
        return "declined"

    job = ledger.enqueue_one(fulfil.new())
    assert (await ended(app, ledger, job)).result == "declined"
    assert bank.calls == ["charge", "mail"]
    assert seen == [("7 declined", "poor")] * 2


@pytest.mark.parametrize("wrapped", [False, True])
async def test_a_failure_that_ends_the_attempt_is_tried_again(
    app: Holdfast, ledger: Ledger, bank: Bank, wrapped: bool
) -> None:
    async def charge() -> Charge:
        bank.calls.append("charge")
        if len(bank.calls) < 3:
            raise ConnectionError("the bank is away")
        return Charge("x")

    @app.job("fulfil", retry=AT_ONCE)
    async def fulfil(job: Job[None]) -> str:
        try:
            return (await job.step("charge", charge)).id
        except ConnectionError as exc:
            if wrapped:
                raise RuntimeError("not charged") from exc
            raise

    job = ledger.enqueue_one(fulfil.new())
    assert (await ended(app, ledger, job)).result == "x"
    assert ledger.attempts(job)[:2] == [(1, "retry"), (2, "retry")]
    assert bank.calls == ["charge"] * 3


async def test_failures_use_up_the_attempts(app: Holdfast, ledger: Ledger, bank: Bank) -> None:
    async def charge() -> Charge:
        bank.calls.append("charge")
        raise ConnectionError("the bank is away")

    @app.job("fulfil", retry=AT_ONCE)
    async def fulfil(job: Job[None]) -> None:
        await job.step("charge", charge)

    job = ledger.enqueue_one(fulfil.new())
    found = await ended(app, ledger, job)
    assert (found.status, found.attempt, found.error_code) == ("failed", 3, "ConnectionError")
    assert bank.calls == ["charge"] * 3
    # The dead letter can be retried: the failure is not in its journal.
    assert ledger.value("SELECT steps FROM holdfast.job_failed") is None


async def test_a_step_may_have_attempts_of_its_own(app: Holdfast, ledger: Ledger, bank: Bank) -> None:
    async def charge() -> Charge:
        bank.calls.append("charge")
        if len(bank.calls) < 2:
            raise ConnectionError("the bank is away")
        await asyncio.sleep(30 if len(bank.calls) == 2 else 0)
        return Charge("x")

    @app.job("fulfil", retry=Retry(max_attempts=1))
    async def fulfil(job: Job[None]) -> str:
        return (await job.step(Step("charge", attempts=3, timeout=0.05), charge)).id

    job = ledger.enqueue_one(fulfil.new())
    assert (await ended(app, ledger, job))[:3] == ("completed", 1, "x")
    assert bank.calls == ["charge"] * 3


async def test_attempts_are_counted_since_the_last_new_step(app: Holdfast, ledger: Ledger, bank: Bank) -> None:
    """Each attempt records one step and fails: with three attempts in all, the story would be buried."""

    @app.job("fulfil", retry=AT_ONCE)
    async def fulfil(job: Job[None]) -> str:
        for n in range(6):
            before = len(bank.calls)
            await job.step(Step("part", key=n), bank.named, str(n))
            if len(bank.calls) > before:
                raise ConnectionError("after a new step")
        return "done"

    job = ledger.enqueue_one(fulfil.new())
    assert (await ended(app, ledger, job)).result == "done"
    assert bank.calls == [str(n) for n in range(6)]


async def test_attempts_are_counted_since_a_step_in_the_handlers_transaction(
    app: Holdfast, ledger: Ledger, bank: Bank, database: str
) -> None:
    @app.job("fulfil", retry=AT_ONCE)
    async def fulfil(job: Job[None]) -> str:
        for n in range(6):
            before = len(bank.calls)
            async with await psycopg.AsyncConnection.connect(database) as conn:
                await job.step_on(conn, Step("part", key=n), bank.book, n)
            if len(bank.calls) > before:
                raise ConnectionError("after a new step")
        return "done"

    job = ledger.enqueue_one(fulfil.new())
    assert (await ended(app, ledger, job)).result == "done"
    assert entries(ledger) == list(range(6))


async def test_steps_that_are_rolled_back_use_up_the_attempts(
    app: Holdfast, ledger: Ledger, bank: Bank, database: str
) -> None:
    @app.job("fulfil", retry=AT_ONCE)
    async def fulfil(job: Job[None]) -> None:
        async with await psycopg.AsyncConnection.connect(database) as conn:
            await job.step_on(conn, "book", bank.book, 7)
            raise ConnectionError("never committed")

    job = ledger.enqueue_one(fulfil.new())
    found = await ended(app, ledger, job)
    assert (found.status, found.attempt) == ("failed", 3)
    assert entries(ledger) == []


async def refused(app: Holdfast, ledger: Ledger, code: str) -> str:
    """Return why the only kind's job became a dead letter at its first attempt."""
    (kind,) = app.kinds.values()
    found = await ended(app, ledger, ledger.enqueue_one(kind.new()))  # type: ignore[call-arg]
    assert (found.status, found.attempt, found.error_code) == ("failed", 1, code)
    return found.error or ""


async def test_the_same_name_twice_is_refused(app: Holdfast, ledger: Ledger, bank: Bank) -> None:
    @app.job("fulfil", retry=AT_ONCE)
    async def fulfil(job: Job[None]) -> None:
        await asyncio.gather(job.step("a", bank.named, "1"), job.step("a", bank.named, "2"))

    assert "'a' was reached twice" in await refused(app, ledger, "InvalidStep")


async def test_a_step_inside_of_a_step_is_refused(app: Holdfast, ledger: Ledger, bank: Bank) -> None:
    @app.job("fulfil", retry=AT_ONCE)
    async def fulfil(job: Job[None]) -> None:
        async def outer() -> str:
            return await job.step("inner", bank.named, "inner")

        await job.step("outer", outer)

    assert "'inner' inside of step 'outer'" in await refused(app, ledger, "InvalidStep")
    assert bank.calls == []


def untyped_of(bank: Bank) -> Any:
    def untyped():  # type: ignore[no-untyped-def]  # noqa: ANN202
        bank.calls.append("ran")

    return untyped


def first_of(bank: Bank) -> Any:
    def first(given: list[T]) -> T:
        bank.calls.append("ran")
        return given[0]

    return partial(first, [1])


UNTYPED: dict[str, Callable[[Bank], Any]] = {
    "a lambda": lambda bank: lambda: bank.calls.append("ran"),
    "a function without annotations": untyped_of,
    "a type variable": first_of,
}


@pytest.mark.parametrize("name", UNTYPED)
async def test_a_function_without_a_result_type_is_refused_before_it_runs(
    app: Holdfast, ledger: Ledger, bank: Bank, name: str
) -> None:
    @app.job("fulfil", retry=AT_ONCE)
    async def fulfil(job: Job[None]) -> None:
        await job.step("charge", UNTYPED[name](bank))

    assert "declares no result type" in await refused(app, ledger, "InvalidStep")
    assert bank.calls == []


async def test_returns_declares_the_type(app: Holdfast, ledger: Ledger) -> None:
    @app.job("fulfil")
    async def fulfil(job: Job[None]) -> str:
        charge: Charge = await job.step(Step("charge", returns=Charge), lambda: Charge("x"))
        return charge.id

    job = ledger.enqueue_one(fulfil.new())
    assert (await ended(app, ledger, job)).result == "x"


async def test_a_result_of_another_type_is_recorded_all_the_same(app: Holdfast, ledger: Ledger, bank: Bank) -> None:
    """The work is done. With a corrected annotation, the retried job goes on without doing it again."""

    async def wrong() -> int:
        bank.calls.append("ran")
        return "seven"  # type: ignore[return-value]

    @app.job("fulfil", retry=AT_ONCE)
    async def fulfil(job: Job[None]) -> None:
        await job.step("count", wrong)

    assert "not of the declared type" in await refused(app, ledger, "InvalidStep")
    [(journal,)] = ledger.rows("SELECT steps FROM holdfast.job_failed")
    assert [entry["result"] for entry in journal] == ["seven"]


@pytest.mark.parametrize("renamed", [False, True])
async def test_a_renamed_step_stops_the_story_before_anything_runs(
    app: Holdfast, ledger: Ledger, bank: Bank, renamed: bool
) -> None:
    runs: list[int] = []

    @app.job("fulfil", retry=AT_ONCE)
    async def fulfil(job: Job[None]) -> None:
        runs.append(1)
        await job.step("new" if renamed and len(runs) > 1 else "old", bank.named, "charge")
        await job.sleep("cool off", ms(50))

    job = ledger.enqueue_one(fulfil.new())
    found = await ended(app, ledger, job)
    if renamed:
        assert (found.status, found.error_code) == ("failed", "StoryChanged")
        assert "'new' is new, and step 'old' was recorded" in (found.error or "")
    else:
        assert found.status == "completed"
    assert bank.calls == ["charge"]


async def test_steps_recorded_beside_others_raise_no_false_alarm(app: Holdfast, ledger: Ledger, bank: Bank) -> None:
    """Of two at once the second was recorded and the first failed: then the first is new, and reached first."""

    async def slow() -> str:
        bank.calls.append("slow")
        await asyncio.sleep(0.05)
        if bank.calls.count("slow") == 1:
            raise ConnectionError("once")
        return "slow"

    @app.job("pair", retry=AT_ONCE)
    async def pair(job: Job[None]) -> list[str]:
        await job.step("before", bank.named, "before")
        return [*await asyncio.gather(job.step("slow", slow), job.step("quick", bank.named, "quick"))]

    job = ledger.enqueue_one(pair.new())
    assert (await ended(app, ledger, job)).result == ["slow", "quick"]
    assert bank.calls == ["before", "slow", "quick", "slow"]


async def test_a_task_that_has_not_begun_raises_no_false_alarm(app: Holdfast, ledger: Ledger, bank: Bank) -> None:
    """In the second attempt the handler reaches a new step before its task can reach the one that is recorded."""
    recorded = asyncio.Event()

    async def slow() -> str:
        await recorded.wait()
        bank.calls.append("slow")
        if bank.calls.count("slow") == 1:
            raise ConnectionError("once")
        return "slow"

    @app.job("pair", retry=AT_ONCE)
    async def pair(job: Job[None]) -> str:
        await job.step("before", bank.named, "before")
        beside = asyncio.create_task(job.step("beside", bank.named, "beside"))
        beside.add_done_callback(lambda _: recorded.set())
        slowly = await job.step("slow", slow)
        return f"{slowly} {await beside}"

    job = ledger.enqueue_one(pair.new())
    assert (await ended(app, ledger, job)).result == "slow beside"
    assert bank.calls == ["before", "beside", "slow", "slow"]


async def test_concurrent_steps_are_recorded_once_each(app: Holdfast, ledger: Ledger, bank: Bank) -> None:
    runs: list[int] = []

    @app.job("many", retry=AT_ONCE)
    async def many(job: Job[None]) -> int:
        parts = await asyncio.gather(*[job.step(Step("part", key=n), bank.named, str(n)) for n in range(30)])
        runs.append(1)
        if len(runs) == 1:
            raise ConnectionError("after all")
        return len(parts)

    job = ledger.enqueue_one(many.new())
    assert (await ended(app, ledger, job)).result == 30
    assert sorted(bank.calls) == sorted(str(n) for n in range(30))


async def test_a_worker_that_lost_the_story_records_nothing(
    app: Holdfast, ledger: Ledger, bank: Bank, database: str
) -> None:
    lost: list[AbortReason] = []
    taken = "UPDATE holdfast.job SET lock_token = lock_token + 1, locked_by = 0"

    @app.job("fulfil", retry=AT_ONCE)
    async def fulfil(job: Job[None]) -> str:
        await job.step("before", bank.named, "before")
        if not lost:
            ledger.do(taken)
            async with await psycopg.AsyncConnection.connect(database) as conn:
                with pytest.raises(LeaseLost) as caught:
                    await job.step_on(conn, "book", bank.book, 7)
                lost.append(caught.value.reason)
            with pytest.raises(LeaseLost):
                await job.step("after", bank.named, "after")
            assert job.signal.reason is lost[0]
        return "returned"

    ledger.enqueue_one(fulfil.new())
    async with app.worker(**QUICK) as worker:
        await until(lambda: worker.counts.get("job_lost") == 1)
        assert [name for (name,) in ledger.rows("SELECT name FROM holdfast.step")] == ["before"]
        # The function ran in its transaction, and its record was refused there. Nobody committed it.
        assert bank.calls == ["before", "book"]


async def test_a_step_is_refused_to_a_worker_whose_story_was_taken(app: Holdfast, ledger: Ledger, bank: Bank) -> None:
    raised: list[AbortReason] = []

    @app.job("fulfil", retry=AT_ONCE)
    async def fulfil(job: Job[None]) -> None:
        ledger.do("UPDATE holdfast.job SET lock_token = lock_token + 1, locked_by = 0")
        try:
            await job.step("charge", bank.charge, 7)
        except LeaseLost as exc:
            raised.append(exc.reason)
            raise

    ledger.enqueue_one(fulfil.new())
    async with app.worker(**QUICK) as worker:
        await until(lambda: worker.counts.get("job_lost") == 1)
    assert raised == [AbortReason.taken_by_another_worker]
    assert left(ledger) == 0


async def test_a_swallowed_suspension_is_found(app: Holdfast, ledger: Ledger) -> None:
    @app.job("fulfil", retry=AT_ONCE)
    async def fulfil(job: Job[None]) -> str:
        with suppress(asyncio.CancelledError):
            await job.sleep("cool off", 60)
        return "went on"

    assert "did not raise it again" in await refused(app, ledger, "suspension_swallowed")


async def test_an_error_of_the_cleanup_counts(app: Holdfast, ledger: Ledger) -> None:
    runs: list[int] = []

    @app.job("fulfil", retry=AT_ONCE)
    async def fulfil(job: Job[None]) -> str:
        runs.append(job.attempt)
        try:
            await job.sleep("cool off", ms(20))
        finally:
            if len(runs) == 1:
                raise RuntimeError("cleanup failed")
        return "done"

    job = ledger.enqueue_one(fulfil.new())
    assert (await ended(app, ledger, job)).result == "done"
    assert (1, "retry") in ledger.attempts(job)


async def test_a_story_is_not_suspended_inside_of_its_transaction(
    app: Holdfast, ledger: Ledger, bank: Bank, database: str
) -> None:
    @app.job("fulfil", retry=AT_ONCE)
    async def fulfil(job: Job[None]) -> None:
        async with await psycopg.AsyncConnection.connect(database) as conn:
            await job.step_on(conn, "book", bank.book, 7)
            await job.sleep("cool off", 60)

    assert "inside of a transaction" in await refused(app, ledger, "InvalidStep")
    assert entries(ledger) == []


async def test_a_step_on_a_connection_that_commits_by_itself_is_refused(
    app: Holdfast, ledger: Ledger, bank: Bank, database: str
) -> None:
    @app.job("fulfil", retry=AT_ONCE)
    async def fulfil(job: Job[None]) -> None:
        async with await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
            await job.step_on(conn, "book", bank.book, 7)

    assert "commits each statement by itself" in await refused(app, ledger, "InvalidStep")
    assert bank.calls == []


async def test_other_steps_are_recorded_beside_an_open_transaction(
    app: Holdfast, ledger: Ledger, bank: Bank, database: str
) -> None:
    """Also the first of a story, and in a later attempt: no row that they need is locked by the transaction."""
    attempts: list[int] = []

    @app.job("fulfil", retry=AT_ONCE)
    async def fulfil(job: Job[None]) -> str:
        attempts.append(job.attempt)
        if len(attempts) == 1:
            raise ConnectionError("before anything is recorded")
        async with await psycopg.AsyncConnection.connect(database) as conn:
            await job.step_on(conn, "book", bank.book, 7)
            return (await job.step("charge", bank.charge, 7)).id

    job = ledger.enqueue_one(fulfil.new())
    assert (await ended(app, ledger, job)).result == "ch-7-1"
    assert entries(ledger) == [7]


async def test_a_sibling_that_has_returned_is_recorded_before_the_end(
    app: Holdfast, ledger: Ledger, bank: Bank
) -> None:
    """One of a group fails while the record of another, and a plain function in its thread, are under way."""
    runs: list[int] = []
    in_thread = threading.Event()

    def plain() -> str:
        in_thread.set()
        bank.calls.append("plain")
        return "plain"

    async def fails() -> str:
        await asyncio.to_thread(in_thread.wait)
        if len(runs) == 1:
            raise ConnectionError("once")
        return "ok"

    @app.job("group", retry=AT_ONCE)
    async def group(job: Job[None]) -> str:
        runs.append(1)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(job.step("plain", plain))
            tasks.create_task(job.step("quick", bank.named, "quick"))
            tasks.create_task(job.step("fails", fails))
        return "done"

    job = ledger.enqueue_one(group.new())
    assert (await ended(app, ledger, job)).result == "done"
    assert sorted(bank.calls) == ["plain", "quick"]


async def test_a_record_under_way_is_written_before_the_attempt_ends(
    app: Holdfast, ledger: Ledger, bank: Bank, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row of the story is locked when its function returns, and the task that waits for the record is cancelled.

    The record is tried again long after an ending would have been.
    """
    monkeypatch.setattr(recorder, "BUSY_PAUSE", recorder.LONGEST_BUSY_PAUSE)
    returned = asyncio.Event()
    runs: list[int] = []
    other = await psycopg.AsyncConnection.connect(database)

    async def quick() -> str:
        bank.calls.append("quick")
        await other.execute("SELECT FROM holdfast.job FOR UPDATE")
        returned.set()
        return "quick"

    async def unlock() -> None:
        await asyncio.sleep(0.1)
        await other.close()

    @app.job("group", retry=AT_ONCE)
    async def group(job: Job[None]) -> str:
        runs.append(1)
        async with asyncio.TaskGroup() as tasks:
            quickly = tasks.create_task(job.step("quick", quick))
            if len(runs) == 1:
                await returned.wait()
                unlocking.append(asyncio.create_task(unlock()))
                raise ConnectionError("once")
        return quickly.result()

    unlocking: list[asyncio.Task[None]] = []
    job = ledger.enqueue_one(group.new())
    assert (await ended(app, ledger, job)).result == "quick"
    assert bank.calls == ["quick"]


async def test_signals_of_a_step_end_the_attempt_and_are_not_recorded(
    app: Holdfast, ledger: Ledger, bank: Bank
) -> None:
    async def later() -> str:
        bank.calls.append("later")
        if len(bank.calls) == 1:
            raise Reschedule(ms(1))
        raise Fail("no")

    @app.job("fulfil")
    async def fulfil(job: Job[None]) -> None:
        await job.step("later", later)

    job = ledger.enqueue_one(fulfil.new())
    found = await ended(app, ledger, job)
    assert (found.status, found.error_code) == ("failed", "Fail")
    assert bank.calls == ["later", "later"]


async def test_batches_and_processes_record_no_steps(app: Holdfast, ledger: Ledger, bank: Bank) -> None:
    seen: list[str] = []

    @app.batch("batch")
    async def batch(items: list[Item[dict[str, int]]]) -> None:
        for item in items:
            with pytest.raises(InvalidStep) as caught:
                await item.job.step("charge", bank.charge, 7)
            seen.append(str(caught.value))

    job = ledger.enqueue_one(batch.new({"a": 1}))
    assert (await ended(app, ledger, job)).status == "completed"
    assert ["batch" in text for text in seen] == [True]


async def test_a_job_that_no_worker_runs_has_no_steps(bank: Bank) -> None:
    with pytest.raises(Exception, match="is not run by a worker"):
        await Job(id=7, kind="fulfil", state=None).step("charge", bank.charge, 7)


async def test_the_verbs_are_refused_in_the_wrong_place(app: Holdfast, ledger: Ledger, bank: Bank) -> None:
    seen: list[str] = []

    @app.job("fulfil")
    async def fulfil(job: Job[None]) -> None:
        for call in (
            lambda: job.sync.step("fee", bank.fee, 7),
            lambda: job.sync.step("charge", bank.charge, 7),
        ):
            with pytest.raises(InvalidStep) as caught:
                call()
            seen.append(str(caught.value))
        with pytest.raises(InvalidStep) as caught:
            await job.step(Step("fee", timeout=5), bank.fee, 7)
        seen.append(str(caught.value))

        def elsewhere() -> None:
            with pytest.raises(InvalidStep) as caught:
                asyncio.run(job.step("charge", bank.charge, 7))
            seen.append(str(caught.value))

        await asyncio.to_thread(elsewhere)

    job = ledger.enqueue_one(fulfil.new())
    assert (await ended(app, ledger, job)).status == "completed"
    assert [text.partition(": ")[2] or text for text in seen] == [
        "await the verb of the job itself",
        "job.sync takes plain functions: await job.step in an async handler",
        "a plain function cannot be stopped, so it takes no timeout: make it async",
        "call the verbs in the worker's event loop; a plain handler has job.sync",
    ]


def test_the_key_of_a_step_is_its_own() -> None:
    job = Job(id=7, kind="fulfil", state=None)
    assert job.step_key("charge") == "holdfast:7:charge"
    assert job.step_key("charge", key=3) == "holdfast:7:charge:3"


def test_these_errors_are_not_retried() -> None:
    assert [InvalidStep.retryable, StoryChanged.retryable] == [False, False]
