"""The tests that wake-ups over any broker must pass, against a real one."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast._engine.jobs import claim
from holdfast._engine.wake import broker as bridge
from holdfast._engine.wake import broker as station
from holdfast._engine.wake import sleep as sleep_record
from holdfast._model.errors import AbortReason
from holdfast._store.worker import identify_database
from tests.engine.wakers.fleet import AT_ONCE, Fleet, listening
from tests.kit.pace import ms
from tests.kit.waiting import serving, until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from holdfast._engine.wake.carriers import Carrier
    from holdfast._engine.worker import Worker
    from tools.broker import Broker

ROOT = Path(__file__).parents[3]
GARBAGE = [
    "",
    "\0",
    "hello",
    "hello -1",
    "hello " + "9" * 40,
    "here x",
    "here " + "9" * 40,
    "note lost 1 2 nonsense",
    "note lost x y taken_by_another_worker",
    "lost 1 2 cancelled",
    "x" * 500_000,
]


class Waking:
    """Subclasses name the broker."""

    @pytest.fixture
    def broker(self) -> Broker:
        raise NotImplementedError

    @pytest.fixture
    def carrier(self, broker: Broker) -> Carrier:
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def _quick(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Scale the bridge's signs of life down, and the time after which there is none."""
        monkeypatch.setattr(bridge, "BEAT", 0.5)
        monkeypatch.setattr(station, "BEAT", 0.5)
        monkeypatch.setattr(station, "SHORTEST_PATIENCE", 0.2)
        monkeypatch.setattr(station, "LONGEST_PATIENCE", 0.4)

    @pytest.fixture
    def fleet(self, database: str, carrier: Carrier) -> Callable[[], Fleet]:
        return lambda: Fleet(database, carrier)

    async def test_pickup_is_by_wake_up(self, fleet: Callable[[], Fleet]) -> None:
        tasks = asyncio.all_tasks()
        async with fleet() as app:
            worker = await app.start("one")
            await until(lambda: listening(worker))
            await app.woken()
        assert asyncio.all_tasks() == tasks

    async def test_one_connection_listens_for_all_and_each_is_woken_for_its_queue(
        self, fleet: Callable[[], Fleet]
    ) -> None:
        async with fleet() as app:
            workers = [await app.start(name, name) for name in ("a", "b", "c")]
            await until(lambda: all(map(listening, workers)))
            await app.woken("a", "b", "c")
            await until(lambda: _is(app.listeners(), 1))

    async def test_a_transaction_that_cannot_see_sleepers_wakes_all_workers(self, fleet: Callable[[], Fleet]) -> None:
        async with fleet() as app:
            worker = await app.start("one")
            await until(lambda: listening(worker))
            await app.conn.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
            await app.woken()

    async def test_a_cancelled_job_is_aborted_at_once(self, fleet: Callable[[], Fleet]) -> None:
        async with fleet() as app:
            worker = await app.start("one", lease=ms(600_000), heartbeat=ms(100_000))
            await until(lambda: listening(worker))
            handle = await app.app.enqueue(app.conn, app.linger.new())
            await asyncio.wait_for(app.started.get(), 30)
            await app.app.cancel(app.conn, handle.id)
            assert await asyncio.wait_for(app.aborted.get(), AT_ONCE) == "cancelled"

    async def test_when_the_bridge_stops_another_worker_takes_over(self, fleet: Callable[[], Fleet]) -> None:
        async with fleet() as app:
            first = await app.start("first")
            await until(lambda: listening(first))
            second = await app.start("second")
            await until(lambda: listening(second))
            await until(lambda: _is(app.listeners(), 1))
            await first.stop()
            await first._stack.aclose()
            await until(lambda: not listening(second))
            await until(lambda: listening(second))
            await app.woken()

    async def test_when_the_bridge_is_killed_another_worker_takes_over(
        self, fleet: Callable[[], Fleet], database: str, broker: Broker
    ) -> None:
        kind = broker.url.partition(":")[0]
        command = [sys.executable, "-m", "tests.engine.wakers.lone", database, kind, broker.url]
        lone = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, cwd=ROOT)
        try:
            assert lone.stdout is not None
            assert await asyncio.wait_for(lone.stdout.readline(), 30) == b"listening\n"
            async with fleet() as app:
                worker = await app.start("survivor")
                await until(lambda: listening(worker))
                await until(lambda: _is(app.listeners(), 1))
                lone.kill()
                await until(lambda: _station(worker)._bridge is not None and listening(worker))
                await app.woken()
        finally:
            if lone.returncode is None:
                lone.kill()
            await lone.communicate()

    async def test_bridges_that_start_at_once_come_down_to_one(
        self, fleet: Callable[[], Fleet], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(station, "SHORTEST_PATIENCE", 0.3)
        monkeypatch.setattr(station, "LONGEST_PATIENCE", 0.3)
        async with fleet() as app:
            workers = [await app.start(name) for name in ("a", "b", "c")]
            await until(lambda: all(map(listening, workers)))
            await until(lambda: _is(app.listeners(), 1))
            await until(lambda: all(map(listening, workers)))
            await app.woken()
            await until(lambda: _is(app.listeners(), 1))

    async def test_a_bridge_that_loses_its_connection_comes_back(self, fleet: Callable[[], Fleet]) -> None:
        async with fleet() as app:
            worker = await app.start("one")
            await until(lambda: listening(worker))
            await app.conn.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query ~ '^LISTEN'")
            await until(lambda: not listening(worker))
            await until(lambda: listening(worker))
            await app.woken()

    @pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
    async def test_the_broker_is_restarted(
        self, fleet: Callable[[], Fleet], broker: Broker, how: signal.Signals, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sleep_record, "RECORD_SECONDS", 60.0)
        monkeypatch.setattr(claim, "RENEWED_AFTER", 59.0)
        async with fleet() as app:
            workers = [await app.start(name) for name in ("a", "b")]
            await until(lambda: all(map(listening, workers)))
            await app.asleep()
            broker.stop(how)
            try:
                await until(lambda: not any(map(listening, workers)))
                await app.app.enqueue(app.conn, app.note.new(7))
            finally:
                broker.start()
            # What was enqueued while nobody could be woken is found by the look that follows.
            assert await asyncio.wait_for(app.started.get(), 30) == 7
            await until(lambda: all(map(listening, workers)))
            await app.woken()

    async def test_a_broker_that_hangs_is_noticed(self, fleet: Callable[[], Fleet], broker: Broker) -> None:
        async with fleet() as app:
            worker = await app.start("one")
            await until(lambda: listening(worker))
            with _frozen(broker):
                await until(lambda: not listening(worker))
            await until(lambda: listening(worker))
            await app.woken()

    async def test_without_a_broker_there_is_polling_and_no_error(
        self, database: str, carrier: Carrier, caplog: pytest.LogCaptureFixture
    ) -> None:
        absent = type(carrier)(carrier.url.rpartition(":")[0] + ":1")
        async with Fleet(database, absent) as app:
            worker = await app.start("one", idle_min=ms(50), idle_max=ms(50))
            for number in range(3):
                assert await app.pickup(number) < AT_ONCE
            assert not listening(worker)
            assert not await app.app.wake("default")
        assert [record for record in caplog.records if record.levelno > logging.WARNING] == []
        logged = [
            record.getMessage().partition(": ")[0] for record in caplog.records if record.levelno == logging.WARNING
        ]
        assert logged == ["wake-ups interrupted, polling", "no worker could be woken, polling goes on"]

    async def test_without_listen_a_producer_wakes(self, fleet: Callable[[], Fleet]) -> None:
        async with fleet() as app:
            worker = await app.start("one", listen=False)
            await _claimed(worker)
            for number in range(3):
                await app.app.enqueue(app.conn, app.note.new(number))
                sender = app.app.wake("default") if number else asyncio.to_thread(app.app.sync.wake, "default")
                assert await sender
                assert await asyncio.wait_for(app.started.get(), AT_ONCE) == number
            assert not listening(worker)
            assert await app.listeners() == 0

    async def test_garbage_is_ignored(
        self,
        fleet: Callable[[], Fleet],
        carrier: Carrier,
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(bridge, "BEAT", 3.0)  # a broker that stands still for a moment is not what is tested
        monkeypatch.setattr(station, "BEAT", 3.0)
        async with fleet() as app:
            worker = await app.start("one")
            await until(lambda: listening(worker))
            handle = await app.app.enqueue(app.conn, app.linger.new())
            await asyncio.wait_for(app.started.get(), 30)
            database = await worker.pipelines[0].session.links.claim.run(identify_database())
            channels = [f"{carrier.name}.{database}.{end}" for end in ("all", "bridge", worker.pipelines[0].worker)]
            held = next(iter(worker.pipelines[0].held))
            forged = [f"note lost {held.id} {held.token} {reason}" for reason in AbortReason]
            async with carrier.open(lambda *_: None) as session:
                for channel in (*channels, carrier.open_channel):
                    for text in (*GARBAGE, *forged):
                        await session.publish(channel, text)
                # A false claim of being the bridge makes the true one give way, but for a moment only.
                gives_way = _station(worker)._bridge
                await session.publish(channels[0], "here 0")
            await until(lambda: _station(worker)._bridge not in {gives_way, None} and listening(worker))
            await app.woken()
            assert app.aborted.empty()
            await app.app.cancel(app.conn, handle.id)
            assert await asyncio.wait_for(app.aborted.get(), AT_ONCE) == "cancelled"
        assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []

    def test_a_name_that_is_no_subject_is_refused(self, carrier: Carrier) -> None:
        with pytest.raises(ValueError, match=r"the name 'a\.\*' is not"):
            type(carrier)(carrier.url, name="a.*")


async def _is(count: Awaitable[int], expected: int) -> bool:
    return await count == expected


@contextmanager
def _frozen(broker: Broker) -> Iterator[None]:
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(broker.pid, signal.SIGCONT)


def _station(worker: Worker) -> station.BrokerWaker:
    waker = serving(worker).waker
    assert isinstance(waker, station.BrokerWaker)
    return waker


async def _claimed(worker: Worker) -> None:
    """Wait until the worker receives messages of the broker, and has looked for jobs since."""
    claimer = serving(worker).claimer
    await until(lambda: _station(worker)._echoed)
    await until(lambda: claimer.claims >= 1 and claimer.asleep)
