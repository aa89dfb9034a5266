"""Waiting for chains, with real workers: the result, or why there is none, and nothing left behind."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import ChainFailed, Continue, Fail, Holdfast, InvalidJob, Job, RoleMissing, SchemaOutdated, SettingsError
from holdfast._engine.wake import chains as chain_watch
from holdfast._engine.wake import late
from tests.chains.watching import RECORDS, count, left
from tests.kit.databases import clone
from tests.kit.pace import AT_ONCE, PATIENT, ms
from tests.kit.waiting import until

if TYPE_CHECKING:
    from tests.kit.ledger import Ledger
    from tools.postgres import Server

    Connection = psycopg.AsyncConnection[Any]

MINUTE = timedelta(minutes=1)


async def test_the_result_is_that_of_the_last_job(app: Holdfast, conn: Connection) -> None:
    @app.job("ship")
    async def ship(job: Job[None], order: int) -> str:
        return f"order {order} of chain {job.chain_id} shipped"

    @app.job("pack")
    def pack(job: Job[None], order: int) -> str | Continue[str]:
        return Continue(ship.new(order)) if order else "nothing to pack"

    @app.job("take")
    async def take(job: Job[None], order: int) -> str | Continue[str]:
        return Continue(pack.new(order))

    async with app.worker(**PATIENT):
        line = await app.enqueue(conn, take.new(7))
        assert await app.wait(line) == f"order 7 of chain {line.chain_id} shipped"
        branch = await app.enqueue(conn, take.new(0))
        assert await app.wait(branch) == "nothing to pack"
    chain = await app.get_chain(conn, line)
    assert chain is not None
    assert [job.kind for job in chain.jobs] == ["take", "pack", "ship"]


async def test_a_loop_ends_with_what_its_last_turn_returned(app: Holdfast, conn: Connection) -> None:
    @app.job("count")
    async def count_down(job: Job[None], left: int, turns: int = 0) -> tuple[int, int] | Continue[tuple[int, int]]:
        return Continue(count_down.new(left - 1, turns=turns + 1)) if left else (turns, job.attempt)

    handle = await app.enqueue(conn, count_down.new(20))
    async with app.worker(**PATIENT):
        assert await app.wait(handle) == (20, 1)  # a tuple again, as annotated, and no list
        assert await app.wait(handle.chain_id) == [20, 1]


async def test_a_result_of_another_type_is_refused(app: Holdfast, conn: Connection) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> int:
        return 0

    handle = await app.enqueue(conn, act.new())
    assert await app.complete_chain(conn, handle.chain_id, "seven") == "completed"
    with pytest.raises(InvalidJob, match="act"):
        await app.wait(handle)


async def test_a_chain_that_does_not_complete_is_an_error(app: Holdfast, conn: Connection) -> None:
    @app.job("act", retry=AT_ONCE)
    async def act(job: Job[None]) -> str | Fail:
        return Fail("no such customer")

    failing = await app.enqueue(conn, act.new())
    later = await app.enqueue(conn, act.new().options(delay=MINUTE))
    deleted = await app.enqueue(conn, act.new().options(delay=MINUTE))
    waits = [asyncio.create_task(app.wait(handle)) for handle in (failing, later, deleted)]
    async with app.worker(**PATIENT):
        with pytest.raises(ChainFailed, match="no such customer") as caught:
            await waits[0]
        assert (caught.value.chain_id, caught.value.status, caught.value.error_code) == (failing.id, "failed", "Fail")
    await app.cancel(conn, later.id)
    with pytest.raises(ChainFailed, match="cancelled"):
        await waits[1]
    await app.delete_chains(conn, [deleted])
    with pytest.raises(ChainFailed, match=r"not_found .*deleted"):
        await waits[2]
    await until(lambda: not left(app))


async def test_a_chain_that_is_not_committed_is_not_found(app: Holdfast, database: str) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    async with await psycopg.AsyncConnection.connect(database) as conn:
        handle = await app.enqueue(conn, act.new())
        with pytest.raises(ChainFailed, match="never committed"):
            await app.wait(handle)
        await conn.rollback()


async def test_an_impossible_chain_id_delays_no_other_wait(app: Holdfast, conn: Connection, ledger: Ledger) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> str:
        return "done"

    handle = await app.enqueue(conn, act.new())
    waiting = asyncio.create_task(app.wait(handle))
    await until(lambda: ledger.value(RECORDS) == 1)
    wrong = asyncio.create_task(app.wait(2**63, timeout=MINUTE))
    await asyncio.sleep(0)  # it has begun
    async with app.worker(**PATIENT):
        assert await waiting == "done"
    with pytest.raises(ChainFailed, match=f"chain {2**63} not_found"):
        await wrong


async def test_time_is_bounded(app: Holdfast, conn: Connection, ledger: Ledger) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    handle = await app.enqueue(conn, act.new())
    with pytest.raises(TimeoutError, match=rf"chain {handle.id} has not ended within 0\.2 s"):
        await app.wait(handle, timeout=ms(200))
    await until(lambda: not left(app) and ledger.sessions() == 0)
    assert ledger.value(RECORDS) == 0
    assert ledger.status(handle.id) == "pending", "the chain goes on"
    for span in (timedelta(0), timedelta(days=2)):
        with pytest.raises(ValueError, match="from more than 0 to 1 day"):
            await app.wait(handle, timeout=span)


async def test_callers_that_give_up_together_share_one_lookup(
    app: Holdfast, conn: Connection, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    handle = await app.enqueue(conn, act.new())
    sent = count(monkeypatch, late)
    waits = [asyncio.create_task(app.wait(handle, timeout=ms(200))) for _ in range(200)]
    ended = await asyncio.gather(*waits, return_exceptions=True)
    assert 1 <= sent["unfinished_job"] <= 3, "on a slow machine they take more than a second to give up"
    assert {str(error) for error in ended if isinstance(error, TimeoutError)} == {str(ended[0])}
    assert len(ended) == 200
    assert "has no live worker" in str(ended[0])
    await until(lambda: not left(app) and ledger.sessions() == 0)


@pytest.mark.usefixtures("seldom")
async def test_many_wait_for_one_and_one_may_leave(app: Holdfast, conn: Connection, ledger: Ledger) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> str:
        return "never said"

    handle = await app.enqueue(conn, act.new())
    waits = [asyncio.create_task(app.wait(handle)) for _ in range(5)]
    await until(lambda: ledger.value(RECORDS) == 1)
    waits[0].cancel()
    with pytest.raises(TimeoutError):
        await app.wait(handle, timeout=ms(1))
    await app.complete_chain(conn, handle, "done")
    await asyncio.gather(*waits, return_exceptions=True)
    assert [wait.result() for wait in waits[1:]] == ["done"] * 4
    assert waits[0].cancelled()
    await until(lambda: not left(app) and ledger.sessions() == 0)


async def test_a_thousand_wait_on_one_connection(
    app: Holdfast, conn: Connection, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four statements when they come, two in each slow round, and at most one for each batch that ends."""
    monkeypatch.setattr(chain_watch, "RENEW", 3.0)
    sent = count(monkeypatch)

    @app.job("act")
    async def act(job: Job[None], number: int) -> int:
        return number

    handles = await app.enqueue_many(conn, [act.new(number) for number in range(1000)])
    waits = [asyncio.create_task(app.wait(handle)) for handle in handles]
    await until(lambda: sent["chain_ends"] == 1)
    assert sent == {"watch_chains": 1, "watch_horizon": 1, "others_ended": 1, "chain_ends": 1}
    assert ledger.value(RECORDS) == 1000
    assert ledger.sessions() == 1
    # Three slow rounds go by.
    await until(lambda: sent["watch_chains"] == 4)
    await until(lambda: sent["chain_ends"] == 4)
    assert sent["watch_horizon"] == sent["others_ended"] == 1
    sent.clear()
    async with app.worker(queues={"default": 50}, batch_size=100, **PATIENT) as worker:
        assert await asyncio.gather(*waits) == list(range(1000))
        assert sent["chain_ends"] <= worker.counts["job_completed"] / 5
    assert sent.total() - sent["chain_ends"] <= 10
    await until(lambda: not left(app) and ledger.sessions() == 0)
    assert ledger.value(RECORDS) == 0


