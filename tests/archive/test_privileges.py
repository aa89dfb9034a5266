"""The archive works for a login with the privileges of a worker, and for the owner of the tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql

from holdfast._archive.restore import TargetTable, restore
from holdfast._drivers import run
from holdfast._store.archive import FAMILIES, droppable_days, set_retention

if TYPE_CHECKING:
    from collections.abc import Iterator

    from obstore.store import ObjectStore

    from tests.kit.archive import History


@pytest.fixture
def worker_url(history: History) -> Iterator[str]:
    """The address of a login that has a worker's privileges and owns nothing."""
    name = sql.Identifier("test_archivist")
    history.conn.execute(sql.SQL("CREATE ROLE {} LOGIN IN ROLE holdfast_worker").format(name))
    yield psycopg.conninfo.make_conninfo(history.url, user="test_archivist")
    history.conn.execute(sql.SQL("DROP ROLE {}").format(name))


async def test_a_worker_that_owns_nothing_exports_and_drops(
    history: History, bucket: ObjectStore, worker_url: str
) -> None:
    owner, history.url = history.url, worker_url
    day = history.day(100, 10, families=["job_history", "event"])
    history.remember("job_history")
    assert (await history.export())["periods_exported"] == 2
    async with history.connected() as conn:
        for found in await run(conn, droppable_days(limit=10)):
            assert [command.split("(")[0] for command in found.commands] == ["SELECT holdfast.drop_archived"]
        # It drops what is verified and over, and nothing else.
        for source, starts_on in (("job_history", "2020-01-01"), ("job", day), ("x; DROP TABLE holdfast.job", day)):
            answer = await conn.execute("SELECT holdfast.drop_archived(%s, %s, 1::smallint)", [source, starts_on])
            assert await answer.fetchone() == ("kept",)
        await run(conn, set_retention("job_history", 1000))
        assert await history.cleanup() == {"periods_dropped": 1}, "the event"
        await run(conn, set_retention("job_history", 14))
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            await conn.execute("UPDATE holdfast.retention SET archived = false")

        # A row that came late is noticed, and a reader is not disturbed.
        history.add(day, 1)
        assert await history.cleanup() == {"periods_changed": 1}
        history.conn.execute("DROP TABLE public.job_history_before")
        history.remember("job_history")
        await history.export()
        await conn.execute("BEGIN")
        await conn.execute("SELECT count(*) FROM holdfast.job_history")
        assert await history.cleanup() == {"periods_kept": 1}
        await conn.execute("COMMIT")
    assert await history.cleanup() == {"periods_dropped": 1}
    [export] = await history.exports()
    restore(history.conn, bucket, export, TargetTable("archive", "restored"))
    assert history.differences("public.job_history_before", "archive.restored") == 0
    history.url = owner


async def test_a_worker_finishes_what_an_owner_began(history: History, worker_url: str) -> None:
    day = history.jobs_of(100, 10)
    part = f"job_history_{day.replace('-', '')}"
    await history.export()
    history.conn.execute(f"ALTER TABLE holdfast.job_history_days DETACH PARTITION holdfast.{part} CONCURRENTLY")
    other = "(jsonb_populate_record(h, '{\"id\": 0}')).*"
    history.conn.execute(f"INSERT INTO holdfast.{part} SELECT {other} FROM holdfast.{part} h LIMIT 1")
    owner, history.url = history.url, worker_url
    assert await history.cleanup() == {"periods_changed": 1}
    assert history.value("SELECT count(*) FROM holdfast.job_history") == 11
    assert (await history.export())["rows_exported"] == 11
    assert await history.cleanup() == {"periods_dropped": 1}
    history.url = owner


async def test_the_owner_detaches_beside_readers(history: History) -> None:
    history.day(100, 1)
    for family in FAMILIES:
        day = history.value("SELECT (now() AT TIME ZONE 'UTC')::date - 100")
        history.conn.execute(
            "INSERT INTO holdfast.archive_exports (source, starts_on, ends_on, state, started_at, lock_token, rows, "
            "verified_at, drop_eligible_at) VALUES (%s, %s, %s, 'verified', now(), 1, %s, now(), now())",
            [family, day, day, int(family == "job_history")],
        )
    async with history.connected() as conn:
        commands = [day.commands for day in await run(conn, droppable_days(limit=10))]
    assert len(commands) == len(FAMILIES)
    assert all("DETACH PARTITION" in first and "CONCURRENTLY" in first for first, _ in commands)
    # A day that somebody dropped by hand does not stop the others.
    history.conn.execute(f"DROP TABLE holdfast.event_{day:%Y%m%d}")
    assert await history.cleanup() == {"periods_dropped": len(FAMILIES)}


async def test_a_restore_into_a_schema_that_exists_needs_no_right_to_create_schemas(
    history: History, bucket: ObjectStore, worker_url: str
) -> None:
    history.jobs_of(100, 10)
    await history.export()
    [export] = await history.exports()
    history.conn.execute('CREATE SCHEMA archive; CREATE SCHEMA "Old ones"')
    with psycopg.connect(worker_url, autocommit=True) as conn:
        for schema in ("archive", "Old ones"):
            grant = sql.SQL("GRANT USAGE, CREATE ON SCHEMA {} TO test_archivist").format(sql.Identifier(schema))
            history.conn.execute(grant)
            assert restore(conn, bucket, export, TargetTable(schema, "restored")) == 10
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied for database"):
            restore(conn, bucket, export, TargetTable("elsewhere", "restored"))
    history.conn.execute("DROP OWNED BY test_archivist")
