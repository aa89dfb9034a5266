"""One job or one event out of the files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast._archive.filesystem import StoredFile
from holdfast._archive.search import find
from holdfast._drivers import run
from holdfast._store.archive import JOB_FAMILIES, exports_with_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from obstore.store import ObjectStore

    from holdfast._archive.search import Found
    from tests.kit.archive import History

WORDS = "(SELECT string_agg(md5((n * 20 + i)::text), ' ') FROM generate_series(1, 12) AS i)"


class Requested:
    """Counts the bytes that are read from the bucket."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        read = StoredFile.read

        def counted(file: StoredFile, start: int, end: int) -> bytes:
            self.bytes += end - start
            return read(file, start, end)

        monkeypatch.setattr(StoredFile, "read", counted)


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


@pytest.mark.nightly
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
