from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast._drivers import run_sync
from holdfast._ops.requests import TrendQuestion
from holdfast._ops.trends import STEPS, read_trends
from holdfast._store.inspect import take_census
from holdfast._store.trend import keep_census
from tests.kit.workers import FAILED, Worker, enqueue, job, number
from tests.ops.test_service import complete, service

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast._ops.service import Service

__all__ = ["service"]


@pytest.fixture
def conn(database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database, autocommit=True) as conn:
        yield conn


def count(conn: psycopg.Connection[Any], minutes_ago: int = 0) -> None:
    """Count as maintenance does, and let it be so many minutes ago."""
    run_sync(conn, take_census(every_ms=0))
    run_sync(conn, keep_census())
    conn.execute(
        "UPDATE holdfast.past_census SET minute = minute - %s * interval '1 minute'"
        " WHERE minute > now() - interval '1 minute'",
        [minutes_ago],
    )


@pytest.mark.parametrize("range_", STEPS)
async def test_what_ended_and_what_waits_is_seen_in_every_range(
    service: Service, conn: psycopg.Connection[Any], range_: Any
) -> None:
    ids = enqueue(conn, *[job("mail") for _ in range(5)], job("pdf", queue="slow"))
    complete(conn, ids[:3])
    count(conn)
    found = await read_trends(service, TrendQuestion(range=range_))
    steps = STEPS[range_]
    assert (len(found.at), found.step_seconds) == steps
    assert [(line.name, sum(line.completed)) for line in found.lines] == [("default", 3), ("slow", 0)]
    assert sum(found.total.completed) == 3
    assert [due for due in found.total.due if due is not None] == [3]
    assert [due for due in found.lines[1].due if due is not None] == [1]
    assert [p50 is not None for p50 in found.total.waiting.p50].count(True) == 1
    kinds = await read_trends(service, TrendQuestion(range=range_, by="kind", queue="slow"))
    assert [line.name for line in kinds.lines] == ["pdf"]


async def test_workers_are_told_apart_by_what_they_did_between_counts(
    service: Service, conn: psycopg.Connection[Any]
) -> None:
    busy, idle = Worker(conn), Worker(conn)
    conn.execute("UPDATE holdfast.worker SET counters = '{\"job_completed\": 100}' WHERE id = %s", [busy.id])
    count(conn, 20)
    conn.execute(
        'UPDATE holdfast.worker SET counters = \'{"job_completed": 140, "job_failed": 2}\' WHERE id = %s', [busy.id]
    )
    count(conn)
    first, second = (await read_trends(service, TrendQuestion(by="worker"))).lines
    assert (first.id, sum(first.completed), sum(first.failed)) == (str(busy.id), 40, 2)
    assert (second.id, sum(second.completed)) == (str(idle.id), 0)


async def test_a_version_is_marked_where_its_first_worker_started(
    service: Service, conn: psycopg.Connection[Any]
) -> None:
    for version, minutes in (("4.1", 3000), ("4.2", 20), ("4.2", 5)):
        conn.execute(
            "UPDATE holdfast.worker SET app_version = %s, started_at = now() - %s * interval '1 minute' WHERE id = %s",
            [version, minutes, Worker(conn).id],
        )
    hour = await read_trends(service, TrendQuestion())
    assert [mark.version for mark in hour.versions] == ["4.2"]
    assert 19 * 60 < (hour.at[-1] - hour.versions[0].first_seen_at).total_seconds() + 60 < 22 * 60
    week = await read_trends(service, TrendQuestion(range="7d"))
    assert [mark.version for mark in week.versions] == ["4.2", "4.1"]


def test_counts_are_thinned_out_and_few_are_kept(conn: psycopg.Connection[Any]) -> None:
    conn.execute(
        "INSERT INTO holdfast.past_census SELECT date_trunc('minute', now()) - n * interval '1 minute', '[]', '[]'"
        " FROM generate_series(1, 20000) AS n"
    )
    run_sync(conn, take_census(every_ms=0))
    for _ in range(30):
        run_sync(conn, keep_census())
    assert 380 <= number(conn, "SELECT count(*) FROM holdfast.past_census") <= 460


async def test_failures_are_counted_apart(service: Service, conn: psycopg.Connection[Any]) -> None:
    worker = Worker(conn)
    enqueue(conn, job())
    worker.end(worker.claim(), FAILED)
    (line,) = (await read_trends(service, TrendQuestion())).lines
    assert (sum(line.completed), sum(line.failed)) == (0, 1)
