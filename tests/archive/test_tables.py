"""Old rows of the application's tables move to the schema `archive`, month by month."""

from __future__ import annotations

import asyncio
import secrets
import signal
import sys
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import Holdfast
from holdfast._archive import moving
from holdfast.archive import Archive, ArchiveError
from tests.kit.archive_tables import TENDERS, count, fill, months, move, ready

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit.archive import History


async def test_old_rows_move_to_their_months_and_the_others_stay(tenders: History) -> None:
    assert await move(tenders) == 20
    assert months(tenders) == {"archive.tenders_202401": 10, "archive.tenders_202402": 10}
    assert count(tenders, "tenders") == 10
    assert await move(tenders) == 0


async def test_each_batch_is_a_transaction_of_its_own(tenders: History) -> None:
    assert await move(tenders, batch=7, most=2) == 14
    assert (count(tenders, "tenders"), count(tenders, "archive.tenders")) == (16, 14)
    assert tenders.value("SELECT count(DISTINCT xmin::text) FROM archive.tenders") == 2
    assert await move(tenders) == 6


async def test_rows_that_do_not_meet_the_condition_stay(tenders: History) -> None:
    archive = Archive("tenders", "published_at", hot="12 months", where="title LIKE 'Tender 1%' -- 1 and 10")
    assert await move(tenders, archive, batch=2) == 4
    assert tenders.value("SELECT count(*) FROM tenders WHERE title LIKE 'Tender 1%'") == 2
    correlated = "NOT EXISTS (SELECT FROM tenders AS o WHERE o.published_at < tenders.published_at)"
    assert await move(tenders, Archive("tenders", "published_at", hot="12 months", where=correlated)) == 1


@pytest.mark.parametrize("indexed", [True, False])
async def test_old_rows_that_stay_are_not_read_again_for_each_batch(tenders: History, indexed: bool) -> None:
    fill(tenders, 1_000, "'2023-05-01'", rows=20_000)
    fill(tenders, 50_000, "'2023-06-01'::timestamptz + n * interval '1 second'", rows=1_000)
    if not indexed:
        tenders.conn.execute("DROP INDEX tenders_published_at_idx")
    tenders.conn.execute("ANALYZE tenders")
    archive = Archive("tenders", "published_at", hot="12 months", where="id > 50000")
    before = reads(tenders)
    assert await move(tenders, archive, batch=100) == 1_000
    assert reads(tenders) - before < 2 * 21_030


def reads(history: History) -> int:
    """Return how many rows of the table were read so far."""
    history.conn.execute("SELECT pg_stat_force_next_flush()") if history.conn.info.server_version >= 150000 else None
    return int(history.value("SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables WHERE relname = 'tenders'"))


async def test_rows_without_any_index_or_key_move_once_each(history: History) -> None:
    history.conn.execute("CREATE TABLE readings (taken date, value int)")
    history.conn.execute("INSERT INTO readings SELECT '2024-02-28'::date + n % 3, 7 FROM generate_series(1, 30) AS n")
    assert await move(history, Archive("readings", "taken", hot="1 year")) == 30
    assert months(history, "readings") == {"archive.readings_202402": 20, "archive.readings_202403": 10}


async def test_rows_of_a_partitioned_table_move_although_their_places_are_equal(history: History) -> None:
    history.conn.execute("CREATE TABLE logs (id bigint, at timestamptz) PARTITION BY RANGE (at)")
    history.conn.execute("CREATE TABLE logs_old PARTITION OF logs FOR VALUES FROM ('2024-01-01') TO ('2024-02-01')")
    history.conn.execute("CREATE TABLE logs_older PARTITION OF logs FOR VALUES FROM ('2023-01-01') TO ('2024-01-01')")
    history.conn.execute("CREATE TABLE logs_rest PARTITION OF logs DEFAULT")
    for n, at in enumerate(("'2024-01-10'", "'2023-12-10'", "now()")):
        history.conn.execute(f"INSERT INTO logs SELECT {n * 10} + n, {at} FROM generate_series(1, 10) AS n".encode())
    assert await move(history, Archive("logs", "at", hot="30 days"), batch=13) == 20
    assert months(history, "logs") == {"archive.logs_202312": 10, "archive.logs_202401": 10}
    assert history.value("SELECT min(id) FROM logs") == 21


