"""A closed day becomes a file in the bucket, is read back, dropped, and restored row for row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import obstore

from holdfast._archive.restore import TargetTable, restore

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from tests.archive.conftest import History


async def test_a_day_is_exported_verified_dropped_and_restored(history: History, bucket: ObjectStore) -> None:
    day = history.day(100, jobs=1000)
    history.conn.execute("CREATE TABLE public.before AS SELECT * FROM holdfast.job_history")
    counts = await history.export()
    assert counts["rows_exported"] == 1000
    [export] = await history.exports()
    assert (export.state, export.rows, str(export.starts_on)) == ("verified", 1000, day)
    names = [entry["path"] for entry in obstore.list(bucket).collect()]
    assert len(names) == 2 + 5  # a file and its manifest, and the manifests of five families without rows
    assert await history.cleanup() == {"periods_dropped": 6}
    assert history.value("SELECT count(*) FROM holdfast.job_history") == 0
    [export] = await history.exports()
    assert export.state == "dropped"
    assert restore(history.conn, bucket, export, TargetTable("archive", "restored")) == 1000
    columns = "id, created_at, finished_at, status::text, queue, kind, payload::text, blockers"
    for one, other in (("public.before", "archive.restored"), ("archive.restored", "public.before")):
        query = f"SELECT count(*) FROM (SELECT {columns} FROM {one} EXCEPT ALL SELECT {columns} FROM {other}) AS x"
        assert history.value(query) == 0
