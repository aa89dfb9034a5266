"""An object store, days of history in it and in the database, and what is equal in both."""

from __future__ import annotations

import os
import secrets
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import obstore
import obstore.exceptions
import psycopg
import pytest

from holdfast._archive.export import Exporter
from holdfast._archive.location import Location
from holdfast._archive.runners import ArchiveRunners
from holdfast._drivers import run
from holdfast._engine.runner import Tick
from holdfast._store.archive import closed_days, list_exports
from tests.kit.archive_tables import fill
from tools.seaweedfs import REGION, SeaweedFS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from obstore.store import ObjectStore

    from holdfast._store.archive import Export, Period

FAMILIES = ("job_history", "job_failed", "attempt", "event", "delivery", "run")


@pytest.fixture(scope="session")
def object_store() -> Iterator[SeaweedFS]:
    with SeaweedFS() as server:
        os.environ.update(server.environment)
        yield server


@pytest.fixture
def location(object_store: SeaweedFS) -> Location:
    """A folder of its own: the store sets volumes aside for each bucket, and the sixteenth gets none."""
    return Location(f"test/{secrets.token_hex(6)}", REGION, object_store.url)


@pytest.fixture
def bucket(location: Location) -> ObjectStore:
    return location.open()


def stored(bucket: ObjectStore) -> list[str]:
    """Return the names of all objects. A bucket that has none does not exist."""
    try:
        return sorted(entry["path"] for entry in obstore.list(bucket).collect())
    except obstore.exceptions.GenericError as exc:
        if "NoSuchBucket" not in str(exc):
            raise
        return []


