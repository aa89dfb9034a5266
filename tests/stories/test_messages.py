"""Messages to stories: kept with the sender's commit, received once, in order, and never slept through."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import Holdfast, InvalidJob, Job, WrongIsolation
from holdfast._drivers import run
from holdfast._engine.jobs.journal import NEVER
from holdfast._model.outcome import Rescheduled
from holdfast._store.finish import Ending, finish_jobs
from holdfast._store.lease import ClaimAnswer, Held
from holdfast._store.step import take_message
from tests.kit.pace import AT_ONCE, QUICK, ms
from tests.kit.waiting import until
from tests.kit.workers import Worker, enqueue, job

if TYPE_CHECKING:
    from tests.kit.ledger import Ledger


@dataclass
class Approval:
    by: str


async def waiting(ledger: Ledger) -> None:
    await until(lambda: ledger.rows("SELECT FROM holdfast.job WHERE status = 'pending' AND later"))


async def test_a_message_wakes_the_story_that_waits_for_it(app: Holdfast, ledger: Ledger, database: str) -> None:
    approval, other = app.message("approval", Approval), app.message("other", Approval)

    @app.job("fulfil", retry=AT_ONCE)
    async def fulfil(job: Job[None]) -> str:
        return (await job.receive(approval)).by

    job = ledger.enqueue_one(fulfil.new())
    async with app.worker(**QUICK), await psycopg.AsyncConnection.connect(database) as conn:
        await waiting(ledger)
        assert await app.send(conn, fulfil.handle(job), other, Approval("eve")) == "sent"
        await conn.commit()
        assert ledger.rows("SELECT FROM holdfast.job WHERE later")  # that is not what it waits for
        assert await app.send(conn, fulfil.handle(job), approval, Approval("ada"), key="k") == "sent"
        assert await app.send(conn, job, approval, Approval("eve"), key="k") == "duplicate"
        assert ledger.status(job) == "pending"  # the sender has not committed
        await conn.commit()
        await until(lambda: ledger.status(job) == "completed")
        assert await app.send(conn, job, approval, Approval("ada")) == "already_ended"
        assert await app.send(conn, 999_999_999, approval, Approval("ada")) == "not_found"
    assert ledger.job(job).result == "ada"


async def test_messages_are_received_in_their_order_and_a_time_limit_gives_none(
    app: Holdfast, ledger: Ledger, database: str
) -> None:
    approval = app.message("approval", Approval)
    runs: list[int] = []

    @app.job("fulfil", retry=AT_ONCE)
    async def fulfil(job: Job[None]) -> list[str | None]:
        runs.append(1)
        found = [await job.receive(approval, key=n, timeout=ms(50) if n == 2 else 60) for n in range(3)]
        if len(runs) < 3:
            raise ConnectionError("all of it again")
        return [None if one is None else one.by for one in found]

    job = ledger.enqueue_one(fulfil.new())
    with psycopg.connect(database) as conn:
        assert [app.sync.send(conn, job, approval, Approval(by)) for by in ("ada", "bob")] == ["sent", "sent"]
    async with app.worker(**QUICK):
        await until(lambda: ledger.status(job) == "completed")
    assert ledger.job(job).result == ["ada", "bob", None]


async def test_a_plain_handler_receives(app: Holdfast, ledger: Ledger, database: str) -> None:
    approval = app.message("approval", Approval)

    @app.job("fulfil")
    def fulfil(job: Job[None]) -> str:
        return job.sync.receive(approval).by

    job = ledger.enqueue_one(fulfil.new())
    async with app.worker(**QUICK):
        await waiting(ledger)
        with psycopg.connect(database) as conn:
            app.sync.send(conn, job, approval, Approval("ada"))
        await until(lambda: ledger.status(job) == "completed")
    assert ledger.job(job).result == "ada"


async def test_a_story_is_found_by_the_unique_key_of_its_kind(app: Holdfast, ledger: Ledger, database: str) -> None:
    approval = app.message("approval", Approval)

    @app.job("fulfil", unique="order")
    async def fulfil(job: Job[None]) -> str:
        return (await job.receive(approval)).by

    @app.job("plain")
    async def plain() -> None: ...

    with psycopg.connect(database, autocommit=True) as conn:
        assert app.sync.send(conn, fulfil.new(), approval, Approval("ada")) == "not_found"
        job = ledger.enqueue_one(fulfil.new())
        assert app.sync.send(conn, fulfil.new(), approval, Approval("ada")) == "sent"
        with pytest.raises(InvalidJob, match="plain has no unique key"):
            app.sync.send(conn, plain.new(), approval, Approval("ada"))
    async with app.worker(**QUICK):
        await until(lambda: ledger.status(job) == "completed")


def test_a_story_is_addressed_in_one_way(ledger: Ledger) -> None:
    """Otherwise one of the two would be ignored, and the message reach another story than was meant."""
    for more in ("kind => 'fulfil'", "unique_key => 'order'", "kind => 'fulfil', unique_key => 'order'"):
        with pytest.raises(psycopg.Error, match="chain: give it, or a kind and a unique_key, not both"):
            ledger.do(f"SELECT holdfast.send_message(1, 'approval', '1', {more})")


async def test_a_message_of_another_type_is_refused_where_it_is_sent(app: Holdfast, database: str) -> None:
    approval: Any = app.message("approval", Approval)
    async with await psycopg.AsyncConnection.connect(database) as conn:
        with pytest.raises(InvalidJob, match="approval"):
            await app.send(conn, 1, approval, {"to": "x"})
        await conn.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        with pytest.raises(WrongIsolation):
            await app.send(conn, 1, approval, Approval("ada"))


LANES = 8


@pytest.mark.parametrize("races", [400, pytest.param(10_000, marks=pytest.mark.prove)])
async def test_no_wake_up_is_lost(database: str, races: int) -> None:
    """Senders in transactions of any length, against stories that look for a message and then suspend."""
    with psycopg.connect(database, autocommit=True) as conn:
        worker = Worker(conn)
        enqueue(conn, *[job() for _ in range(races)])
        # Half of them have recorded steps before: their rows are not written by the sender.
        conn.execute("UPDATE holdfast.job SET steps = true WHERE id % 2 = 0")
        claimed = iter([found for _ in range(races // 20) for found in worker.claim()])
        chance = random.Random(7)

        async def story(own: psycopg.AsyncConnection[Any], found: Any, before: float, pause: float) -> None:
            held = Held(found.id, found.token)
            await asyncio.sleep(2 * before)
            for _ in range(500):
                taken = await run(own, take_message(worker.id, held, ("m", None), None, beside=False))
                if taken.answer != "busy":
                    break
                await asyncio.sleep(0.002)
            if taken.answer == "got":
                return
            assert taken.answer == "wait"
            await asyncio.sleep(pause)
            ending = Ending(found, Rescheduled(NEVER))
            for _ in range(500):
                answers = await run(own, finish_jobs(worker.id, [ending], careful=True))
                if ClaimAnswer.busy not in answers.values():
                    return
                await asyncio.sleep(0.002)
            raise AssertionError("busy for ever")

        async def sender(own: psycopg.AsyncConnection[Any], found: Any, before: float, within: float) -> None:
            await asyncio.sleep(before)
            async with own.transaction():
                await own.execute("SELECT holdfast.send_message(%s, 'm', '1')", [found.id])
                await asyncio.sleep(within)

        async def lane() -> None:
            async with (
                await psycopg.AsyncConnection.connect(database, autocommit=True) as one,
                await psycopg.AsyncConnection.connect(database, autocommit=True) as two,
            ):
                for found in claimed:
                    pauses = [chance.random() * 0.008 for _ in range(4)]
                    await asyncio.gather(story(one, found, *pauses[:2]), sender(two, found, *pauses[2:]))

        await asyncio.gather(*[lane() for _ in range(LANES)])
        sent = conn.execute("SELECT count(*), count(*) FILTER (WHERE taken IS NULL) FROM holdfast.message").fetchone()
        assert sent is not None
        assert sent[0] == races
        assert 20 < sent[1] < races - 20, "the races went one way only"
        asleep = conn.execute(
            "SELECT count(*) FROM holdfast.job j WHERE status = 'pending' AND available_at > now() + interval '1 day'"
            " AND EXISTS (SELECT FROM holdfast.message m WHERE m.job_id = j.id AND m.taken IS NULL)"
        ).fetchone()
        assert asleep == (0,)


async def test_a_time_limit_ends_by_the_clock_of_the_database(app: Holdfast, ledger: Ledger) -> None:
    approval = app.message("approval", Approval)

    @app.job("fulfil")
    async def fulfil(job: Job[None]) -> bool:
        return await job.receive(approval, timeout=timedelta(days=7)) is None

    job = ledger.enqueue_one(fulfil.new())
    async with app.worker(**QUICK):
        await waiting(ledger)
        ledger.do("UPDATE holdfast.step SET due = due - interval '7 days'")
        ledger.do("UPDATE holdfast.job SET available_at = now(), later = NULL")
        await until(lambda: ledger.status(job) == "completed")
    assert ledger.job(job).result is True
