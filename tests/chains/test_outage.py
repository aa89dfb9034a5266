"""A wait survives an outage of the database and is notified afterwards."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import psycopg
import pytest

from holdfast import Holdfast, Job
from holdfast._engine.wake.chains import Watcher
from tests.chains.watching import RECORDS, count
from tests.kit.ledger import Ledger
from tests.kit.pace import PATIENT
from tests.kit.trouble import Line
from tests.kit.waiting import Stopwatch, until

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from holdfast import Handle, Kind
    from tools.pgbouncer import PgBouncer
    from tools.postgres import Server

    Connection = psycopg.AsyncConnection[Any]


def waiting(app: Holdfast, handle: Handle[int], *, sync: bool, **how: Any) -> asyncio.Task[int]:
    wait = partial(app.sync.wait, handle, **how)
    return asyncio.create_task(asyncio.to_thread(wait) if sync else app.wait(handle, **how))


def acting(app: Holdfast) -> Kind[..., Coroutine[Any, Any, int]]:
    @app.job("act")
    async def act(job: Job[None], number: int) -> int:
        return number

    return act


@pytest.mark.nightly(daily=["async-fast"])
@pytest.mark.parametrize("mode", ["fast", "immediate"])
@pytest.mark.parametrize("sync", [False, True], ids=["async", "sync"])
@pytest.mark.usefixtures("seldom")
async def test_a_restart(own_server: Server, mode: Literal["fast", "immediate"], sync: bool) -> None:
    """After a crash the record is gone too: what is not recorded anew would be missed for a minute."""
    app = Holdfast(own_server.url())
    act = acting(app)
    with Ledger(app.url) as ledger:
        handles = app.sync.enqueue_many(ledger.conn, [act.new(number) for number in range(3)])
        waits = [waiting(app, handle, sync=sync) for handle in handles]
        await until(lambda: ledger.value(RECORDS) == 3)
        last = ledger.value("SELECT max(until) FROM holdfast.watcher")
    await asyncio.to_thread(own_server.stop, mode)
    await asyncio.to_thread(own_server.start)
    with Ledger(app.url) as ledger:
        await until(lambda: ledger.value(f"{RECORDS} AND until > %s", last) == 3)
        async with app.worker(**PATIENT):
            assert await asyncio.gather(*waits) == [0, 1, 2]
        await until(lambda: ledger.sessions() == 0)


@pytest.mark.parametrize("sync", [False, True], ids=["async", "sync"])
@pytest.mark.usefixtures("seldom")
async def test_terminated_backends(app: Holdfast, ledger: Ledger, sync: bool) -> None:
    act = acting(app)
    handle = app.sync.enqueue(ledger.conn, act.new(7))
    wait = waiting(app, handle, sync=sync)
    for _ in range(3):
        await until(lambda: ledger.value(RECORDS))
        ledger.do("TRUNCATE holdfast.watcher")
        ledger.terminate_sessions()
    await until(lambda: ledger.value(RECORDS))
    assert app.sync.complete_chain(ledger.conn, handle, 7) == "completed"
    async with Stopwatch() as watch:
        assert await wait == 7
    assert watch.seconds < 10


@pytest.mark.nightly
@pytest.mark.parametrize("sync", [False, True], ids=["async", "sync"])
async def test_a_line_that_is_frozen_is_no_reason_to_wait_for_ever(
    app: Holdfast, ledger: Ledger, database: str, sync: bool
) -> None:
    act = acting(app)
    handle = app.sync.enqueue(ledger.conn, act.new(7))
    async with Line(database) as line:
        how: dict[str, Any] = {"timeout": timedelta(seconds=5), "url": line.url}
        wait = waiting(app, handle, sync=sync, **how)
        await until(lambda: ledger.value(RECORDS))
        line.freeze()
        async with Stopwatch() as watch:
            with pytest.raises(TimeoutError, match="within 5 s"):
                await wait
        assert watch.seconds < 15
        line.thaw()


@pytest.mark.nightly
async def test_a_wait_without_a_database_fails_at_its_timeout(app: Holdfast, ledger: Ledger, database: str) -> None:
    handle = app.sync.enqueue(ledger.conn, acting(app).new(7))
    async with Line(database) as line:
        line.refuse()
        how: dict[str, Any] = {"timeout": timedelta(seconds=3), "url": line.url}
        with pytest.raises(TimeoutError) as caught:
            await app.wait(handle, **how)
        assert isinstance(caught.value.__cause__, psycopg.OperationalError)

        def wait_sync() -> None:
            # Caught in the thread: asyncio on Python 3.11 makes another error of it, without the cause.
            with pytest.raises(TimeoutError) as caught:
                app.sync.wait(handle, **how)
            assert isinstance(caught.value.__cause__, psycopg.OperationalError)

        await asyncio.to_thread(wait_sync)


@pytest.mark.nightly(daily=["async"])
@pytest.mark.parametrize("sync", [False, True], ids=["async", "sync"])
async def test_behind_pgbouncer_in_transaction_mode(
    database: str, ledger: Ledger, bouncer: PgBouncer, monkeypatch: pytest.MonkeyPatch, sync: bool
) -> None:
    """LISTEN does not work there, so waits only poll."""
    sent = count(monkeypatch)
    app = Holdfast(bouncer.url(database.rpartition("/")[2]))
    act = acting(app)
    handles = app.sync.enqueue_many(ledger.conn, [act.new(number) for number in range(20)])
    waits = [waiting(app, handle, sync=sync) for handle in handles[: 4 if sync else 20]]
    async with app.worker(**PATIENT):
        assert await asyncio.gather(*waits) == list(range(len(waits)))
    assert sent.keys() <= {"chain_ends", "forget_watcher"}
    assert sent["chain_ends"] < 20
    assert ledger.rows("SELECT FROM holdfast.watcher") == []


@pytest.mark.nightly(daily=["raises"])
@pytest.mark.parametrize("end", ["raises", "cancelled"])
async def test_a_watcher_that_ends_before_its_time_is_followed_by_another(
    app: Holdfast, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, end: str
) -> None:
    act = acting(app)
    handles = app.sync.enqueue_many(ledger.conn, [act.new(number) for number in range(2)])
    waits = [asyncio.create_task(app.wait(handle)) for handle in handles]
    await until(lambda: ledger.value(RECORDS) == 2)
    if end == "raises":
        with monkeypatch.context() as struck:
            struck.setattr(Watcher, "_round", _struck)
            app.sync.complete_chain(ledger.conn, handles[0], 7)
            await until(lambda: "waiting for chains interrupted" in caplog.text)
    else:
        for _ in range(2):
            (task,) = [task for task in asyncio.all_tasks() if task.get_name() == "holdfast-watcher"]
            task.cancel()
            await until(task.done)
            await until(lambda: any(task.get_name() == "holdfast-watcher" for task in asyncio.all_tasks()))
        app.sync.complete_chain(ledger.conn, handles[0], 7)
    assert await waits[0] == 7
    waits[1].cancel()
    await asyncio.gather(waits[1], return_exceptions=True)
    assert waits[1].cancelled(), "somebody who no longer wants to wait does not"
    await until(lambda: ledger.value(RECORDS) == 0)


async def _struck(_: Watcher) -> None:
    raise SystemExit("struck")