@dataclass
class History:
    """A database whose closed days are archived."""

    url: str
    conn: psycopg.Connection[Any]
    location: Location

    def day(self, days_ago: int, jobs: int = 0, *, families: Sequence[str] = FAMILIES, **columns: str) -> str:
        """Create a day with completed jobs, and return it. `columns`: expressions of SQL in `n`.

        `families`: those that have this day. Each is an upload of its own, so a test names what it needs.
        """
        day = self.value(f"SELECT (now() AT TIME ZONE 'UTC')::date - {days_ago}")
        for family in families:
            part = f"{family}_{day:%Y%m%d}"
            if self.value(f"SELECT to_regclass('holdfast.{part}')") is None:
                like = f"LIKE holdfast.{family} INCLUDING DEFAULTS INCLUDING CONSTRAINTS"
                self.conn.execute(f"CREATE TABLE holdfast.{part} ({like})")
                self.conn.execute(
                    f"ALTER TABLE holdfast.{family}_days ATTACH PARTITION holdfast.{part} "
                    f"FOR VALUES FROM ('{day} 00:00+00') TO ('{day}'::date + 1)"
                )
        self.add(day, jobs, **columns)
        return str(day)

    def add(self, day: object, jobs: int, **columns: str) -> None:
        given = {
            "id": "nextval('holdfast.job_id_seq')",
            "created_at": f"'{day} 10:00+00'",
            "available_at": f"'{day} 10:00+00'",
            "finished_at": f"'{day} 10:00+00'::timestamptz + n * interval '1 ms'",
            "status": "'completed'",
            "attempt": "1",
            "priority": "5",
            "queue": "'default'",
            "kind": "'receipt.send'",
            "payload": "json_build_object('invoice_id', n)",
        } | columns
        self.conn.execute(
            f"INSERT INTO holdfast.job_history ({', '.join(given)}) SELECT {', '.join(given.values())} "
            f"FROM generate_series(1, {jobs}) AS n"
        )

    def jobs_of(self, days_ago: int, jobs: int, **columns: str) -> str:
        """Create a day that only completed jobs have."""
        return self.day(days_ago, jobs, families=["job_history"], **columns)

    def remember(self, family: str) -> None:
        """Copy the rows of a family, to compare them with what is restored."""
        self.conn.execute(f"CREATE TABLE public.{family}_before AS SELECT * FROM holdfast.{family}")

    def differences(self, one: str, other: str) -> int:
        """Return how many rows of two tables differ in any column, JSON letter for letter."""
        columns = self.value(
            "SELECT string_agg(CASE WHEN atttypid = 'json'::regtype THEN format('%I::text', attname) "
            "ELSE quote_ident(attname) END, ', ' ORDER BY attnum) FROM pg_attribute "
            f"WHERE attrelid = '{one}'::regclass AND attnum > 0 AND attname <> 'late'"
        )
        left, right = (f"SELECT {columns} FROM {table}" for table in (one, other))
        either = f"(({left} EXCEPT ALL {right}) UNION ALL ({right} EXCEPT ALL {left}))"
        return int(self.value(f"SELECT count(*) FROM {either} AS x"))

    def move_late(self) -> None:
        """Move late rows to their days, as maintenance does. The days that it makes beside them are dropped."""
        self.conn.execute("SELECT holdfast.ensure_partitions()")
        day = self.value("SELECT to_char(now() AT TIME ZONE 'UTC' - interval '1 day', 'YYYYMMDD')")
        for family in (*FAMILIES, "tally"):
            self.conn.execute(f"DROP TABLE holdfast.{family}_{day}")

    def expire_leases(self) -> None:
        """Let the time pass after which another process may export."""
        self.conn.execute("UPDATE holdfast.archive_exports SET locked_until = now() - interval '1 second'")

    def value(self, query: str) -> Any:
        row = self.conn.execute(query.encode()).fetchone()
        return row and row[0]

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        async with await psycopg.AsyncConnection.connect(self.url, autocommit=True) as conn:
            yield conn

    def runners(self, *archives: Any) -> ArchiveRunners:
        # Not in the background: other tests would have all of the processor.
        return ArchiveRunners(self.url, self.connected, location=self.location, archives=archives, background=False)

    async def export(self, *archives: Any) -> dict[str, int]:
        """Run a tick of `archiveExport`."""
        return dict(await self.runners(*archives).export(Tick(name="archiveExport")))

    async def cleanup(self, *archives: Any) -> dict[str, int]:
        """Run a tick of `cleanup`."""
        return dict(await self.runners(*archives).cleanup(Tick(name="cleanup")))

    async def closed(self) -> list[Period]:
        async with self.connected() as conn:
            return await run(conn, closed_days(limit=100))

    async def exports(self, source: str = "job_history") -> list[Export]:
        async with self.connected() as conn:
            return await run(conn, list_exports(source=source))

    @asynccontextmanager
    async def exporter(self) -> AsyncIterator[Exporter]:
        async with self.connected() as conn, Exporter(conn, self.url, self.location) as exporter:
            yield exporter


@pytest.fixture
def history(database: str, location: Location) -> Iterator[History]:
    with psycopg.connect(database, autocommit=True) as conn:
        history = History(database, conn, location)
        # Only the days that a test makes.
        parts = conn.execute(
            "SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'holdfast'::regnamespace AND c.relkind = 'r' "
            "AND c.relname ~ '_[0-9]{8}$' AND right(c.relname, 8)::date < (now() AT TIME ZONE 'UTC')::date"
        ).fetchall()
        for (part,) in parts:
            conn.execute(f"DROP TABLE holdfast.{part}")
        conn.execute("SELECT holdfast.set_archived(true)")
        yield history


@pytest.fixture
def tenders(history: History) -> History:
    """Rows of two months that are old, ten each, and ten of today."""
    history.conn.execute("CREATE TABLE tenders (id bigint PRIMARY KEY, published_at timestamptz, title text)")
    history.conn.execute("CREATE INDEX ON tenders (published_at)")
    for n, month in enumerate(("2024-01", "2024-02")):
        fill(history, n * 10, f"'{month}-05 10:00+00'::timestamptz + n * interval '1 day'")
    fill(history, 100, "now()")
    return history
