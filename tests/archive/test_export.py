"""A closed day becomes a file in the bucket, is read back, dropped, and restored row for row."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
import pytest

from holdfast._archive import export
from holdfast._archive.restore import TargetTable, restore
from tests.archive.killed import children

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from tests.kit.archive import History


async def test_a_day_is_exported_verified_dropped_and_restored(history: History, bucket: ObjectStore) -> None:
    day = history.day(100, jobs=1000)
    history.conn.execute("CREATE TABLE public.before AS SELECT * FROM holdfast.job_history")
    counts = await history.export()
    assert counts["rows_exported"] == 1000
    [done] = await history.exports()
    assert (done.state, done.rows, str(done.starts_on)) == ("verified", 1000, day)
    names = [entry["path"] for entry in obstore.list(bucket).collect()]
    assert len(names) == 2 + 5  # a file and its manifest, and the manifests of five families without rows
    assert await history.cleanup() == {"periods_dropped": 6}
    assert history.value("SELECT count(*) FROM holdfast.job_history") == 0
    [done] = await history.exports()
    assert done.state == "dropped"
    assert restore(history.conn, bucket, done, TargetTable("archive", "restored")) == 1000
    columns = "id, created_at, finished_at, status::text, queue, kind, payload::text, blockers"
    for one, other in (("public.before", "archive.restored"), ("archive.restored", "public.before")):
        query = f"SELECT count(*) FROM (SELECT {columns} FROM {one} EXCEPT ALL SELECT {columns} FROM {other}) AS x"
        assert history.value(query) == 0


async def test_one_process_exports_all_periods_of_a_run(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    for days_ago in (100, 101, 102):
        history.jobs_of(days_ago, 1)
    pids: list[int] = []

    monkeypatch.setattr(export, "on_step", lambda step: pids.extend(exporting()) if step == "uploaded" else None)
    async with history.exporter() as exporter:
        first, second, third = await history.closed()
        await exporter.export(first)
        await exporter.export(second)
        # A process that has ended is replaced.
        assert exporter._child is not None
        os.kill(pids[0], signal.SIGKILL)
        await exporter._child._process.wait()
        await exporter.export(third)
    assert pids[0] == pids[1] != pids[2]
    assert exporting() == []
    assert [each.state for each in await history.exports()] == ["verified"] * 3


def exporting() -> list[int]:
    return [pid for pid in children() if b"_archive.child" in Path(f"/proc/{pid}/cmdline").read_bytes()]


class Seen(Exception):  # noqa: N818 - not an error
    """The process was looked at."""


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="only Linux has this priority")
@pytest.mark.parametrize("background", [True, False])
async def test_an_export_in_the_background_gives_way_to_every_other_process(
    history: History, background: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    history.jobs_of(100, 10)
    [period] = await history.closed()

    def look(step: str) -> None:
        if step == "rows":
            [pid] = exporting()
            raise Seen(os.sched_getscheduler(pid), os.getpriority(os.PRIO_PROCESS, pid))

    monkeypatch.setattr(export, "on_step", look)
    async with history.connected() as conn:
        # Its end is not waited for: it would come only when no other test runs.
        with pytest.raises(Seen) as seen:
            async with export.Exporter(conn, history.url, history.location, background=background) as exporter:
                await exporter.export(period)
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert seen.value.args == ((os.SCHED_IDLE, own) if background else (os.SCHED_OTHER, min(19, own + 10)))
