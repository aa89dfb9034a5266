"""Numbers on the pages and in the stats are those of the database."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import Holdfast, Job, Retry, Settings
from holdfast._app.app import application_of
from holdfast._drivers import run_sync
from holdfast._engine.once import run_tick
from holdfast._ops.fleet import runtime
from holdfast._ops.responses.fleet import StatsConfig
from holdfast._ops.service import Service
from holdfast._store.subscription import subscribe
from holdfast.ops import operations
from tests.kit.access import make_token
from tests.kit.asking import Asked, ask, bearer
from tests.kit.shop import enqueue, make_app

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PATIENT = timedelta(seconds=20)


@pytest.fixture
async def service(database: str) -> AsyncIterator[Service]:
    async with Service(database, timeout=PATIENT) as service:
        yield service


async def test_totals_and_the_last_error_are_there_after_a_tick_though_no_worker_lives(
    database: str, service: Service
) -> None:
    app = make_app(database)
    await enqueue(app, "mail.send", "a@example.org")
    await enqueue(app, "mail.break")
    await run_tick(application_of(app, Settings.load(os.environ)))
    answer = await service.fleet_runtime()
    assert (answer.is_running, answer.processed_total, answer.dead_letter_total) == (False, 2, 1)
    assert answer.last_error is not None
    assert "it broke" in answer.last_error


async def test_the_settings_shown_are_those_of_the_live_workers(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that answers has settings of its own, by which no job runs. They are shown when no worker lives."""
    app = make_app(database)
    monkeypatch.setenv("HOLDFAST_BATCH_SIZE", "5")
    site, headers = operations(app, timeout=PATIENT), bearer(make_token(database, "developer"))

    async def config() -> dict[str, Any]:
        answered = await ask(site, Asked("GET", "/outbox/stats", headers=headers))
        shown: dict[str, Any] = answered.json["config"]
        return shown

    defaults = {
        "poll_ms": 30_000, "max_attempts": 3, "processing_timeout_ms": 60_000, "retry_base_ms": 5_000,
        "retry_max_ms": 120_000,
    }  # fmt: skip
    async with app.worker(batch_size=7):
        assert await config() == defaults | {"batch_size": 7}
        async with app.worker(batch_size=9):
            assert await config() == defaults | {"batch_size": None}, "they differ"
        async with app.worker(batch_size=7, retry=Retry(max_attempts=None)):
            assert await config() == defaults | {"batch_size": 7, "max_attempts": None}, "one has no limit"
    assert await config() == defaults | {"batch_size": 5}, "no worker lives"
    await site.state.operations.close()


async def test_a_worker_registers_no_setting_that_is_not_shown(database: str) -> None:
    async with make_app(database).worker():
        with psycopg.connect(database) as conn:
            (row,) = conn.execute("SELECT settings FROM holdfast.worker").fetchall()
    assert set(row[0]) == {*StatsConfig.model_fields, "heartbeat_ms"}, "the heartbeat shows in the state of the worker"
    assert {type(value) for value in row[0].values()} == {int}


def test_dead_letters_of_the_reaper_are_counted() -> None:
    counters = [{"job_failed": 2, "job_reaped": 5, "reaped_failed": 3}]
    assert runtime(counters, is_running=True, last_error=None).dead_letter_total == 5


async def test_what_was_just_enqueued_is_counted_while_few_jobs_live(database: str, service: Service) -> None:
    app = make_app(database)
    assert (await service.stats_queue()).pending == 0
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("UPDATE holdfast.census SET seconds = 3, at = at - interval '3 seconds'")
    await enqueue(app, "mail.send", "a@example.org")
    assert (await service.stats_queue()).pending == 1


async def test_a_relay_is_behind_by_no_more_than_was_published(database: str, service: Service) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        run_sync(conn, subscribe("out", target="nats", topics=["paid"], partitions=4, beginning=False))
        conn.execute("SELECT count(holdfast.publish('paid', '{}', key => n::text)) FROM generate_series(1, 40) AS n")
    (line,) = (await service.subscriptions()).items
    assert line.lag_events == 40
    assert (await service.overview()).relay_lag_events == 40


async def test_only_the_part_that_was_redacted_is_marked(database: str, service: Service) -> None:
    app = make_app(database)
    hidden: Any = await enqueue(app, "mail.send", "a@example.org", "hush")
    plain = await enqueue(app, "mail.break")
    assert (await service.job(hidden)).redacted_parts == ["payload"]
    assert (await service.job(plain)).redacted_parts == []


async def test_a_result_that_was_redacted_does_not_mark_the_payload(database: str, service: Service) -> None:
    app = Holdfast(database)

    @app.job("login")
    async def login(job: Job[Any], user: str) -> dict[str, str]:
        return {"user": user, "access_token": "hush"}

    job = await enqueue(app, "login", "ann")
    await run_tick(application_of(app, Settings.load(os.environ)))
    story = await service.job(job)
    assert story.result == {"user": "ann", "access_token": "[redacted]"}
    assert story.payload == {"user": "ann"}
    assert (story.redacted, story.redacted_parts) == (True, ["result"])