async def test_locked_rows_are_skipped_until_they_are_free(tenders: History) -> None:
    with psycopg.connect(tenders.url) as other:
        other.execute("SELECT FROM tenders WHERE id <= 5 FOR SHARE")
        assert await move(tenders) == 15
    assert await move(tenders) == 5


async def test_months_are_those_of_utc(history: History) -> None:
    history.conn.execute("ALTER ROLE CURRENT_USER SET timezone = 'America/New_York'")
    try:
        history.conn.execute("CREATE TABLE stamps (id int, a timestamptz, b timestamp, c date)")
        history.conn.execute(
            "INSERT INTO stamps VALUES (1, '2024-03-31 23:59:59.999999+00', '2024-03-31 23:59', '2024-03-31')"
        )
        history.conn.execute("INSERT INTO stamps VALUES (2, '2024-04-01 00:00+00', '2024-04-01 00:00', '2024-04-01')")
        for column in "abc":
            history.conn.execute(f"CREATE TABLE stamps_of_{column} AS SELECT * FROM stamps".encode())
            name = f"stamps_of_{column}"
            assert await move(history, Archive(name, column, hot="1 day")) == 2
            assert months(history, name) == {f"archive.{name}_202403": 1, f"archive.{name}_202404": 1}
    finally:
        history.conn.execute("ALTER ROLE CURRENT_USER RESET timezone")


async def test_times_without_a_month_stay(tenders: History) -> None:
    tenders.conn.execute("INSERT INTO tenders VALUES (201, '-infinity'), (202, '0044-03-15 BC'), (203, NULL)")
    assert await move(tenders) == 20
    assert count(tenders, "tenders") == 13


KILLED = """
import asyncio, sys, psycopg
from holdfast._archive import moving
from holdfast._archive.months import closed_months
from holdfast.archive import Archive

async def main():
    async with await psycopg.AsyncConnection.connect(sys.argv[1], autocommit=True) as conn:
        archive = Archive("tenders", "published_at", hot="12 months")
        await moving.move(conn, archive, on_moved=print, stopped=lambda: False, batch=7)

asyncio.run(main())
"""


async def test_a_kill_in_the_middle_of_a_batch_neither_loses_nor_doubles_a_row(tenders: History) -> None:
    assert await move(tenders, batch=10, most=1) == 10
    with psycopg.connect(tenders.url) as other:
        other.execute(
            "CREATE TABLE archive.tenders_202402 PARTITION OF archive.tenders "
            "FOR VALUES FROM ('2024-02-01+00') TO ('2024-03-01+00')"
        )
        other.commit()
        # The process deletes rows, and waits for this lock when it inserts them.
        other.execute("LOCK TABLE archive.tenders_202402")
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", KILLED, tenders.url)
        try:
            await _waiting(tenders)
        finally:
            process.kill()
        assert await process.wait() == -signal.SIGKILL
    assert await move(tenders) == 10
    ids = tenders.conn.execute("SELECT id FROM archive.tenders ORDER BY id").fetchall()
    assert [id_ for (id_,) in ids] == list(range(1, 21))
    assert count(tenders, "tenders") == 10


async def _waiting(history: History) -> None:
    """Return when a statement that moves rows waits for a lock."""
    waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%INSERT INTO%'"
    async with asyncio.timeout(20):
        while not history.value(waits):  # noqa: ASYNC110 - the database is asked
            await asyncio.sleep(0.01)


# Foreign keys.


