"""A process that is killed at any step loses no day, and stores none twice: the next tick finishes its work."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
import psycopg
import pytest

from holdfast._archive import cleanup, export
from holdfast._archive.location import ArchiveError
from holdfast._archive.restore import TargetTable, restore
from tests.archive.killed import children
from tests.kit.archive import stored
from tests.kit.waiting import until

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from tests.kit.archive import History

STEPS = ("started", "rows", "uploaded", "recorded", "verified", "done")
ROOT = Path(__file__).parents[2]
# Hexadecimal text that compresses by half: a file of two parts of an upload.
NOISE = "(SELECT to_json(string_agg(md5(random()::text), '')) FROM generate_series(1, 8000 + 0 * n))"


async def kill(history: History, day: str, step: str | None) -> list[int]:
    """Run a process that kills itself at a step, and return the ids of its children."""
    place = history.location
    request = {
        "url": history.url,
        "location": [place.bucket, place.region, place.endpoint],
        "day": day,
        "step": step,
        "nth": 3 if step == "rows" else 1,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.archive.killed", stdin=-1, stdout=-1, cwd=ROOT
    )
    out, _ = await process.communicate(json.dumps(request).encode() + b"\n")
    assert process.returncode == -signal.SIGKILL
    return list(json.loads(out))


def runs(pid: int) -> bool:
    """Return whether a process runs; one that has ended and was not waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.nightly
async def test_killed_at_every_step(history: History, bucket: ObjectStore) -> None:
    days = {step: history.jobs_of(100 + n, 10) for n, step in enumerate(STEPS)}
    history.add(days["rows"], 100, payload=NOISE)
    history.remember("job_history")
    killed = await asyncio.gather(*(kill(history, day, step) for step, day in days.items()))
    assert killed[STEPS.index("rows")], "it had a child"
    for pid in {pid for pids in killed for pid in pids}:
        await until(lambda pid=pid: not runs(pid))  # type: ignore[misc]

    def files(day: str) -> list[str]:
        return [name.rpartition("/")[2] for name in stored(bucket) if f"day={day}/" in name]

    both = ["1.json", "1.parquet"]
    assert files(days["started"]) == []
    assert files(days["rows"]) == [], "an upload that was cut off is not visible"
    assert [files(days[step]) for step in ("uploaded", "recorded", "verified", "done")] == [both] * 4
    states = {str(export.starts_on): export.state for export in await history.exports()}
    wanted = ["exporting", "exporting", "exporting", "uploaded", "uploaded", "verified"]
    assert [states[day] for day in days.values()] == wanted
    assert await history.cleanup() == {"periods_dropped": 1}, "only what is verified is dropped"
    assert history.value("SELECT count(*) FROM holdfast.job_history") == 150
    # The others are finished by the next ticks, each under its one name.
    history.expire_leases()
    assert (await history.export())["periods_exported"] == 5
    assert await history.cleanup() == {"periods_dropped": 5}
    assert [files(day) for day in days.values()] == [both] * 6
    assert len(stored(bucket)) == 2 * 6
    for each in await history.exports():
        restore(history.conn, bucket, each, TargetTable("archive", "restored"))
    assert history.differences("public.job_history_before", "archive.restored") == 0


async def finish(history: History, bucket: ObjectStore, days: list[str]) -> None:
    """Run the next ticks: every day is verified once, dropped, and restored as it was."""
    history.expire_leases()
    await history.export()
    exports = await history.exports()
    assert [export.state for export in exports if export.state != "dropped"] == ["verified"] * len(days)
    await history.cleanup()
    exports = await history.exports()
    assert sorted(str(export.starts_on) for export in exports if export.state == "dropped") == sorted(days)
    assert len(stored(bucket)) == 2 * len(exports)
    for each in exports:
        restore(history.conn, bucket, each, TargetTable("archive", "restored"))
    assert history.differences("public.job_history_before", "archive.restored") == 0