@pytest.mark.usefixtures("seldom")
async def test_more_than_a_thousand_are_asked_for_in_parts(
    app: Holdfast, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = count(monkeypatch)

    @app.job("act")
    async def act(job: Job[None], number: int) -> int:
        return number

    handles = await app.enqueue_many(conn, [act.new(number) for number in range(2500)])
    waits = [asyncio.create_task(app.wait(handle)) for handle in handles]
    await until(lambda: sent["chain_ends"] == 3)
    assert sent == {"watch_chains": 3, "watch_horizon": 1, "others_ended": 1, "chain_ends": 3}
    await app.delete_chains(conn, handles[:1000])
    assert all(isinstance(ended, ChainFailed) for ended in await asyncio.gather(*waits[:1000], return_exceptions=True))
    for wait in waits[1000:]:
        wait.cancel()
    await asyncio.gather(*waits, return_exceptions=True)
    await until(lambda: not left(app))


async def test_waiting_works_by_polling_without_listen(
    app: Holdfast, conn: Connection, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_LISTEN", "false")
    monkeypatch.setattr(chain_watch, "POLL_LAST", 0.4)
    sent = count(monkeypatch)

    @app.job("act")
    async def act(job: Job[None], number: int) -> int:
        return number

    handles = await app.enqueue_many(conn, [act.new(number) for number in range(100)])
    waits = [asyncio.create_task(app.wait(handle)) for handle in handles]
    await until(lambda: sent["chain_ends"] > 5)
    assert ledger.value(RECORDS) == 0
    assert sent.keys() == {"chain_ends"}
    async with app.worker(queues={"default": 10}, **PATIENT):
        assert await asyncio.gather(*waits) == list(range(100))
    # Whoever comes later does not keep the earlier from being looked at.
    handle = await app.enqueue(conn, act.new(7))
    wait = asyncio.create_task(app.wait(handle))
    await until(lambda: bool(left(app)))
    await app.complete_chain(conn, handle, 7)
    while not wait.done():
        with pytest.raises(TimeoutError):
            await app.wait((await app.enqueue(conn, act.new(8))), timeout=ms(10))
    assert wait.result() == 7


async def test_several_loops_have_a_watcher_each(app: Holdfast, conn: Connection, ledger: Ledger) -> None:
    @app.job("act")
    async def act(job: Job[None], number: int) -> int:
        return number

    handles = await app.enqueue_many(conn, [act.new(number) for number in range(4)])
    results: dict[int, int] = {}

    def wait(number: int) -> None:
        results[number] = asyncio.run(app.wait(handles[number]))

    threads = [threading.Thread(target=wait, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    await until(lambda: ledger.sessions() == 4)
    async with app.worker(**PATIENT):
        await until(lambda: not any(thread.is_alive() for thread in threads))
    assert results == {number: number for number in range(4)}
    assert not left(app)
    await until(lambda: ledger.sessions() == 0)


async def test_a_loop_that_ends_leaves_nothing(app: Holdfast, conn: Connection, ledger: Ledger) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    handle = await app.enqueue(conn, act.new())

    async def impatient() -> None:
        task = asyncio.create_task(app.wait(handle))
        await until(lambda: ledger.value("SELECT count(*) FROM holdfast.watcher"))
        assert not task.done()

    await asyncio.to_thread(lambda: asyncio.run(impatient()))
    assert not left(app)
    await until(lambda: ledger.sessions() == 0)


async def test_where_to_wait(app: Holdfast, conn: Connection, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> str:
        return "never said"

    handle = await app.enqueue(conn, act.new())
    await app.complete_chain(conn, handle, "done")
    nowhere = Holdfast()
    with pytest.raises(SettingsError, match="no database: give Holdfast an address"):
        await nowhere.wait(handle)
    assert await nowhere.wait(handle, url=database) == "done"
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", database)
    assert await Holdfast().wait(handle) == "done"
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", f"{database} postgresql://elsewhere/db")
    with pytest.raises(SettingsError, match="2 databases"):
        await Holdfast().wait(handle)


async def test_permanent_errors_are_raised_at_once(app: Holdfast, server: Server, ledger: Ledger) -> None:
    with clone(server, "template0") as empty, pytest.raises(SchemaOutdated):
        await app.wait(7, url=empty)
    ledger.do("CREATE ROLE nobody LOGIN")
    try:
        with pytest.raises(RoleMissing, match=r"app\.wait: .* GRANT holdfast_worker TO"):
            await app.wait(7, url=ledger.url.replace("postgres@", "nobody@"))
    finally:
        ledger.do("DROP ROLE nobody")
    await until(lambda: not left(app))
