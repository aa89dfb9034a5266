"""One job, one event, or the answer of a query, out of the files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import obstore
import pytest

from holdfast._archive.search import find, query
from holdfast._drivers import run
from holdfast._store.archive import JOB_FAMILIES, exports_with_id
from holdfast.archive import Archive, ArchiveError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from obstore.store import ObjectStore

    from holdfast._archive.search import Found
    from tests.archive.conftest import History

WORDS = "(SELECT string_agg(md5((n * 20 + i)::text), ' ') FROM generate_series(1, 12) AS i)"


class Requested:
    """Counts the bytes that are read from the bucket."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        read = obstore.get_range

        def counted(*args: Any, **options: Any) -> Any:
            data = read(*args, **options)
            self.bytes += len(data)
            return data

        monkeypatch.setattr(obstore, "get_range", counted)


@pytest.fixture
def requested(monkeypatch: pytest.MonkeyPatch) -> Requested:
    return Requested(monkeypatch)


async def export_day(history: History, day: str, *sources: str) -> None:
    """Export these sources of a day."""
    async with history.exporter() as exporter:
        for period in await history.closed():
            if period.source in sources and period.starts_on.isoformat() == day:
                await exporter.export(period)


async def found(history: History, bucket: ObjectStore, sources: Sequence[str], id_: int) -> list[Found]:
    async with history.connected() as conn:
        return find(bucket, await run(conn, exports_with_id(sources, id_)), id_)


async def test_a_job_is_found_with_its_attempts_in_a_small_part_of_the_file(
    history: History, bucket: ObjectStore, requested: Requested
) -> None:
    day = history.day(100, jobs=100_000, payload=f"json_build_object('invoice_id', n, 'words', {WORDS})", attempt="2")
    id_ = history.value("SELECT id FROM holdfast.job_history ORDER BY id OFFSET 61234 LIMIT 1")
    history.conn.execute(
        "INSERT INTO holdfast.attempt (job_id, ended_at, outcome, attempt, error) "
        f"VALUES ({id_}, '{day} 10:01+00', 'retry', 1, 'Timeout')".encode()
    )
    await export_day(history, day, "job_history", "attempt")
    [export] = await history.exports()
    assert export.rows == 100_000
    requested.bytes = 0
    job, attempt = sorted(
        await found(history, bucket, [*JOB_FAMILIES, "attempt"], id_), key=lambda one: one.export.source, reverse=True
    )
    assert (job.export.source, job.row["id"], job.row["kind"]) == ("job_history", id_, "receipt.send")
    assert job.row["payload"].startswith('{"invoice_id" : 61235,')
    assert (attempt.export.source, attempt.row["job_id"], attempt.row["attempt"]) == ("attempt", id_, 1)
    assert requested.bytes < (export.bytes or 0) / 4
    requested.bytes = 0
    assert await found(history, bucket, JOB_FAMILIES, 10**15) == []
    assert requested.bytes == 0
    assert query(bucket, [export], "SELECT max(id) - min(id) + 1 FROM job_history").fetchall() == [(100_000,)]
    assert requested.bytes < (export.bytes or 0) / 10
    text = f"SELECT payload FROM job_history WHERE id = {id_}"
    requested.bytes = 0
    assert query(bucket, [export], text).fetchall() == [(job.row["payload"],)]
    assert requested.bytes < (export.bytes or 0) / 2


async def test_an_event_is_found_with_its_deliveries(history: History, bucket: ObjectStore) -> None:
    day = history.day(10)
    history.conn.execute(
        "INSERT INTO holdfast.event (id, published_at, xid, shard, topic, payload) SELECT n, "
        f"'{day} 10:00+00', '7', 3, 'order.paid', json_build_object('order_id', n) "
        "FROM generate_series(1, 50) AS n".encode()
    )
    history.conn.execute(
        "INSERT INTO holdfast.delivery (event_id, subscription_id, attempt, status, answered_at) SELECT n, 1, 1, 200, "
        f"'{day} 10:01+00' FROM generate_series(1, 50) AS n".encode()
    )
    await export_day(history, day, "event", "delivery")
    rows = {one.export.source: one.row for one in await found(history, bucket, ["event", "delivery"], 17)}
    assert rows["event"]["payload"] == '{"order_id" : 17}'
    assert (rows["delivery"]["event_id"], rows["delivery"]["status"]) == (17, 200)


async def test_a_query_over_families_and_tables_of_two_versions(tenders: History, bucket: ObjectStore) -> None:
    """Of the second month, the table has a column more, and one that is wider."""
    tenders.conn.execute("CREATE TABLE orders (id int PRIMARY KEY, at date, pages smallint, price numeric(8,2))")
    tenders.conn.execute("INSERT INTO orders VALUES (1, '2024-01-01', 7, 1.50), (2, '2024-01-02', 8, 2.50)")
    orders = Archive("orders", "at", hot="1 month")
    await tenders.cleanup(orders)
    await tenders.export(orders)
    tenders.conn.execute("ALTER TABLE orders ALTER pages TYPE bigint, ALTER price TYPE numeric(12,3), ADD colour text")
    tenders.conn.execute("INSERT INTO orders VALUES (3, '2024-02-01', 5000000000, 3.125, 'red')")
    await tenders.cleanup(orders)
    await tenders.export(orders)
    day = tenders.day(100, jobs=20)
    await export_day(tenders, day, "job_history")
    exports = [*await tenders.exports("public.orders"), *await tenders.exports()]
    for given in (exports, exports[::-1]):
        found = query(
            bucket, given, 'SELECT id, pages, price::text, colour FROM "public.orders" ORDER BY id'
        ).fetchall()
        assert found == [(1, 7, "1.500", None), (2, 8, "2.500", None), (3, 5_000_000_000, "3.125", "red")]
    text = (
        "SELECT count(*), sum(o.pages) FROM job_history j JOIN \"public.orders\" o ON o.id = j.payload->>'invoice_id'"
    )
    assert query(bucket, exports, text).fetchall() == [(3, 5_000_000_015)]


async def test_a_query_reaches_nothing_but_the_archive(history: History, bucket: ObjectStore) -> None:
    rows = [1]
    for text in (
        "SELECT * FROM read_text('/etc/hostname')",
        "COPY (SELECT 1) TO '/tmp/out.csv'",
        "ATTACH '/tmp/other.db'",
        "INSTALL httpfs",
        "SET enable_external_access = true",
        "SELECT * FROM rows",
    ):
        with pytest.raises(ArchiveError, match="the query failed: "):
            query(bucket, [], text)
    assert rows


async def test_the_error_of_a_query_is_plain(history: History, bucket: ObjectStore) -> None:
    day = history.day(100, jobs=2)
    await export_day(history, day, "job_history")
    exports = await history.exports()
    for text in (
        "SELECT nothing FROM job_history",
        "SELEC 1",
        "SELECT * FROM jobs",
        "SELECT payload::int FROM job_history",
    ):
        with pytest.raises(ArchiveError) as error:
            query(bucket, exports, text)
        assert str(error.value).startswith("the query failed: ")
        assert str(error.value).endswith("Tables of the archive: job_history")
    obstore.delete(bucket, exports[0].object or "")
    with pytest.raises(ArchiveError, match="not found"):
        query(bucket, exports, "SELECT * FROM job_history")
