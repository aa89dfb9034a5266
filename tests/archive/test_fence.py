"""One process exports a period. Rows that come late are not lost: the day is exported anew, or gets another part."""

from __future__ import annotations

from typing import TYPE_CHECKING

import obstore
import pytest

from holdfast._archive.export import ExportTaken
from holdfast._archive.location import ArchiveError
from holdfast._archive.restore import TargetTable, restore
from holdfast._drivers import run
from holdfast._store.archive import (
    Upload,
    record_export_error,
    record_upload,
    record_verified,
    report_export,
    start_export,
)
from tests.kit.archive import stored

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from tests.kit.archive import History


async def test_one_process_exports_and_a_stale_one_records_nothing(history: History, bucket: ObjectStore) -> None:
    history.jobs_of(100, 10)
    [period] = await history.closed()
    async with history.connected() as conn, history.exporter() as exporter:
        stale = await run(conn, start_export(period))
        assert stale is not None
        assert await history.closed() == []
        with pytest.raises(ExportTaken):
            await exporter.export(period)
        assert await history.export() == {}

        # Its lease ends: another process takes over, and is not disturbed by the first.
        history.expire_leases()
        assert await run(conn, report_export(period, stale, rows_done=1))
        history.expire_leases()
        assert await history.closed() == [period]
        upload = await exporter.export(period)
        other = Upload("x", 1, 1, 1, 1, "x")
        assert not await run(conn, report_export(period, stale, rows_done=1))
        assert not await run(conn, record_upload(period, stale, other, schema_version=1))
        assert not await run(conn, record_verified(period, stale, etag="x"))
        assert not await run(conn, record_export_error(period, stale, "x", incomplete=False))
        [export] = await history.exports()
        assert (export.state, export.object, export.rows) == ("verified", upload.object, 10)

        # Its child does not replace the file either.
        before = obstore.head(bucket, str(export.object))
        with pytest.raises(ArchiveError, match="taken over"):
            async with exporter._asked(exporter._request(period, stale, "c0ffee")) as lines:
                [line async for line in lines]
        after = obstore.head(bucket, str(export.object))
        assert (before["e_tag"], before["last_modified"]) == (after["e_tag"], after["last_modified"])
        assert len(stored(bucket)) == 2
        with pytest.raises(ExportTaken):
            await exporter.export(period)


async def test_rows_that_come_late_are_exported_too(history: History, bucket: ObjectStore) -> None:
    day = history.jobs_of(100, 10)
    await history.export()
    [first] = await history.exports()

    # After the verification: the drop counts, and the day goes to the same name once more.
    history.add(day, 1)
    assert await history.cleanup() == {"periods_changed": 1}
    [export] = await history.exports()
    assert export.error == "11 rows are in the day, and 10 in its file: it is exported anew"
    assert history.value("SELECT count(*) FROM holdfast.job_history") == 11

    # In the partition for rows whose day had none: the family waits until maintenance has moved them.
    history.add(day, 1, late="true")
    assert await history.closed() == []
    assert await history.export() == {}
    history.move_late()
    assert [period.source for period in await history.closed()] == ["job_history"]
    assert (await history.export())["rows_exported"] == 12
    assert await history.cleanup() == {"periods_dropped": 1}
    [export] = await history.exports()
    assert (export.state, export.object, export.part, export.rows) == ("dropped", first.object, 1, 12)

    # After the drop: the day has a partition again, and gets a second file.
    history.add(day, 3, late="true")
    history.move_late()
    history.remember("job_history")
    assert (await history.export())["rows_exported"] == 3
    assert await history.cleanup() == {"periods_dropped": 1}
    one, two = sorted(await history.exports(), key=lambda export: export.part)
    assert [(e.part, e.state, e.rows) for e in (one, two)] == [(1, "dropped", 12), (2, "dropped", 3)]
    assert one.object != two.object
    assert len(stored(bucket)) == 4
    restore(history.conn, bucket, two, TargetTable("archive", "second"))
    assert history.differences("public.job_history_before", "archive.second") == 0


async def test_a_day_with_a_run_that_has_not_ended_is_not_closed(history: History) -> None:
    day = history.day(100, families=["run"])
    history.conn.execute(f"INSERT INTO holdfast.run (started_at, runner) VALUES ('{day} 23:59+00', 'nightly')")
    assert await history.closed() == []
    history.conn.execute("UPDATE holdfast.run SET finished_at = now(), outcome = 'completed'")
    assert [period.source for period in await history.closed()] == ["run"]
