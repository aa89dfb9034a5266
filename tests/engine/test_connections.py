"""How many connections a worker has, and whether there is room for them."""

from __future__ import annotations

import asyncio
import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql

from holdfast import Holdfast, Job, SettingsError, WrongIsolation
from holdfast._drivers import run_sync
from holdfast._engine.headroom import connections_held, headroom
from holdfast._engine.runners.database import open_runner_database
from holdfast._model.settings import Settings
from holdfast._store.inspect import ServerInfo, read_server
from tests.engine.test_maintenance import add_day, within_a_minute
from tests.kit.fleet import make_due
from tests.kit.pace import QUICK
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kit.ledger import Ledger


def server(**changes: Any) -> ServerInfo:
    given: dict[str, Any] = {
        "version": 150000, "backend_pid": 1, "user": "me", "superuser": False, "max_connections": 100, "reserved": 3,
        "used": 1, "database_limit": None, "database_used": 1, "user_limit": None, "user_used": 1,
    }  # fmt: skip
    return ServerInfo(**(given | changes))


@pytest.mark.parametrize(
    ("changes", "fits", "message"),
    [
        ({}, "yes", "room for 16 more processes"),
        ({"used": 92}, "yes", "room for 1 more process"),
        ({"used": 93}, "not now", "no room for a process now"),
        ({"max_connections": 9}, "yes", "room for 1 more process"),
        ({"max_connections": 8}, "never", "not one process fits"),
        ({"database_limit": 5}, "never", "this database or user at most 5: not one process fits"),
        ({"user_limit": 6}, "yes", "room for 1 more"),
        ({"user_limit": 6, "user_used": 2}, "not now", "no room"),
    ],
)
def test_what_a_server_allows(changes: dict[str, Any], fits: str, message: str) -> None:
    """Six are needed; the one that asks is ours, and counts as free."""
    found = headroom(server(**changes), Settings.load({}))
    assert found.fits == fits
    assert message in found.message


def test_a_budget_below_what_is_held_is_refused() -> None:
    assert connections_held(Settings.load({})) == 4
    assert connections_held(Settings.load({}, listen=False)) == 3
    found = headroom(server(), Settings.load({}, max_connections=3))
    assert found == ("never", "HOLDFAST_MAX_CONNECTIONS is 3, and a worker holds 4 all the time")
    assert headroom(server(), Settings.load({}, max_connections=3, listen=False)).fits == "yes"


@pytest.mark.parametrize("listen", [True, False])
async def test_a_worker_keeps_to_its_budget(app: Holdfast, ledger: Ledger, listen: bool) -> None:
    """Counted by the server, under load, while the runners run that need a connection of their own."""

    @app.job("act")
    async def act(job: Job[None]) -> None:
        await asyncio.sleep(0)

    days = [add_day(ledger.conn, "attempt", 100 + day) for day in range(5)]
    await within_a_minute(ledger.conn)  # the next one has maintenance run again
    limit = 0
    async with app.worker(queues={"default": 50}, batch_size=200, listen=listen, **QUICK) as worker:
        await until(lambda: ledger.value("SELECT count(*) FROM holdfast.schedule WHERE name = 'maintenance'"))
        make_due(ledger.conn, "maintenance")
        worker.pipelines[0].background.wake("maintenance")  # type: ignore[union-attr]
        jobs = 0
        while any(ledger.value("SELECT to_regclass(%s)", f"holdfast.{day}") for day in days) or jobs < 1_000:
            jobs += len(ledger.enqueue(*[act.new() for _ in range(100)]))
            limit = max(limit, ledger.sessions())
            await asyncio.sleep(0.005)
            assert jobs < 100_000
        await until(lambda: worker.counts.get("job_completed") == jobs, 30)
        await until(lambda: ledger.sessions() == 3 + listen)
        assert limit <= Settings.load({}).max_connections
    await until(lambda: ledger.sessions() == 0)


@pytest.fixture
def user(ledger: Ledger) -> Iterator[str]:
    """The address of a worker's user who may have five connections."""
    name = sql.Identifier("test_connections")
    ledger.conn.execute(sql.SQL("CREATE ROLE {} LOGIN IN ROLE holdfast_worker CONNECTION LIMIT 5").format(name))
    yield psycopg.conninfo.make_conninfo(ledger.url, user="test_connections")
    ledger.conn.execute(sql.SQL("DROP ROLE {}").format(name))


async def test_a_worker_that_can_never_fit_is_refused(user: str, ledger: Ledger) -> None:
    app = Holdfast(user)
    with pytest.raises(SettingsError, match=r"connections to holdfast_\d+: 6 per process; .* not one process fits"):
        async with app.worker(**QUICK):
            pass
    assert ledger.value("SELECT count(*) FROM holdfast.worker") == 0
    async with app.worker(max_connections=5, **QUICK):
        await until(lambda: ledger.sessions() == 4)


async def test_a_worker_that_does_not_fit_just_now_is_warned(
    user: str, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    app = Holdfast(user)

    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    job = ledger.enqueue_one(act.new())
    await within_a_minute(ledger.conn)
    with ExitStack() as others, caplog.at_level(logging.WARNING):
        others.enter_context(psycopg.connect(user))
        async with app.worker(max_connections=5, **QUICK):
            await until(lambda: ledger.status(job) == "completed")
        assert [record.name for record in caplog.records] == ["holdfast.headroom"]
        assert "no room for a process now" in caplog.text


async def test_a_role_without_pg_monitor_still_counts_connections(user: str, ledger: Ledger) -> None:
    """PostgreSQL tells a plain user less of the sessions of others, but that they are there."""
    with psycopg.connect(user, autocommit=True) as conn:
        # Sessions of others may end meanwhile.
        await until(lambda: run_sync(conn, read_server()).used == run_sync(ledger.conn, read_server()).used)
        assert run_sync(conn, read_server()).user_used == 1


async def test_a_worker_is_refused_where_transactions_are_stricter_by_default(app: Holdfast, ledger: Ledger) -> None:
    database = sql.Identifier(ledger.conn.info.dbname)
    strict = sql.SQL("ALTER DATABASE {} SET default_transaction_isolation = 'repeatable read'").format(database)
    ledger.conn.execute(strict)
    message = (
        r"holdfast_\d+: .* REPEATABLE READ .* needs READ COMMITTED: ALTER ROLE postgres SET default_transaction_isol"
    )
    with pytest.raises(WrongIsolation, match=message):
        async with app.worker(**QUICK):
            pass
    with pytest.raises(WrongIsolation, match=message):
        async with open_runner_database(ledger.url, name="test", seconds=5):
            pass
    assert ledger.value("SELECT count(*) FROM holdfast.worker") == 0
