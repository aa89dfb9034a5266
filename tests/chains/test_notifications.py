"""The end of a chain notifies its waiters; without the notification the end is found later."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast._engine.wake import sleep
from tests.chains.watching import RECORDS, count, left
from tests.kit.pace import PATIENT
from tests.kit.waiting import Stopwatch, after, until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast import Handle, Holdfast, Job
    from tests.kit.ledger import Ledger

    Connection = psycopg.AsyncConnection[Any]

pytestmark = pytest.mark.usefixtures("seldom")


async def test_a_waiter_is_notified(app: Holdfast, conn: Connection, ledger: Ledger) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> str:
        return "done"

    async with app.worker(**PATIENT), Stopwatch() as watch:
        for _ in range(3):
            handle = await app.enqueue(conn, act.new().options(delay=timedelta(days=1)))
            wait = asyncio.create_task(app.wait(handle))
            await until(lambda: ledger.value(RECORDS))
            await after(0.1)  # so that the light sleep is over
            ledger.do("UPDATE holdfast.job SET available_at = now()")
            ledger.do("SELECT pg_notify('holdfast', '')")
            watch.restart()
            assert await wait == "done"
            assert watch.seconds < 10


async def test_a_loss_would_show(
    app: Holdfast, conn: Connection, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the notification the wait times out: polling did not end the other waits."""
    sent = count(monkeypatch)

    @app.job("act")
    async def act(job: Job[None]) -> str:
        return "never said"

    ledger.do(
        "CREATE OR REPLACE FUNCTION holdfast.notify_watchers(chains bigint[], words text[]) RETURNS void "
        "LANGUAGE plpgsql VOLATILE AS $$ BEGIN END $$"
    )
    handle = await app.enqueue(conn, act.new())
    wait = asyncio.create_task(app.wait(handle, timeout=timedelta(seconds=6)))
    await until(lambda: sent["chain_ends"] == 1)
    await after(0.3)  # so that the light sleep is over
    await app.complete_chain(conn, handle, "done")
    with pytest.raises(TimeoutError):
        await wait


async def test_an_end_that_missed_the_watcher_is_found_later(
    app: Holdfast, conn: Connection, ledger: Ledger, database: str
) -> None:
    """A transaction that looked for watchers before the record existed, and commits later, sends no notification."""

    @app.job("act")
    async def act(job: Job[None]) -> str:
        return "never said"

    handle = await app.enqueue(conn, act.new())
    async with await psycopg.AsyncConnection.connect(database) as other:
        await app.complete_chain(other, handle, "done")
        wait = asyncio.create_task(app.wait(handle))
        await until(lambda: ledger.value(RECORDS))
        await after(0.3)
        assert not wait.done()
        await other.commit()
        async with Stopwatch() as watch:
            assert await wait == "done"
        assert watch.seconds < 10


@pytest.mark.parametrize("rounds", [60, pytest.param(2_000, marks=pytest.mark.prove)])
async def test_no_end_is_missed(app: Holdfast, conn: Connection, database: str, rounds: int) -> None:
    """The end may be written and committed before, while or after a client begins to wait for it."""

    @app.job("act")
    async def act(job: Job[None], number: int) -> int:
        return number

    async def lane(seed: int) -> None:
        chance = random.Random(seed)

        async def pause() -> None:
            await asyncio.sleep(chance.choice([0, 0, chance.uniform(0, 0.02)]))

        async with await psycopg.AsyncConnection.connect(database) as other:
            for number in range(rounds):
                handle = await app.enqueue(other, act.new(number))
                await other.commit()
                ending = asyncio.create_task(end(other, handle, number, pause))
                await pause()
                # A loss would show as a TimeoutError: nobody looks again for a minute.
                assert await app.wait(handle, timeout=timedelta(seconds=20)) == number
                await ending

    async def end(other: Connection, handle: Handle[int], number: int, pause: Callable[[], Awaitable[None]]) -> None:
        await pause()
        await app.complete_chain(other, handle, number)
        await pause()
        await other.commit()

    await asyncio.gather(*[lane(seed) for seed in range(8)])
    await until(lambda: not left(app))


async def test_a_long_transaction_causes_no_busy_polling(
    app: Holdfast, conn: Connection, ledger: Ledger, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sleep, "LIGHT_FOR", 1.0)
    sent = count(monkeypatch)

    @app.job("act")
    async def act(job: Job[None]) -> str:
        return "never said"

    first, second = await app.enqueue_many(conn, [act.new(), act.new()])
    async with await psycopg.AsyncConnection.connect(database) as other:
        await other.execute("CREATE TABLE theirs ()")
        waits = [asyncio.create_task(app.wait(first))]
        await until(lambda: sent["others_ended"] > 3)
        waits.append(asyncio.create_task(app.wait(second)))
        await after(1.5)
        sent.clear()
        await after(3.2)
        assert sent["chain_ends"] <= 3
        # Who is told, is told meanwhile too.
        await app.complete_chain(conn, second, "second")
        async with Stopwatch() as watch:
            assert await waits[1] == "second"
        assert watch.seconds < 10
        await app.complete_chain(conn, first, "first")
        assert await waits[0] == "first"