@pytest.mark.parametrize("action", ["CASCADE", "RESTRICT", "SET NULL", "NO ACTION DEFERRABLE INITIALLY DEFERRED"])
async def test_a_row_stays_while_another_refers_to_it(tenders: History, action: str) -> None:
    tenders.conn.execute(f"CREATE TABLE lots (id int, tender_id bigint REFERENCES tenders ON DELETE {action})".encode())
    tenders.conn.execute("INSERT INTO lots VALUES (1, 3), (2, 17)")
    assert await move(tenders) == 18
    assert count(tenders, "lots WHERE tender_id IS NOT NULL") == 2
    tenders.conn.execute("DELETE FROM lots WHERE id = 1")
    assert await move(tenders) == 1


async def test_tables_that_refer_move_before_those_they_refer_to(tenders: History) -> None:
    tenders.conn.execute("CREATE TABLE lots (id int PRIMARY KEY, closed_at date, tender_id bigint REFERENCES tenders)")
    tenders.conn.execute("CREATE TABLE bids (id int PRIMARY KEY, made_at date, lot_id int REFERENCES lots)")
    tenders.conn.execute("INSERT INTO lots SELECT n, '2024-05-01', n FROM generate_series(1, 20) AS n")
    tenders.conn.execute(
        "INSERT INTO bids SELECT n, CASE WHEN n = 9 THEN now() ELSE '2024-05-01' END, n "
        "FROM generate_series(1, 20) AS n"
    )
    archives = [TENDERS, Archive("lots", "closed_at", hot="30 days"), Archive("bids", "made_at", hot="30 days")]
    assert await tenders.cleanup(*archives) == {"rows_moved": 57}
    assert [count(tenders, table) for table in ("bids", "lots", "tenders")] == [1, 1, 11]
    assert tenders.value("SELECT id FROM lots") == 9


async def test_a_tree_within_one_table_leaves_from_its_leaves(history: History) -> None:
    history.conn.execute(
        "CREATE TABLE parts (id int PRIMARY KEY, at date, part_of int REFERENCES parts ON DELETE CASCADE)"
    )
    history.conn.execute(
        "INSERT INTO parts VALUES (1, '2024-01-01', NULL), (2, '2024-01-02', 1), (3, '2024-01-03', 2), "
        "(4, '2024-01-04', 4)"
    )
    history.conn.execute("INSERT INTO parts VALUES (10, '2024-01-01', NULL), (11, now(), 10)")
    assert await move(history, Archive("parts", "at", hot="30 days")) == 4
    assert [id_ for (id_,) in history.conn.execute("SELECT id FROM parts ORDER BY id")] == [10, 11]


