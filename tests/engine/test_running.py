"""A tick that runs is shown as running, and only while it does."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast._drivers import run_sync
from holdfast._engine.runner import Budget, Counts, Runner, Tick
from holdfast._engine.runners.database import open_runner_database
from holdfast._engine.runners.maintenance import Maintenance
from holdfast._engine.runners.ticker import Limits
from holdfast._model.schedule import Every
from holdfast._store.schedule import Running, last_runs, list_running, list_runs
from tests.kit.fleet import SOON, crew, runs
from tests.kit.trouble import closed
from tests.kit.waiting import until

if TYPE_CHECKING:
    from tests.kit.fleet import Connect, Crew
    from tests.kit.ledger import Ledger
    from tools.postgres import Server

PLENTY = Limits(None, SOON)
ENDED = "UPDATE holdfast.schedule SET locked_until = now() WHERE locked_by = %s"
SILENT = "UPDATE holdfast.worker SET heartbeat_at = heartbeat_at - interval '2 minutes' WHERE id = %s"
STOPPED = "UPDATE holdfast.worker SET stopped_at = now() WHERE id = %s"
OLD = "UPDATE holdfast.run SET started_at = started_at - interval '2 minutes'"


class Slow:
    """A runner that goes on until it is let go."""

    def __init__(self, **options: Any) -> None:
        self.runner = Runner("slow", self.tick, **options)
        self.go = asyncio.Event()

    async def tick(self, _: Tick) -> Counts:
        await self.go.wait()
        return {}


def running(conn: psycopg.Connection[Any]) -> list[Running]:
    return run_sync(conn, list_running())


async def begun(at: Crew, slow: Slow, conn: psycopg.Connection[Any]) -> asyncio.Task[Any]:
    """Start a tick, and return when it is shown."""
    task = asyncio.create_task(at.ticker.tick(slow.runner, PLENTY))
    await until(lambda: running(conn))
    [(runner, _, worker, _)] = running(conn)
    assert (runner, worker) == ("slow", at.database.worker)
    return task


@pytest.mark.parametrize("every", [None, Every(timedelta(hours=1))], ids=["loop", "schedule"])
async def test_a_tick_is_shown_while_it_runs(database: str, connect: Connect, every: Every | None) -> None:
    conn, slow = connect(), Slow(every=every)
    async with crew(database, slow.runner) as at:
        task = await begun(at, slow, conn)
        assert run_sync(conn, list_runs()) == run_sync(conn, list_runs("slow")) == run_sync(conn, last_runs()) == []
        slow.go.set()
        assert (await task).outcome == "completed"
        assert running(conn) == []
    assert runs(conn) == [("slow", "completed", None, None)]


@pytest.mark.parametrize("died", [SILENT, STOPPED], ids=["silent", "stopped"])
async def test_a_tick_whose_worker_died_is_not_shown_and_is_recorded_as_lost(
    database: str, connect: Connect, died: str
) -> None:
    conn, slow = connect(), Slow()
    async with crew(database, slow.runner) as at:
        task = await begun(at, slow, conn)
        conn.execute(died.encode(), [at.database.worker])
        assert running(conn) == []
        conn.execute(OLD.encode())
        async with open_runner_database(database, name="other", seconds=SOON) as other:
            tick = Tick(name="maintenance", budget=Budget())
            assert (await Maintenance(other).tick(tick)).get("runs_lost") == 1
        assert runs(conn) == [("slow", "lost", None, "lost")]
        slow.go.set()
        await task


@pytest.mark.parametrize(
    "died",
    ["UPDATE holdfast.schedule SET locked_until = now() WHERE locked_by = %s", STOPPED],
    ids=["lease", "stopped"],
)
async def test_a_slot_whose_worker_died_is_not_shown(database: str, connect: Connect, died: str) -> None:
    conn, slow = connect(), Slow(every=Every(timedelta(hours=1)))
    async with crew(database, slow.runner) as at:
        task = await begun(at, slow, conn)
        conn.execute(died.encode(), [at.database.worker])
        assert running(conn) == []
        slow.go.set()
        await task


async def test_one_that_was_taken_for_dead_ends_as_it_ended(database: str, connect: Connect) -> None:
    conn, slow = connect(), Slow()
    async with crew(database, slow.runner) as at:
        task = await begun(at, slow, conn)
        conn.execute("UPDATE holdfast.run SET outcome = 'lost', finished_at = now(), error_code = 'lost'")
        slow.go.set()
        await task
    assert runs(conn) == [("slow", "completed", None, None)]


async def test_an_ending_that_could_not_be_written_is_written_before_the_next_tick(
    server: Server, database: str, ledger: Ledger, connect: Connect
) -> None:
    conn, slow = connect(), Slow()
    async with crew(database, slow.runner) as at:
        task = await begun(at, slow, conn)
        with closed(server, ledger):
            conn.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
                "AND pid <> ALL (%s)",
                [[conn.info.backend_pid, ledger.conn.info.backend_pid]],
            )
            slow.go.set()
            with pytest.raises(psycopg.OperationalError):
                await task
        assert [line.runner for line in running(conn)] == ["slow"]
        assert (await at.ticker.tick(slow.runner, PLENTY)).outcome == "completed"
        assert running(conn) == []
    assert runs(conn) == [("slow", "completed", None, None)]


async def test_the_worker_of_a_one_shot_tick_sends_heartbeats(database: str, connect: Connect) -> None:
    conn = connect()
    async with open_runner_database(database, name="once", seconds=0.4):
        beaten = "SELECT FROM holdfast.worker WHERE heartbeat_at > started_at + interval '50 ms'"
        await until(lambda: conn.execute(beaten).rowcount == 1)