async def test_a_child_that_is_killed(history: History, bucket: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    day = history.jobs_of(100, 100)
    history.remember("job_history")

    def strike(step: str) -> None:
        # Before it uploads, the child reads the record of its export. The lock lets it come no further than that.
        if step == "started":
            history.conn.execute("BEGIN; LOCK TABLE holdfast.archive_exports")
        elif step == "rows":
            for pid in children():
                if b"holdfast._archive.child" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
            history.conn.execute("ROLLBACK")

    [period] = await history.closed()
    with monkeypatch.context() as patch:
        patch.setattr(export, "on_step", strike)
        async with history.exporter() as exporter:
            with pytest.raises(ArchiveError, match="killed by signal 9"):
                await exporter.export(period)
    [failed] = await history.exports()
    assert (failed.state, failed.running) == ("exporting", False)
    assert "killed by signal 9" in (failed.error or "")
    assert stored(bucket) == []
    await finish(history, bucket, [day])


@pytest.mark.nightly
async def test_a_stopped_export_releases_its_period(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    history.jobs_of(100, 1)
    started = asyncio.Event()
    monkeypatch.setattr(export, "on_step", lambda _: started.set())
    task = asyncio.create_task(history.export())
    await started.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    [stopped] = await history.exports()
    assert (stopped.running, stopped.error) == (False, "the export was stopped")
    assert len(await history.closed()) == 1


async def test_killed_between_detaching_and_dropping(history: History, bucket: ObjectStore) -> None:
    day = history.jobs_of(100, 10)
    history.remember("job_history")
    await history.export()
    await kill(history, day, None)
    assert history.value("SELECT count(*) FROM holdfast.job_history") == 0
    part = f"holdfast.job_history_{day.replace('-', '')}"
    assert history.value(f"SELECT count(*) FROM {part}") == 10

    # If the file is gone meanwhile, the day is attached again, exported, and dropped.
    [verified] = await history.exports()
    obstore.delete(bucket, str(verified.object))
    assert await history.cleanup() == {"periods_changed": 1}
    assert history.value("SELECT count(*) FROM holdfast.job_history") == 10
    await finish(history, bucket, [day])


@pytest.mark.nightly
async def test_a_connection_that_is_lost_during_a_drop(history: History, bucket: ObjectStore) -> None:
    day = history.jobs_of(100, 10)
    history.remember("job_history")
    await history.export()
    part = f"holdfast.job_history_{day.replace('-', '')}"
    waiting = (
        "SELECT pid FROM pg_stat_activity WHERE query LIKE 'SELECT holdfast.drop_archived%' AND pid <> pg_backend_pid()"
    )
    async with history.connected() as reader:
        history.conn.execute(f"ALTER TABLE holdfast.job_history_days DETACH PARTITION {part} CONCURRENTLY")
        await reader.execute("BEGIN")
        await reader.execute(f"LOCK TABLE {part} IN ACCESS SHARE MODE".encode())
        drop = asyncio.create_task(history.cleanup())
        await until(lambda: history.value(waiting))
        assert history.value(f"SELECT pg_terminate_backend(({waiting}))")
        with pytest.raises(psycopg.OperationalError):
            await drop
        await reader.execute("COMMIT")
    assert history.value(f"SELECT count(*) FROM {part}") == 10
    assert [export.state for export in await history.exports()] == ["verified"]
    await finish(history, bucket, [day])


@pytest.mark.nightly
async def test_detaching_that_was_given_up_is_finished(
    history: History, bucket: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    day = history.jobs_of(100, 10)
    history.remember("job_history")
    await history.export()
    part = f"holdfast.job_history_{day.replace('-', '')}"
    async with history.connected() as reader:
        await reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await reader.execute("SELECT count(*) FROM holdfast.job_history")
        with monkeypatch.context() as patch:
            patch.setattr(cleanup, "DETACH_SECONDS", 0.5)
            assert await history.cleanup() == {"periods_kept": 1}
        assert history.value(f"SELECT inhdetachpending FROM pg_inherits WHERE inhrelid = '{part}'::regclass") is True
        await reader.execute("COMMIT")
    await finish(history, bucket, [day])