async def test_a_row_that_refers_and_is_committed_at_the_last_moment_is_not_lost(
    tenders: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenders.conn.execute("CREATE TABLE lots (id int, tender_id bigint REFERENCES tenders ON DELETE CASCADE)")
    ensure = moving._ensure_month

    async def just_before(conn: Any, archive: Archive, month: Any) -> None:
        # As if it had been committed after the first look for references, and before the row was locked.
        tenders.conn.execute("SET session_replication_role = replica")
        tenders.conn.execute("INSERT INTO lots SELECT 1, 3 WHERE NOT EXISTS (SELECT FROM lots)")
        tenders.conn.execute("RESET session_replication_role")
        await ensure(conn, archive, month)

    monkeypatch.setattr(moving, "_ensure_month", just_before)
    tenders.conn.execute("ALTER ROLE CURRENT_USER SET default_transaction_isolation = 'repeatable read'")
    try:
        assert await move(tenders, batch=100) == 19
    finally:
        tenders.conn.execute("ALTER ROLE CURRENT_USER RESET default_transaction_isolation")
    assert count(tenders, "lots") == 1
    assert tenders.value("SELECT min(id) FROM tenders") == 3


# Changes of the table.


async def test_columns_that_were_added_widened_and_dropped_later(tenders: History) -> None:
    assert await move(tenders, most=1) == 7
    tenders.conn.execute(
        "ALTER TABLE tenders ADD COLUMN pages int, DROP COLUMN title, ALTER COLUMN id TYPE numeric(20)"
    )
    tenders.conn.execute("UPDATE tenders SET pages = 4")
    assert await move(tenders) == 13
    assert count(tenders, "archive.tenders WHERE pages = 4 AND title IS NULL") == 13
    assert count(tenders, "archive.tenders WHERE pages IS NULL AND title IS NOT NULL") == 7


@pytest.mark.parametrize(
    ("schema", "name", "at"),
    [
        ("public", "Order Items", 'said "when", 50%'),
        ("Größe", "user", "timestamp"),
        ("public", "a" * 63, "at"),
        ("sales", "b" * 63, "at"),
    ],
)
async def test_odd_names(history: History, schema: str, name: str, at: str) -> None:
    quoted = at.replace('"', '""')
    history.conn.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"'.encode())
    history.conn.execute(
        f'CREATE TABLE "{schema}"."{name}" (id int PRIMARY KEY, "{quoted}" timestamptz, "select" text)'.encode()
    )
    history.conn.execute(
        f"""INSERT INTO "{schema}"."{name}" VALUES (1, '2024-01-01', 'x'), (2, '2024-01-31', 'y')""".encode()
    )
    archive = Archive(f"{schema}.{name}", at, hot="30 days")
    assert await history.cleanup(archive) == {"rows_moved": 2}
    assert (await history.export(archive))["rows_exported"] == 2
    [export] = await history.exports(archive.source)
    assert (export.state, export.rows) == ("verified", 2)


# Mistakes.


@pytest.mark.parametrize(
    ("archive", "output"),
    [
        (Archive("tender", "published_at", hot="1 day"), "Archive: there is no table public.tender"),
        (Archive("sales.tenders", "published_at", hot="1 day"), "Archive: there is no table sales.tenders"),
        (
            Archive("tenders", "at", hot="1 day"),
            "Archive: public.tenders has no column at: there are id, published_at, title",
        ),
        (
            Archive("tenders", "title", hot="1 day"),
            "Archive: public.tenders.title is of type text, and not a time",
        ),
        (
            Archive("tenders", "published_at", hot="1 day", where="stats = 'ok'"),
            'Archive of public.tenders: column "stats" does not exist',
        ),
        (
            Archive("tenders", "published_at", hot="1 day", where="title ="),
            'Archive of public.tenders: syntax error at or near ")"',
        ),
    ],
)
async def test_a_declaration_that_does_not_fit(tenders: History, archive: Archive, output: str) -> None:
    with pytest.raises(ArchiveError) as error:
        await move(tenders, archive)
    assert str(error.value) == output


async def test_a_declaration_that_does_not_fit_stops_neither_the_others_nor_the_dropping(tenders: History) -> None:
    await move(tenders, batch=10, most=1)
    await tenders.export(TENDERS)
    ready(tenders)
    with pytest.raises(ArchiveError, match=r"there is no table public\.nowhere"):
        await tenders.cleanup(Archive("nowhere", "at", hot="1 day"), TENDERS)
    assert months(tenders) == {"archive.tenders_202402": 10}


async def test_a_table_of_another_kind_in_the_schema_is_left_alone(tenders: History) -> None:
    tenders.conn.execute("CREATE SCHEMA archive")
    tenders.conn.execute("CREATE TABLE archive.tenders AS SELECT * FROM tenders LIMIT 0")
    with pytest.raises(ArchiveError, match=r"does not hold rows of public\.tenders: rename it"):
        await move(tenders)


async def test_a_worker_needs_no_right_to_create_schemas_and_an_error_names_the_missing_one(tenders: History) -> None:
    tenders.conn.execute("CREATE SCHEMA archive")
    mover = f"mover_{secrets.token_hex(4)}"
    tenders.conn.execute(f"CREATE ROLE {mover} IN ROLE holdfast_worker".encode())
    try:
        tenders.conn.execute(f"GRANT SELECT, UPDATE ON tenders TO {mover}".encode())
        tenders.conn.execute(f"GRANT USAGE, CREATE ON SCHEMA archive TO {mover}".encode())
        async with tenders.connected() as conn:
            await conn.execute(f"SET ROLE {mover}".encode())
            with pytest.raises(
                ArchiveError, match=r"^Archive of public\.tenders: permission denied for table tenders$"
            ):
                await moving.move(conn, TENDERS, on_moved=lambda _: None, stopped=lambda: False)
            tenders.conn.execute(f"GRANT DELETE ON tenders TO {mover}".encode())
            assert await moving.move(conn, TENDERS, on_moved=lambda _: None, stopped=lambda: False) == 20
    finally:
        tenders.conn.execute(f"DROP OWNED BY {mover}".encode())
        tenders.conn.execute(f"DROP ROLE {mover}".encode())


async def test_another_column_of_time_is_refused(tenders: History) -> None:
    await move(tenders)
    tenders.conn.execute("ALTER TABLE tenders ADD COLUMN closed_at timestamptz")
    with pytest.raises(
        ArchiveError, match=r"archive.tenders has its months by RANGE \(published_at\), and not by closed_at"
    ):
        await move(tenders, Archive("tenders", "closed_at", hot="1 day"))


@pytest.mark.parametrize(
    ("make", "error", "output"),
    [
        (lambda: Archive("a.b.c", "at", hot="1 day"), ValueError, "table: a name expected"),
        (lambda: Archive('tenders"', "at", hot="1 day"), ValueError, "table: a name expected"),
        (lambda: Archive(7, "at", hot="1 day"), ValueError, "table: a name expected"),  # type: ignore[arg-type]
        (lambda: Archive("tenders", "", hot="1 day"), ValueError, "at: the name of a column of time expected"),
        (lambda: Archive("tenders", "at", hot="a year"), ValueError, "hot: a number of days, months or years expected"),
        (lambda: Archive("tenders", "at", hot="0 days"), ValueError, "hot: a number of days, months or years expected"),
        (lambda: Archive("tenders", "at", hot=90), ValueError, "hot: .* got 90"),  # type: ignore[arg-type]
        (lambda: Archive("tenders", "at", hot="1 day", keep="1 h"), ValueError, "keep: a number of days"),
        (lambda: Archive("tenders", "at", hot="1 day", where=1), TypeError, "where: a condition of SQL"),  # type: ignore[arg-type]
        (
            lambda: Holdfast(archives=[TENDERS, Archive("public.tenders", "at", hot="1 day")]),
            ValueError,
            "archives: public.tenders is declared twice",
        ),
        (
            lambda: Holdfast(
                archives=[Archive("sales.orders", "at", hot="1 day"), Archive("sales_orders", "at", hot="1 day")]
            ),
            ValueError,
            r"the rows of sales\.orders and of public\.sales_orders would both be in the table archive\.sales_orders: ",
        ),
        (lambda: Holdfast(archives=TENDERS), TypeError, "archives: expected a list"),  # type: ignore[arg-type]
        (lambda: Holdfast(archives=["tenders"]), TypeError, "archives: expected a list"),  # type: ignore[list-item]
    ],
)
def test_invalid_values_are_refused(make: Callable[[], object], error: type[Exception], output: str) -> None:
    with pytest.raises(error, match=output):
        make()


async def test_an_error_of_the_driver_has_no_message_of_the_server() -> None:
    archive = Archive("shop.orders", "created_at", hot="1 month")
    with pytest.raises(ArchiveError, match=r"^Archive of shop.orders: ProgrammingError$"):
        async with moving._explained(archive):
            raise psycopg.ProgrammingError("the query has 1 placeholder but 2 parameters were passed")
