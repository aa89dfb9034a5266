"""/live, /ready and /metrics of the operations application, over a real desk."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from prometheus_client import CollectorRegistry
from psycopg import sql

from holdfast import Holdfast, Job  # noqa: TC001 - handlers are read for their annotations
from holdfast._ops.gauges import Gauges
from holdfast._ops.health import Probes, exposition, live
from holdfast._ops.service import Service
from holdfast._telemetry.metrics import FLEET, FLEET_UP
from tests.kit.pace import PATIENT
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.kit.ledger import Ledger
    from tools.postgres import Server

INTERVAL = timedelta(seconds=10)
LONG = timedelta(seconds=20)


@pytest.fixture
async def desk(database: str) -> AsyncIterator[Service]:
    async with Service(database, connections=2, timeout=LONG) as desk:
        yield desk


def worker(
    ledger: Ledger, *, beat: str = "1 second", reaped: str | None = "2 seconds", started: str = "1 hour"
) -> None:
    """Insert a worker that started, sent a heartbeat and reaped so long ago."""
    ledger.do(
        "INSERT INTO holdfast.worker (name, started_at, heartbeat_at, reaped_at)"
        " VALUES ('w', now() - %s::interval, now() - %s::interval, now() - %s::interval)",
        started,
        beat,
        reaped,
    )
    maintenance(ledger, "-30 seconds")


def maintenance(ledger: Ledger, overdue: str) -> None:
    """Let `maintenance` be due since so long."""
    ledger.do(
        "INSERT INTO holdfast.schedule (name, what, schedule, next_at)"
        " VALUES ('maintenance', 'runner', 'every 60s', now() - %s::interval)"
        " ON CONFLICT (name) DO UPDATE SET next_at = excluded.next_at",
        overdue,
    )


async def asked(desk: Service) -> tuple[int, list[tuple[str, bool]]]:
    answer = await Probes(None, INTERVAL).ready({"": desk})
    posted = json.loads(bytes(answer.body))
    assert posted["ready"] is (answer.status_code == 200)
    return answer.status_code, [(p["code"], p["deployment_blocker"]) for p in posted["problems"]]


async def test_a_process_that_serves_pages_is_alive_when_it_answers() -> None:
    answer = await live()
    assert (answer.status_code, json.loads(bytes(answer.body))["live"]) == (200, True)


async def test_a_fleet_that_works_and_reaps_is_ready(desk: Service, ledger: Ledger) -> None:
    worker(ledger)
    assert await asked(desk) == (200, [])


async def test_no_worker_is_not_ready(desk: Service, ledger: Ledger) -> None:
    assert await asked(desk) == (503, [("no_worker", True)])
    worker(ledger, beat="2 minutes")
    assert await asked(desk) == (503, [("no_worker", True)])


@pytest.mark.parametrize("reaped", ["31 seconds", None])
async def test_a_fleet_that_does_not_reap_blocks_the_deployment(
    desk: Service, ledger: Ledger, reaped: str | None
) -> None:
    worker(ledger, reaped=reaped)
    assert await asked(desk) == (503, [("no_reaper", True)])
    worker(ledger, reaped="15 seconds")
    assert await asked(desk) == (200, [])


async def test_a_worker_has_three_intervals_to_reap_for_the_first_time(desk: Service, ledger: Ledger) -> None:
    worker(ledger, reaped=None, started="20 seconds")
    assert await asked(desk) == (200, [])


async def test_a_fleet_without_maintenance_is_not_ready(desk: Service, ledger: Ledger) -> None:
    worker(ledger)
    maintenance(ledger, "2 minutes")
    assert await asked(desk) == (200, [])
    maintenance(ledger, "6 minutes")
    assert await asked(desk) == (503, [("no_maintenance", True)])
    ledger.do("DELETE FROM holdfast.schedule")
    assert await asked(desk) == (503, [("no_maintenance", True)])
    ledger.do("UPDATE holdfast.worker SET started_at = now() - interval '1 minute'")
    assert await asked(desk) == (200, [])


async def test_one_that_went_silent_does_not_count_as_a_reaper(desk: Service, ledger: Ledger) -> None:
    worker(ledger, beat="2 minutes", reaped="1 second")
    worker(ledger, reaped="40 seconds")
    assert await asked(desk) == (503, [("no_reaper", True)])


async def test_a_schema_that_is_missing_or_old_blocks_the_deployment(
    desk: Service, ledger: Ledger, server: Server
) -> None:
    worker(ledger)
    ledger.do("DELETE FROM holdfast.migration WHERE number = (SELECT max(number) FROM holdfast.migration)")
    assert await asked(desk) == (503, [("schema_not_migrated", True)])
    with psycopg.connect(server.url(), autocommit=True) as conn:
        conn.execute("CREATE DATABASE bare")
        try:
            async with Service(server.url("bare"), connections=1, timeout=LONG) as bare:
                assert await asked(bare) == (503, [("schema_not_migrated", True)])
        finally:
            conn.execute("DROP DATABASE bare WITH (FORCE)")


async def test_an_unreachable_database_is_reported(server: Server, database: str) -> None:
    name = sql.Identifier(database.rpartition("/")[2])
    registry = CollectorRegistry()
    gauges = Gauges(registry=registry)
    with psycopg.connect(server.url(), autocommit=True) as conn:
        conn.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(name))
        try:
            async with Service(database, connections=1) as away:
                assert await asked(away) == (503, [("database_unreachable", False)])
                await gauges.look({"": away})
                answer = exposition(registry, "")
        finally:
            conn.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS true").format(name))
    assert answer.status_code == 200
    assert registry.get_sample_value("holdfast_fleet_up") == 0
    assert all(not gauges.series.numbers(it) for it in FLEET if it is not FLEET_UP)


async def test_the_fleet_is_measured_by_its_database(
    app: Holdfast, database: str, desk: Service, ledger: Ledger
) -> None:
    posted = app.event("said", dict[str, int])
    elsewhere = app.declare("elsewhere", dict[str, int], queue="far")

    @app.job("quick", queue="fast")
    async def quick(job: Job[Any]) -> None: ...

    @app.on(posted, name="heard", start="beginning")
    async def received(job: Job[Any], event: Any) -> None: ...

    registry = CollectorRegistry()
    gauges = Gauges(registry=registry)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    ledger.enqueue(quick.new(), quick.new(), elsewhere.new({}))
    async with app.worker(queues={"fast": 2}, **PATIENT):
        await until(lambda: ledger.completed() == 2)
        ledger.do("INSERT INTO holdfast.queue (name, paused) VALUES ('far', true)")
        worker(ledger, beat="5 minutes")
        await until(lambda: ledger.value("SELECT reaped_at FROM holdfast.worker WHERE name <> 'w'"))
        await until(lambda: ledger.value("SELECT count(*) FROM holdfast.subscription") == 1)
        ledger.do("INSERT INTO holdfast.limit_rule (name, concurrency) VALUES ('partner', 0)")
        ledger.do("SELECT holdfast.enqueue('elsewhere', queue => 'partners', limits => '{partner:a}')")
        ledger.do("UPDATE holdfast.job SET status = 'blocked', limit_key = 'partner:a' WHERE limits IS NOT NULL")
        ledger.do("SELECT holdfast.enqueue('asleep', queue => 'bedroom', delay => '1 hour')")
        ledger.do("UPDATE holdfast.job SET steps = true, created_at = now() - interval '1 day' WHERE kind = 'asleep'")
        await gauges.look({"": desk})
        answer = exposition(registry, "text/plain")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert b"holdfast_fleet_workers 1.0" in bytes(answer.body)
    assert value("holdfast_fleet_up") == 1
    assert value("holdfast_fleet_silent") == 1
    assert 0 <= (value("holdfast_fleet_reaper_age_seconds") or -1) < 60
    assert 0 <= (value("holdfast_fleet_census_age_seconds") or 0) < 60
    assert value("holdfast_queue_due", queue="far") == value("holdfast_queue_pending", queue="far") == 1
    assert (value("holdfast_queue_oldest_pending_age_seconds", queue="far") or 0) > 0
    assert value("holdfast_queue_paused", queue="far") == 1
    assert value("holdfast_kind_unserved", queue="far", kind="elsewhere") == 1
    assert value("holdfast_queue_ended", queue="fast", outcome="completed") == 2
    assert value("holdfast_queue_ended", queue="fast", outcome="failed") == 0
    assert (value("holdfast_queue_wait_seconds", queue="fast", percentile="p99") or 0) > 0
    assert value("holdfast_queue_run_seconds", queue="fast", percentile="p99") is not None
    assert value("holdfast_limit_running", limit="partner") == 0
    assert value("holdfast_limit_waiting", limit="partner") == 1
    assert (value("holdfast_limit_oldest_waiting_age_seconds", limit="partner") or 0) > 0
    assert value("holdfast_story_suspended", kind="asleep") == 1
    assert value("holdfast_story_suspended", kind="elsewhere") is None
    assert 86_400 <= (value("holdfast_story_oldest_suspended_age_seconds", kind="asleep") or 0) < 90_000
    assert value("holdfast_subscription_lag", subscription="heard") == 0
    assert value("holdfast_subscription_parked", subscription="heard") == 0


async def test_scrapes_that_come_together_ask_the_database_once(desk: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    gauges = Gauges(fresh=60.0)
    await gauges.look({"": desk})
    monkeypatch.setattr(desk, "overview", None)
    await gauges.look({"": desk})
    assert gauges.series.numbers(FLEET_UP) == {(): 1.0}
