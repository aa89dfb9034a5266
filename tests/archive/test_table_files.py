"""A month of a table becomes a file in the bucket, is dropped after its time, and is restored row for row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast._archive.months import closed_months
from holdfast._archive.restore import TargetTable, restore
from holdfast._drivers import run
from holdfast._engine.runner import Budget, Tick
from holdfast._store.archive import Upload, record_upload, start_export
from holdfast.archive import Archive, ArchiveError
from tests.kit.archive_tables import TENDERS, count, fill, months, move, ready

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from tests.kit.archive import History


async def test_a_closed_month_is_exported_verified_and_dropped_after_its_time(tenders: History) -> None:
    fill(tenders, 200, "date_trunc('month', now(), 'UTC') - interval '12 months' - interval '1 hour'", rows=1)
    assert (await tenders.cleanup(TENDERS))["rows_moved"] == 21
    assert (await tenders.export(TENDERS))["periods_exported"] == 3
    exports = await tenders.exports("public.tenders")
    states = [(export.state, export.rows, export.part) for export in exports]
    assert states == [("verified", n, 1) for n in (1, 10, 10)]
    assert exports[-1].object is not None
    assert exports[-1].object.endswith("/public.tenders/month=2024-01/1.parquet")
    assert (exports[-1].min_id, exports[-1].max_id) == (1, 10)
    days = tenders.value(
        "SELECT extract(day FROM drop_eligible_at - verified_at)::int FROM holdfast.archive_exports LIMIT 1"
    )
    assert days == 30
    assert await tenders.cleanup(TENDERS) == {}
    ready(tenders)
    assert await tenders.cleanup(TENDERS) == {"periods_dropped": 3}
    assert months(tenders) == {}
    assert {export.state for export in await tenders.exports("public.tenders")} == {"dropped"}


@pytest.mark.nightly
async def test_a_month_that_is_not_over_for_all_its_rows_is_not_exported(tenders: History) -> None:
    fill(tenders, 200, "now() - interval '12 months' - interval '1 second'", rows=1)
    await tenders.cleanup(TENDERS)
    assert (await tenders.export(TENDERS))["periods_exported"] == 2
    assert count(tenders, "archive.tenders") == 21


@pytest.mark.nightly
async def test_rows_that_come_after_the_drop_become_another_part(tenders: History, bucket: ObjectStore) -> None:
    await tenders.cleanup(TENDERS)
    await tenders.export(TENDERS)
    ready(tenders)
    await tenders.cleanup(TENDERS)
    fill(tenders, 500, "'2024-02-20'", rows=3)
    assert (await tenders.cleanup(TENDERS))["rows_moved"] == 3
    assert (await tenders.export(TENDERS))["rows_exported"] == 3
    parts = [export for export in await tenders.exports("public.tenders") if export.starts_on.month == 2]
    assert [(export.part, export.state, export.rows) for export in parts] == [(1, "dropped", 10), (2, "verified", 3)]
    restored = [restore(tenders.conn, bucket, export, TargetTable("public", "restored")) for export in parts]
    assert restored == [10, 3]
    ready(tenders)
    assert await tenders.cleanup(TENDERS) == {"periods_dropped": 1}


@pytest.mark.nightly
async def test_a_month_that_changed_after_the_export_is_exported_anew(tenders: History) -> None:
    await tenders.cleanup(TENDERS)
    await tenders.export(TENDERS)
    fill(tenders, 500, "'2024-02-20'", rows=3)
    assert await tenders.cleanup(TENDERS) == {"rows_moved": 3}
    ready(tenders)
    assert await tenders.cleanup(TENDERS) == {"periods_dropped": 1}
    assert months(tenders) == {"archive.tenders_202402": 13}
    assert (await tenders.export(TENDERS))["rows_exported"] == 13
    ready(tenders)
    assert await tenders.cleanup(TENDERS) == {"periods_dropped": 1}
    found = await tenders.exports("public.tenders")
    assert [(export.part, export.rows, export.state) for export in found] == [(1, 13, "dropped"), (1, 10, "dropped")]


@pytest.mark.nightly
async def test_a_month_with_as_many_rows_as_before_is_exported_anew(tenders: History, bucket: ObjectStore) -> None:
    await tenders.cleanup(TENDERS)
    await tenders.export(TENDERS)
    # One row is deleted, and another one comes late.
    tenders.conn.execute("DELETE FROM archive.tenders_202402 WHERE id = 11")
    fill(tenders, 500, "'2024-02-20'", rows=1)
    assert await tenders.cleanup(TENDERS) == {"rows_moved": 1}
    ready(tenders)
    assert await tenders.cleanup(TENDERS) == {"periods_dropped": 1}
    assert months(tenders) == {"archive.tenders_202402": 10}
    february = (await tenders.exports("public.tenders"))[0]
    assert (february.state, february.error) == ("exporting", "rows were moved into the month: it is exported anew")
    assert (await tenders.export(TENDERS))["rows_exported"] == 10
    ready(tenders)
    assert await tenders.cleanup(TENDERS) == {"periods_dropped": 1}
    february = (await tenders.exports("public.tenders"))[0]
    restore(tenders.conn, bucket, february, TargetTable("public", "restored"))
    assert count(tenders, "restored WHERE id = 501") == 1


@pytest.mark.nightly
async def test_rows_that_are_moved_during_an_export_are_exported_too(tenders: History) -> None:
    await tenders.cleanup(TENDERS)
    async with tenders.connected() as conn:
        period = (await closed_months(conn, TENDERS))[-1]
        token = await run(conn, start_export(period))
        assert token is not None
        fill(tenders, 500, "'2024-02-20'", rows=1)
        assert await move(tenders) == 1
        upload = Upload("x", 10, 1, 1, 1, "x")
        assert not await run(conn, record_upload(period, token, upload, schema_version=1))
    assert (await tenders.export(TENDERS))["rows_exported"] == 21


@pytest.mark.nightly
async def test_a_month_that_is_read_is_dropped_later(tenders: History) -> None:
    await tenders.cleanup(TENDERS)
    await tenders.export(TENDERS)
    ready(tenders)
    with psycopg.connect(tenders.url) as reader:
        reader.execute("SELECT count(*) FROM archive.tenders_202401")
        assert await tenders.cleanup(TENDERS) == {"periods_kept": 1, "periods_dropped": 1}
    assert await tenders.cleanup(TENDERS) == {"periods_dropped": 1}


@pytest.mark.nightly
async def test_months_are_dropped_also_if_moving_takes_all_the_time(tenders: History) -> None:
    await tenders.cleanup(TENDERS)
    await tenders.export(TENDERS)
    ready(tenders)
    fill(tenders, 500, "'2024-03-20'", rows=3)
    tick = Tick(name="cleanup")
    tick.budget = Budget(seconds=1, clock=lambda: tick.counts["rows_moved"])  # spent when the first rows were moved
    assert await tenders.runners(TENDERS).cleanup(tick) == {"periods_dropped": 2, "rows_moved": 3}


OTHERS = """
CREATE SCHEMA archive;
CREATE TABLE archive.tenders (id bigint, published_at timestamptz) PARTITION BY RANGE (published_at);
CREATE TABLE archive.tenders_202401 PARTITION OF archive.tenders FOR VALUES FROM ('2024-01-01+00') TO ('2024-02-01+00');
INSERT INTO archive.tenders SELECT n, '2024-01-05' FROM generate_series(1, 10) AS n
"""


async def test_a_table_of_the_application_in_the_schema_is_neither_exported_nor_dropped(tenders: History) -> None:
    tenders.conn.execute(OTHERS)
    assert "periods_exported" not in await tenders.export(TENDERS)
    assert await tenders.exports("public.tenders") == []
    # As an earlier version exported it.
    tenders.conn.execute(
        "INSERT INTO holdfast.archive_exports (source, starts_on, ends_on, state, started_at, lock_token, rows, "
        "drop_eligible_at) VALUES ('public.tenders', '2024-01-01', '2024-02-01', 'verified', now(), 1, 10, now())"
    )
    with pytest.raises(ArchiveError, match=r"does not hold rows of public\.tenders: rename it"):
        await tenders.cleanup(TENDERS)
    assert count(tenders, "archive.tenders") == 10
    [export] = await tenders.exports("public.tenders")
    assert export.state == "verified"


@pytest.mark.nightly
async def test_a_month_that_was_detached_is_kept(tenders: History) -> None:
    await tenders.cleanup(TENDERS)
    await tenders.export(TENDERS)
    ready(tenders)
    tenders.conn.execute("ALTER TABLE archive.tenders DETACH PARTITION archive.tenders_202401")
    assert await tenders.cleanup(TENDERS) == {"periods_kept": 1, "periods_dropped": 1}
    assert count(tenders, "archive.tenders_202401") == 10


@pytest.mark.nightly
async def test_partitions_that_are_no_months_are_left_alone(tenders: History) -> None:
    await move(tenders)
    for name, bounds in (
        ("tenders_rest", "DEFAULT"),
        ("tenders_202099", "FOR VALUES FROM ('1999-01-01+00') TO ('1999-02-01+00')"),
        ("others_202101", "FOR VALUES FROM ('2021-01-01+00') TO ('2021-02-01+00')"),
    ):
        tenders.conn.execute(f"CREATE TABLE archive.{name} PARTITION OF archive.tenders {bounds}".encode())
    assert (await tenders.export(TENDERS))["periods_exported"] == 2
    assert {export.starts_on.isoformat() for export in await tenders.exports("public.tenders")} == {
        "2024-01-01",
        "2024-02-01",
    }


@pytest.mark.nightly
async def test_a_new_month_can_be_added_while_another_is_exported(tenders: History) -> None:
    await move(tenders, most=1)
    async with tenders.connected() as conn:
        [period] = await closed_months(conn, TENDERS)
    with psycopg.connect(tenders.url) as exporting:
        exporting.execute(f"SELECT count(*) FROM {period.relation}".encode())
        assert await move(tenders) == 13


TYPES = {
    "price": ("numeric(12,2)", "CASE n % 3 WHEN 0 THEN 1234567890.12 WHEN 1 THEN -0.01 END"),
    "share": (
        "numeric",
        "CASE n % 4 WHEN 0 THEN 1e-30 WHEN 1 THEN 12345678901234567890123456789012345678901234.5 WHEN 2 THEN 'NaN' END",
    ),
    "wide": ("numeric(60,10)", "n / 3.0"),
    "key": ("uuid", "gen_random_uuid()"),
    "raw": ("bytea", "CASE n % 3 WHEN 0 THEN '' WHEN 1 THEN decode('00ff0a0d2c22', 'hex') END::bytea"),
    "tags": ("text[]", """CASE n % 3 WHEN 0 THEN '{}' WHEN 1 THEN ARRAY['a,b', NULL, 'c"d', 'e\nf', ''] END::text[]"""),
    "grid": ("int[]", "ARRAY[[1, NULL], [n, 4]]"),
    "document": ("jsonb", """jsonb_build_object('n', n, 'text', E'a"\\n,ü', 'null', NULL)"""),
    "plain": ("json", """'{"a": 1,  "a": 2}'"""),
    "lasted": ("interval", "n * interval '1 month -3 days 04:05:06.789'"),
    "big": ("bigint", "9223372036854775807 - n"),
    "least": ("bigint", "-9223372036854775807 - 1"),
    "small": ("smallint", "-32768"),
    "late": ("boolean", "CASE n % 3 WHEN 0 THEN true WHEN 1 THEN false END"),
    "zoned": ("timestamptz", "'1969-12-31 23:59:59.999999+00'"),
    "local": ("timestamp", "'2024-03-31 02:30:00.000001'"),
    "coarse": ("timestamp(0) with time zone", "'2024-03-31 02:30:01+02'"),
    "day": ("date", "'0001-01-01'"),
    "clock": ("time", "'23:59:59.999999'"),
    "mood": ("mood", "CASE n % 2 WHEN 0 THEN 'sad' WHEN 1 THEN 'so, so' END::mood"),
    "real": ("real", "0.1"),
    "double": ("double precision", "CASE n % 4 WHEN 0 THEN 0.1 + 0.2 WHEN 1 THEN 'NaN' WHEN 2 THEN '-Infinity' END"),
    "words": (
        "text",
        """CASE n % 5 WHEN 0 THEN '' WHEN 1 THEN E'"\\r\\n,\\\\.' WHEN 2 THEN 'NULL' WHEN 3 THEN '\\.' END""",
    ),
    "code": ("char(3)", "'a'"),
    "short": ("varchar(10)", "'ä€😀'"),
    "host": ("inet", "'10.0.0.0/8'"),
    "span": ("int4range", "int4range(n, n + 5)"),
}


@pytest.mark.nightly
async def test_values_of_all_types_are_restored_row_for_row(history: History, bucket: ObjectStore) -> None:
    history.conn.execute("CREATE TYPE mood AS ENUM ('sad', 'so, so')")
    declared = ", ".join(f'"{name}" {type_}' for name, (type_, _) in TYPES.items())
    history.conn.execute(f"CREATE TABLE things (id int PRIMARY KEY, at timestamp, {declared})".encode())
    values = ", ".join(value for _, value in TYPES.values())
    query = f"INSERT INTO things SELECT n, '2024-03-01', {values} FROM generate_series(1, 100) AS n"
    history.conn.execute(query.encode())
    history.conn.execute("CREATE TABLE before AS TABLE things")
    archive = Archive("things", "at", hot="1 month")
    await history.cleanup(archive)
    assert (await history.export(archive))["rows_exported"] == 100
    [export] = await history.exports("public.things")
    assert restore(history.conn, bucket, export, TargetTable("public", "restored")) == 100
    for name in ("id", "at", *TYPES):
        for one, other in (("before", "restored"), ("restored", "before")):
            columns = f'id, "{name}"::text'
            query = f"SELECT count(*) FROM (SELECT {columns} FROM {one} EXCEPT ALL SELECT {columns} FROM {other}) AS x"
            assert history.value(query) == 0, name
    types = (
        "SELECT array_agg(format_type(atttypid, atttypmod) ORDER BY attnum) FROM pg_attribute "
        "WHERE attnum > 0 AND attrelid = '{}'::regclass"
    )
    assert history.value(types.format("before")) == history.value(types.format("restored"))
