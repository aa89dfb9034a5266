"""A file with more rows than the database is not replaced: it may be the only copy of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import obstore
import pytest

from holdfast._archive.restore import TargetTable, restore
from holdfast._drivers import run_sync
from holdfast._model.errors import HoldfastError
from holdfast._store.archive import export_as_it_is
from holdfast._store.chain import delete_chains
from tests.kit.archive_tables import TENDERS, fill, months, ready

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from holdfast._store.archive import Export
    from tests.kit.archive import History


def content(bucket: ObjectStore, export: Export) -> bytes:
    return bytes(obstore.get(bucket, str(export.object)).bytes())


def lose(history: History, day: str, rows: int) -> None:
    """Delete rows as nothing of Holdfast does."""
    part = f"holdfast.job_history_{day.replace('-', '')}"
    some = f"SELECT id FROM {part} ORDER BY id LIMIT {rows}"
    history.conn.execute(f"DELETE FROM {part} WHERE id IN ({some})".encode())


def ids(history: History) -> list[int]:
    return [id_ for (id_,) in history.conn.execute("SELECT id FROM holdfast.job_history ORDER BY id")]


@pytest.mark.nightly(daily=["0"])
@pytest.mark.parametrize("left", [7, 0])
async def test_a_day_with_fewer_rows_than_its_file_is_kept_and_so_is_the_file(
    history: History, bucket: ObjectStore, left: int
) -> None:
    day = history.jobs_of(100, 10)
    history.remember("job_history")
    await history.export()
    [verified] = await history.exports()
    file = content(bucket, verified)
    lose(history, day, 10 - left)
    for _ in range(2):
        assert await history.cleanup() == {"periods_incomplete": 1}
        assert await history.export() == {}
    [export] = await history.exports()
    assert (export.state, export.rows, export.object) == ("verified", 10, verified.object)
    assert export.error == (
        f"{left} rows are in the day, and 10 in its file: both are kept. If the rows were deleted on purpose, replace "
        f"the file with `holdfast archive export job_history --day {day}`"
    )
    assert content(bucket, export) == file
    assert len(ids(history)) == left, "the day is attached again"

    # When the rows are there again, it is dropped.
    restore(history.conn, bucket, export, TargetTable("archive", "restored"))
    assert history.differences("public.job_history_before", "archive.restored") == 0
    history.conn.execute(f"DELETE FROM holdfast.job_history_{day.replace('-', '')}".encode())
    history.conn.execute("INSERT INTO holdfast.job_history SELECT * FROM public.job_history_before")
    assert await history.cleanup() == {"periods_dropped": 1}
    [export] = await history.exports()
    assert (export.state, export.error, export.incomplete) == ("dropped", None, False)


@pytest.mark.nightly
async def test_a_person_replaces_the_file(history: History, bucket: ObjectStore) -> None:
    day = history.jobs_of(100, 10)
    await history.export()
    lose(history, day, 3)
    [verified] = await history.exports()
    assert run_sync(history.conn, export_as_it_is("job_history", verified.starts_on)) == [], "it is not incomplete yet"
    assert await history.cleanup() == {"periods_incomplete": 1}
    assert run_sync(history.conn, export_as_it_is("job_history", verified.starts_on)) == [1]
    history.remember("job_history")
    assert (await history.export())["rows_exported"] == 7
    assert await history.cleanup() == {"periods_dropped": 1}
    [export] = await history.exports()
    restore(history.conn, bucket, export, TargetTable("archive", "restored"))
    assert history.differences("public.job_history_before", "archive.restored") == 0


@pytest.mark.nightly
async def test_a_day_whose_file_is_gone_and_that_has_lost_rows_is_left_to_a_person(
    history: History, bucket: ObjectStore
) -> None:
    day = history.jobs_of(100, 10)
    await history.export()
    [verified] = await history.exports()
    obstore.delete(bucket, str(verified.object))
    lose(history, day, 1)
    assert await history.cleanup() == {"periods_incomplete": 1}
    [export] = await history.exports()
    assert export.state == "verified"
    assert f"{verified.object} is no longer in the bucket, and 9 rows are in the day, and 10 in its file: both" in str(
        export.error
    )
    # Nothing is exported of a day that is not there.
    history.conn.execute(f"DROP TABLE holdfast.job_history_{day.replace('-', '')}".encode())
    assert run_sync(history.conn, export_as_it_is("job_history", verified.starts_on)) == []
    assert await history.cleanup() == {"periods_incomplete": 1}


@pytest.mark.nightly
async def test_rows_that_are_lost_before_a_file_is_replaced(history: History, bucket: ObjectStore) -> None:
    day, other = history.jobs_of(100, 10), history.jobs_of(99, 5)
    await history.export()
    # Both days have a row more, and are to be exported anew.
    history.add(day, 1)
    history.add(other, 1)
    assert await history.cleanup() == {"periods_changed": 2}
    before = await history.exports()
    files = [content(bucket, export) for export in before]
    lose(history, day, 2)
    with pytest.raises(
        HoldfastError, match=r"1 exports failed: job_history of .*: 9 rows are in the day, and 10 in its"
    ):
        await history.export()
    assert await history.export() == {}, "it is not read every night"
    older, newer = await history.exports()
    assert (older.state, older.incomplete, older.rows) == ("exporting", True, 10)
    assert (newer.state, newer.incomplete, newer.rows) == ("verified", False, 6)
    assert content(bucket, older) == files[1]
    assert run_sync(history.conn, export_as_it_is("job_history", older.starts_on)) == [1]
    assert (await history.export())["rows_exported"] == 9
    assert await history.cleanup() == {"periods_dropped": 2}


# Deleted on purpose.


async def test_a_chain_that_is_deleted_leaves_the_file_too(history: History, bucket: ObjectStore) -> None:
    history.jobs_of(100, 10)
    await history.export()
    gone = ids(history)[:2]
    assert run_sync(history.conn, delete_chains(gone)) == gone
    history.remember("job_history")
    assert await history.cleanup() == {"periods_changed": 1}
    [export] = await history.exports()
    assert export.error == (
        "8 rows are in the day, and 10 in its file, of which delete_chains deleted 2: it is exported anew"
    )
    # Also of a day that is exported anew.
    more = ids(history)[:1]
    assert run_sync(history.conn, delete_chains(more)) == more
    history.conn.execute("DELETE FROM public.job_history_before WHERE id = %s", more)
    assert (await history.export())["rows_exported"] == 7
    assert await history.cleanup() == {"periods_dropped": 1}
    [export] = await history.exports()
    assert (export.state, export.rows) == ("dropped", 7)
    restore(history.conn, bucket, export, TargetTable("archive", "restored"))
    assert history.differences("public.job_history_before", "archive.restored") == 0


@pytest.mark.nightly
async def test_a_deleted_chain_hides_neither_a_late_row_nor_a_lost_one(history: History) -> None:
    day = history.jobs_of(100, 10)
    await history.export()
    first, second = ids(history)[:2]
    assert run_sync(history.conn, delete_chains([first])) == [first]
    history.add(day, 1)
    assert await history.cleanup() == {"periods_changed": 1}, "as many rows as before, and not the same"
    assert (await history.export())["rows_exported"] == 10
    assert run_sync(history.conn, delete_chains([second])) == [second]
    lose(history, day, 1)
    assert await history.cleanup() == {"periods_incomplete": 1}


@pytest.mark.nightly
async def test_each_family_counts_its_own_days(history: History) -> None:
    day = history.day(100, 1, families=["job_history", "job_failed", "attempt"])
    [job] = ids(history)
    for at in (f"'{day} 10:00+00'", f"'{day} 10:00+00'::timestamptz + interval '1 day'"):
        late = "true" if "1 day" in at else "NULL"
        history.conn.execute(
            "INSERT INTO holdfast.attempt (job_id, attempt, ended_at, outcome, late) "
            f"VALUES (%s, 1, {at}, 'retry', {late})".encode(),
            [job],
        )
    history.conn.execute("UPDATE holdfast.retention SET archived = true")
    for family in ("job_history", "job_failed", "attempt"):
        history.conn.execute(
            "INSERT INTO holdfast.archive_exports (source, starts_on, ends_on, state, started_at, lock_token, rows, "
            "verified_at, drop_eligible_at) VALUES (%s, %s, %s, 'verified', now(), 1, 1, now(), now())",
            [family, day, day],
        )
    assert run_sync(history.conn, delete_chains([job])) == [job]
    counted = history.conn.execute("SELECT source, deleted FROM holdfast.archive_exports ORDER BY source").fetchall()
    assert counted == [("attempt", 1), ("job_failed", 0), ("job_history", 1)]


# Months of the application.


@pytest.mark.nightly
async def test_a_month_with_fewer_rows_than_its_file_is_kept_and_so_is_the_file(
    tenders: History, bucket: ObjectStore
) -> None:
    await tenders.cleanup(TENDERS)
    await tenders.export(TENDERS)
    february, january = await tenders.exports("public.tenders")
    file = content(bucket, february)
    tenders.conn.execute("DELETE FROM archive.tenders_202402 WHERE id = 11")
    ready(tenders)
    assert await tenders.cleanup(TENDERS) == {"periods_dropped": 1, "periods_incomplete": 1}
    assert await tenders.export(TENDERS) == {}
    [export] = [export for export in await tenders.exports("public.tenders") if export.incomplete]
    assert (export.starts_on, export.state) == (february.starts_on, "verified")
    assert export.error == (
        "9 rows are in the month, and 10 in its file: both are kept. If the rows were deleted on purpose, replace the "
        "file with `holdfast archive export public.tenders --day 2024-02-01 --app module:attribute`"
    )
    assert content(bucket, export) == file
    # Others that come do not stand in for the lost one.
    fill(tenders, 500, "'2024-02-20'", rows=1)
    assert await tenders.cleanup(TENDERS) == {"rows_moved": 1, "periods_incomplete": 1}
    assert await tenders.export(TENDERS) == {}
    assert content(bucket, export) == file
    assert run_sync(tenders.conn, export_as_it_is("public.tenders", february.starts_on)) == [1]
    assert (await tenders.export(TENDERS))["rows_exported"] == 10
    ready(tenders)
    assert await tenders.cleanup(TENDERS) == {"periods_dropped": 1}
    assert months(tenders) == {}
    assert january.object != february.object


@pytest.mark.nightly
async def test_a_month_whose_file_is_gone_and_that_has_lost_rows_is_left_to_a_person(
    tenders: History, bucket: ObjectStore
) -> None:
    await tenders.cleanup(TENDERS)
    await tenders.export(TENDERS)
    february, january = await tenders.exports("public.tenders")
    for export in (february, january):
        obstore.delete(bucket, str(export.object))
    tenders.conn.execute("DELETE FROM archive.tenders_202402 WHERE id = 11")
    ready(tenders)
    assert await tenders.cleanup(TENDERS) == {"periods_changed": 1, "periods_incomplete": 1}
    assert (await tenders.export(TENDERS))["rows_exported"] == 10
    february, january = await tenders.exports("public.tenders")
    assert (february.incomplete, january.state) == (True, "verified")
    assert str(february.error).startswith(f"{february.object} is no longer in the bucket, and 9 rows are in the month")
