"""The export of a day of history against a bare COPY of the same rows, and a worker beside it.

The export is the real one: a process of its own reads the rows, writes a Parquet file to an object store on this
machine, and reads it back. The COPY is psql's, into /dev/null. Both have the same rows in the same run, by turns, and
each is first as often as the other. Before the first turn the whole day was read, so no turn pays for the disk.

The bar on the export holds for a machine without other work, and the bar on the worker for one with an export beside
it, which rests then. How many rows the export writes in that time is measured too, and has no bar.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg

from holdfast._archive import export
from holdfast._archive.location import Location
from holdfast._store.archive import Period
from labs.bench.drain import drain_with_worker
from labs.bench.figure import Figure, Section, table
from labs.bench.ground import checkpoint, connected, ground, progress
from labs.bench.load import load_jobs
from tools.seaweedfs import REGION, SeaweedFS

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast._store.archive import Upload

ROWS = 10_000_000
# Even, since the order changes with each.
ROUNDS = 4
CHUNK = 1_000_000
JOBS = 80_000
DRAINS = 7
RATE = 0.5
MEGABYTES = 300.0
WORKER = 0.9
# A worker drops the days before the last two weeks.
NEXT_DAY = datetime.now(UTC).date()
DAY = NEXT_DAY - timedelta(days=1)


def measure(scale: float) -> Section:
    rows = max(100_000, round(ROWS * scale))
    with (
        ground(autovacuum="on") as base,
        base.database() as url,
        connected(url) as conn,
        SeaweedFS() as store,
    ):
        # The process of the export finds the credentials there.
        os.environ.update(store.environment)
        _load_day(conn, rows)
        day = Day(url, conn, Location("bench/history", REGION, store.url), rows)
        copies, exports = _turns(day, rounds=max(2, round(ROUNDS * scale)))
        jobs = max(20_000, round(JOBS * scale))
        alone, drains = _drains(day, jobs, rounds=max(3, round(DRAINS * scale)))
    copied, exported = median(copies), median(found.seconds for found in exports)
    whole = median(found.seconds + found.verification for found in exports)
    beside = median(drain.jobs for drain in drains)
    # Of all drains together: an export writes tens of thousands of rows at once, and then rests.
    slowed = sum(drain.rows for drain in drains) / sum(drain.seconds for drain in drains)
    figures = [
        Figure("export, against the bare COPY", copied / exported, least=RATE),
        Figure("export and verification, against the bare COPY", copied / whole),
        Figure("export beside a worker, against the bare COPY", slowed * copied / rows),
        Figure("memory of the export, at its peak", max(found.peak for found in exports), limit=MEGABYTES, unit=" MB"),
        Figure("worker beside an export, against alone", beside / median(alone), least=WORKER),
    ]
    size = exports[-1].bytes
    lines = [
        (f"COPY of {rows:,} rows", f"{copied:.1f} s", f"{rows / copied:,.0f} rows a second"),
        ("export", f"{exported:.1f} s", f"{rows / exported:,.0f} rows a second"),
        ("export and verification", f"{whole:.1f} s", f"{rows / whole:,.0f} rows a second"),
        ("file", f"{size / 1e6:,.0f} MB", f"{size / rows:.1f} bytes a row"),
        ("worker alone", "", f"{median(alone):,.0f} jobs a second"),
        ("worker beside an export", "", f"{beside:,.0f} jobs a second"),
        ("export beside a worker", "", f"{slowed:,.0f} rows a second"),
    ]
    return Section(figures, [table(("", "", ""), lines)])


def _turns(day: Day, *, rounds: int) -> tuple[list[float], list[Exported]]:
    """Return the times of COPY and of exports, by turns."""
    copies: list[float] = []
    exports: list[Exported] = []
    day.copy()
    for turn in range(rounds):
        progress(f"archive: round {turn + 1}")
        for copying in (True, False) if turn % 2 else (False, True):
            if copying:
                copies.append(day.copy())
            else:
                exports.append(day.export())
    return copies, exports


class Exported:
    """An export: its seconds until the file was uploaded, those of the verification, its memory in megabytes."""

    def __init__(self) -> None:
        self.peak = 0.0
        self.bytes = 0
        self._at = {"begun": time.perf_counter()}

    def step(self, name: str) -> None:
        self._at[name] = time.perf_counter()
        self.peak = max(self.peak, _peak_of_child())

    @property
    def seconds(self) -> float:
        return self._at["uploaded"] - self._at["begun"]

    @property
    def verification(self) -> float:
        return self._at["verified"] - self._at["uploaded"]


class Day:
    """A closed day, and the ways to read it."""

    def __init__(self, url: str, conn: psycopg.Connection[Any], location: Location, rows: int) -> None:
        self.url = url
        self.conn = conn
        self._location = location
        self._rows = rows

    def copy(self) -> float:
        """Return the seconds of a bare COPY."""
        psql = shutil.which("psql")
        if psql is None:
            raise RuntimeError("psql is needed, and is not on the PATH")
        names = self.conn.execute(
            "SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute "
            "WHERE attrelid = 'holdfast.job_history'::regclass AND attnum > 0 AND NOT attisdropped "
            "AND attname <> 'late'"
        ).fetchone()
        assert names is not None
        query = (
            f"SELECT {names[0]} FROM holdfast.job_history WHERE finished_at >= '{DAY}' AND finished_at < '{NEXT_DAY}'"
        )
        begun = time.perf_counter()
        subprocess.run(
            [psql, "-X", "-q", "-c", "SET timezone = 'UTC'", "-c", f"COPY ({query}) TO STDOUT", self.url],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        return time.perf_counter() - begun

    def export(self) -> Exported:
        found = Exported()
        upload = asyncio.run(self.export_once(found.step))
        assert upload.rows == self._rows
        found.bytes = upload.bytes
        return found

    async def export_once(
        self, on_step: Callable[[str], None], *, on_rows: Callable[[int], None] | None = None
    ) -> Upload:
        """Export the day as if it had not been. `on_rows`: called with the number of rows so far."""
        period = Period("job_history", DAY, NEXT_DAY, 1, "holdfast.job_history", "finished_at", self._rows)
        async with await psycopg.AsyncConnection.connect(self.url, autocommit=True) as conn:
            await conn.execute("DELETE FROM holdfast.archive_exports")
            export.on_step = on_step
            try:
                exporter = export.Exporter(conn, self.url, self._location, background=True)
                return await exporter.export(period, on_rows=on_rows)
            finally:
                export.on_step = None


class Drain(NamedTuple):
    """A worker that drained its jobs beside exports."""

    jobs: float
    """The rate of the worker, in jobs a second."""
    rows: int
    """That the exports wrote in the same time."""
    seconds: float


class RowsExported:
    """The rows of exports one after another, each of which reports its own number so far."""

    def __init__(self) -> None:
        self.total = 0
        self._last = 0

    def report(self, rows: int) -> None:
        # An export that has just begun has fewer rows than the one before had at its end.
        self.total += rows - self._last if rows >= self._last else rows
        self._last = rows


def _drains(day: Day, jobs: int, *, rounds: int) -> tuple[list[float], list[Drain]]:
    """Return the rates of a worker alone, and those of one beside exports."""
    alone: list[float] = []
    beside: list[Drain] = []
    for turn in range(rounds):
        progress(f"archive: worker, round {turn + 1}")
        _load(day, jobs)
        alone.append(asyncio.run(drain_with_worker(day.url, jobs)))
        _load(day, jobs)
        beside.append(asyncio.run(_drain_beside(day, jobs)))
    return alone, beside


def _load(day: Day, jobs: int) -> None:
    load_jobs(day.conn, jobs)
    checkpoint(day.conn)


async def _drain_beside(day: Day, jobs: int) -> Drain:
    running = asyncio.Event()
    exported = RowsExported()

    async def exports() -> None:
        while True:
            await day.export_once(
                lambda step: running.set() if step == "rows" else None,
                on_rows=exported.report,
            )

    task = asyncio.create_task(exports())
    begun = asyncio.create_task(running.wait())
    try:
        await asyncio.wait({task, begun}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task
        before, since = exported.total, time.perf_counter()
        rate = await drain_with_worker(day.url, jobs)
        return Drain(rate, exported.total - before, time.perf_counter() - since)
    finally:
        begun.cancel()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def _load_day(conn: psycopg.Connection[Any], rows: int) -> None:
    """Make a closed day with completed jobs, in the order in which they finished."""
    part = f"holdfast.job_history_{DAY:%Y%m%d}"
    like = "LIKE holdfast.job_history INCLUDING DEFAULTS INCLUDING CONSTRAINTS"
    bounds = f"FROM ('{DAY} 00:00+00') TO ('{NEXT_DAY} 00:00+00')"
    conn.execute("SET maintenance_work_mem = '512MB'")
    conn.execute(f"DROP TABLE IF EXISTS {part}".encode(), prepare=False)
    conn.execute(f"CREATE TABLE {part} ({like})".encode(), prepare=False)
    progress(f"loading {rows:,} rows into {part}")
    for begun in range(0, rows, CHUNK):
        conn.execute(
            f"""
            INSERT INTO {part} (id, created_at, available_at, finished_at, worker_id, status, attempt,
                max_attempts, priority, queue, kind, payload)
            SELECT nextval('holdfast.job_id_seq'), at - random() * interval '1 minute',
                at - random() * interval '1 minute', at, n % 8, 'completed', 1 + (n % 50 = 0)::int, 5, 3 + n % 4,
                (ARRAY['default', 'mail', 'billing'])[1 + n % 3],
                (ARRAY['receipt.send', 'invoice.charge', 'search.index', 'webhook.deliver'])[1 + n % 4],
                json_build_object('invoice_id', n, 'customer', md5(n::text), 'currency', 'EUR',
                    'amount', round((random() * 1000)::numeric, 2))
            FROM generate_series({begun + 1}, {min(begun + CHUNK, rows)}) AS n,
                LATERAL (SELECT '{DAY} 00:00+00'::timestamptz + n * interval '24 hours' / {rows + 1}) AS day (at)
            """.encode(),
            prepare=False,
        )
    progress("indexes, vacuum and checkpoint")
    attach = f"ALTER TABLE holdfast.job_history_days ATTACH PARTITION {part} FOR VALUES {bounds}"
    conn.execute(attach.encode(), prepare=False)
    conn.execute(f"VACUUM (FREEZE, ANALYZE) {part}".encode(), prepare=False)
    checkpoint(conn)


def _peak_of_child() -> float:
    """Return the greatest memory that a process of an export has had so far, in megabytes."""
    peak = 0.0
    for children in Path("/proc/self/task").glob("*/children"):
        for pid in children.read_text().split():
            with suppress(OSError):
                process = Path("/proc", pid)
                if b"holdfast._archive.child" in (process / "cmdline").read_bytes():
                    lines = (process / "status").read_text().splitlines()
                    peak = max(peak, *(float(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")))
    return peak
