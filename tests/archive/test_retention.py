"""How long rows are kept: by what was set, and never less than the archive needs."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast._drivers import run_sync
from holdfast._engine.runner import Tick
from holdfast._engine.runners.database import open_runner_database
from holdfast._engine.runners.maintenance import Maintenance
from holdfast._model.errors import HoldfastError
from holdfast._store.archive import list_exports, read_retention, set_archived, set_retention
from holdfast._store.maintenance import delete_replays
from holdfast._store.search import AFTER_ALL, Search, Span, search_table
from holdfast._store.subscription import skip_subscription, subscribe

if TYPE_CHECKING:
    from tests.kit.archive import History

SOON = 20.0


async def maintained(history: History, *, archives: bool = False) -> dict[str, int]:
    """Run the first tick of a worker."""
    async with open_runner_database(history.url, name="test", seconds=SOON) as site:
        return dict(await Maintenance(site, archives=archives).tick(Tick(name="maintenance")))


def kept(history: History) -> dict[str, int]:
    return {line.family: line.days for line in run_sync(history.conn, read_retention())}


def archived(history: History) -> set[str]:
    return {line.family for line in run_sync(history.conn, read_retention()) if line.archived}


def verified(history: History, family: str, days_ago: int) -> None:
    """Write the record of an empty day that was exported."""
    history.day(days_ago, families=[family])
    history.conn.execute(
        "INSERT INTO holdfast.archive_exports (source, starts_on, ends_on, state, started_at, lock_token, rows, "
        "verified_at, drop_eligible_at) SELECT family, d, d + 1, 'verified', now(), 1, 0, now(), "
        "greatest(now(), (d + 1)::timestamp AT TIME ZONE 'UTC' + keep) FROM holdfast.retention, "
        f"(SELECT (now() AT TIME ZONE 'UTC')::date - {days_ago} AS d) AS x WHERE family = %s",
        [family],
    )


async def test_a_change_holds(history: History) -> None:
    run_sync(history.conn, set_archived(archived=False))
    before = kept(history)
    for family, days in (("job_history", 30), ("job_failed", 120), ("event", 45), ("run", 3)):
        run_sync(history.conn, set_retention(family, days))
    wanted = {"job_history": 30, "job_failed": 120, "attempt": 120, "event": 45, "delivery": 45, "run": 3}
    await maintained(history)
    assert kept(history) == before | wanted
    assert archived(history) == set()
    run_sync(history.conn, set_retention("job_history", 200))
    assert (kept(history)["job_history"], kept(history)["attempt"]) == (200, 200)
    run_sync(history.conn, set_retention("job_history", 14))
    assert kept(history)["attempt"] == 120, "as long as the jobs that are kept longest"
    for family, days in (("attempt", 9), ("job", 9), ("run", 1), ("run", 40_000)):
        with pytest.raises(HoldfastError, match="retention: job_history"):
            run_sync(history.conn, set_retention(family, days))


async def test_a_worker_with_a_bucket_keeps_days_once(history: History) -> None:
    run_sync(history.conn, set_archived(archived=False))
    async with open_runner_database(history.url, name="test", seconds=SOON) as site:
        maintenance = Maintenance(site, archives=True)
        await maintenance.tick(Tick(name="maintenance"))
        assert archived(history) == {"job_history", "job_failed", "attempt", "event", "delivery", "run"}
        run_sync(history.conn, set_archived(archived=False))
        await maintenance.tick(Tick(name="maintenance"))
        assert archived(history) == set(), "a person gave it up"
    await maintained(history, archives=True)
    # A worker without a bucket does not clear it: a forgotten variable must not lose a day.
    await maintained(history)
    assert len(archived(history)) == 6


def test_the_answers_of_webhooks_are_kept_as_long_as_the_events_and_at_least_30_days(history: History) -> None:
    def delivery(events: int) -> int:
        run_sync(history.conn, set_retention("event", events))
        return kept(history)["delivery"]

    assert [delivery(events) for events in (400, 60, 7, 45)] == [400, 60, 30, 45]
    # Another number of days is not looked at, so that what the owner has set stays.
    history.conn.execute("UPDATE holdfast.retention SET keep = '99 days' WHERE family = 'delivery'")
    run_sync(history.conn, set_retention("run", 8))
    assert kept(history)["delivery"] == 99


async def test_the_day_of_the_drop_follows_the_retention(history: History) -> None:
    verified(history, "job_history", 20)
    verified(history, "attempt", 20)

    def wait(family: str) -> timedelta:
        [export] = run_sync(history.conn, list_exports(source=family))
        assert export.drop_eligible_at is not None
        assert export.verified_at is not None
        return export.drop_eligible_at - export.verified_at

    assert wait("job_history") == timedelta(0)
    assert wait("attempt") > timedelta(days=60)
    run_sync(history.conn, set_retention("job_history", 30))
    assert timedelta(days=9) < wait("job_history") <= timedelta(days=11)
    assert await history.cleanup() == {}
    run_sync(history.conn, set_retention("job_failed", 14))
    assert timedelta(days=9) < wait("attempt") <= timedelta(days=11), "as long as completed jobs"
    run_sync(history.conn, set_retention("job_history", 14))
    assert (wait("job_history"), wait("attempt")) == (timedelta(0), timedelta(0))
    assert await history.cleanup() == {"periods_dropped": 2}


async def test_an_archived_family_is_not_dropped_by_maintenance(history: History) -> None:
    day = history.jobs_of(100, 1)
    assert (await maintained(history)).get("partitions_dropped") is None
    assert history.value("SELECT count(*) FROM holdfast.job_history") == 1
    with psycopg.connect(history.url, autocommit=True) as conn:
        dropped = conn.execute("SELECT holdfast.drop_partition(%s)", [f"job_history_{day.replace('-', '')}"])
        assert dropped.fetchone() == (False,)
    # Without an archive, maintenance drops it.
    run_sync(history.conn, set_archived(archived=False))
    assert await maintained(history) == {"partitions_dropped": 1}


async def test_an_export_has_days_kept_although_no_worker_with_a_bucket_does_maintenance(history: History) -> None:
    run_sync(history.conn, set_archived(archived=False))
    history.jobs_of(100, 3)
    assert (await history.export())["rows_exported"] == 3
    assert len(archived(history)) == 6


async def test_a_day_of_events_that_a_subscription_has_not_read_is_kept(history: History) -> None:
    verified(history, "event", 100)
    day = history.value("SELECT (now() AT TIME ZONE 'UTC')::date - 100")
    history.conn.execute(
        "INSERT INTO holdfast.event (id, published_at, xid, shard, topic, payload) VALUES "
        f"(nextval('holdfast.event_id_seq'), '{day} 12:00+00', pg_current_xact_id(), 0, 't', '{{}}')"
    )
    history.conn.execute("UPDATE holdfast.archive_exports SET rows = 1")
    subscription = run_sync(history.conn, subscribe("slow", target="t", topics=(), partitions=1, beginning=True)).id
    assert await history.cleanup() == {}
    kept_ = history.conn.execute("SELECT holdfast.drop_archived('event', %s, 1::smallint)", [day]).fetchone()
    assert kept_ == ("kept",)
    assert history.value("SELECT count(*) FROM holdfast.event") == 1
    run_sync(history.conn, skip_subscription(subscription))
    assert await history.cleanup() == {"periods_dropped": 1}


def replayed(history: History, days_ago: int, *, late: bool = False) -> None:
    """Write a dead letter that was replayed an hour after it failed."""
    at = f"(date_trunc('day', now(), 'UTC') - interval '{days_ago} days' + interval '10 hours')"
    history.conn.execute(
        "WITH dead AS (INSERT INTO holdfast.job_failed (id, created_at, available_at, finished_at, status, attempt, "
        "priority, queue, kind, late) SELECT nextval('holdfast.job_id_seq'), at, at, at, 'failed', 1, 5, 'default', "
        f"'receipt.send', {'true' if late else 'NULL'} FROM (SELECT {at} AS at) AS x RETURNING id) "
        "INSERT INTO holdfast.replay (job_id, nth, replay_id, replayed_at) "
        f"SELECT id, 1, nextval('holdfast.job_id_seq'), {at} + interval '1 hour' FROM dead".encode()
    )


def waiting_for_a_retry(history: History) -> int:
    """Return how many dead letters a retry by a filter would run again."""
    search = Search(status="failed", replayed=False)
    span = Span(0, AFTER_ALL)
    return len(run_sync(history.conn, search_table("search_failed_jobs", search, span, scan=100, limit=100)).found)


async def test_a_replay_is_remembered_as_long_as_its_dead_letter(history: History) -> None:
    history.day(100, families=["job_failed"])
    replayed(history, 100)
    assert run_sync(history.conn, delete_replays()) == 0, "the day waits for the archive"
    assert waiting_for_a_retry(history) == 0
    await history.export()
    assert await history.cleanup() == {"periods_dropped": 1}
    assert run_sync(history.conn, delete_replays()) == 1


def test_no_replay_is_forgotten_while_a_dead_letter_has_no_day(history: History) -> None:
    replayed(history, 100, late=True)
    assert run_sync(history.conn, delete_replays()) == 0
    assert waiting_for_a_retry(history) == 0
    history.conn.execute("DELETE FROM holdfast.job_failed WHERE late")
    assert run_sync(history.conn, delete_replays()) == 1
