"""Numbers on the pages and in the stats are those of the database."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import Settings
from holdfast.drivers import run_sync
from holdfast.engine.tick import run_tick
from holdfast.ops.answer import Latency
from holdfast.ops.desk import Desk
from holdfast.ops.percentile import latency
from holdfast.ops.runtime import runtime
from holdfast.store.census import BOUNDS
from holdfast.store.subscription import subscribe
from tests.ops.shop import enqueue, make_app

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PATIENT = timedelta(seconds=20)


@pytest.fixture
async def desk(database: str) -> AsyncIterator[Desk]:
    async with Desk(database, timeout=PATIENT) as desk:
        yield desk


async def test_totals_and_the_last_error_are_there_after_a_tick_though_no_worker_lives(
    database: str, desk: Desk
) -> None:
    app = make_app(database)
    await enqueue(app, "mail.send", "a@example.org")
    await enqueue(app, "mail.break")
    await run_tick(app, Settings.load(os.environ))
    said = await desk.fleet_runtime()
    assert (said.is_running, said.processed_total, said.dead_letter_total) == (False, 2, 1)
    assert said.last_error is not None
    assert "it broke" in said.last_error


def test_dead_letters_of_the_reaper_are_counted() -> None:
    counters = [{"job_failed": 2, "job_reaped": 5, "reaped_failed": 3}]
    assert runtime(counters, is_running=True, last_error=None).dead_letter_total == 5


async def test_what_was_just_enqueued_is_counted_while_few_jobs_live(database: str, desk: Desk) -> None:
    app = make_app(database)
    assert (await desk.stats_queue()).pending == 0
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("UPDATE holdfast.census SET seconds = 3, at = at - interval '3 seconds'")
    await enqueue(app, "mail.send", "a@example.org")
    assert (await desk.stats_queue()).pending == 1


async def test_a_relay_is_behind_by_no_more_than_was_published(database: str, desk: Desk) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        run_sync(conn, subscribe("out", target="nats", topics=["paid"], partitions=4, beginning=False))
        conn.execute("SELECT count(holdfast.publish('paid', '{}', key => n::text)) FROM generate_series(1, 40) AS n")
    (line,) = (await desk.subscriptions()).subscriptions
    assert line.lag_events == 40
    assert (await desk.overview()).relay_lag_events == 40


@pytest.mark.parametrize(
    ("seconds", "p50", "p99"),
    [([300.0, 900.0], 300.0, 1800.0), ([0.0005], 0.001, 0.001), ([200_000.0], 86_400.0, 86_400.0)],
)
def test_percentiles_are_bounds_that_were_measured(seconds: list[float], p50: float, p99: float) -> None:
    buckets: dict[int, int] = {}
    for one in seconds:
        bucket = sum(one > bound for bound in BOUNDS)
        buckets[bucket] = buckets.get(bucket, 0) + 1
    assert latency(buckets) == Latency(p50=p50, p95=p99, p99=p99)


async def test_only_the_part_that_was_redacted_is_marked(database: str, desk: Desk) -> None:
    app = make_app(database)
    hidden: Any = await enqueue(app, "mail.send", "a@example.org", "hush")
    plain = await enqueue(app, "mail.break")
    assert (await desk.job(hidden)).redacted_parts == ["payload"]
    assert (await desk.job(plain)).redacted_parts == []
