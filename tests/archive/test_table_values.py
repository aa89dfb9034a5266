"""Values of the application's tables that Parquet has no type for come back as they were, and stop no export."""

from __future__ import annotations

from typing import TYPE_CHECKING

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast._archive import stream
from holdfast._archive.restore import TargetTable, restore
from holdfast.archive import Archive
from tests.kit.archive_tables import TENDERS

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from tests.kit.archive import History

ORDERS = Archive("orders", "at", hot="30 days")
COLUMNS = "id, at, paid_at, local_at, due, price, weight, share, during, place"
ODD = [
    ("infinity", "-infinity", "infinity", "NaN", "NaN", "Infinity"),
    ("0044-03-15 10:00:00+00 BC", "10000-01-01 00:00:00", "-infinity", "12345678.90", "-Infinity", "NaN"),
    ("2024-01-05 10:00:00.000001+00", "2024-01-05 10:00:00", "0044-03-15 BC", "0.01", "1e-300", "0"),
    (None, None, None, None, None, None),
]


@pytest.fixture
def orders(history: History) -> History:
    """A month with ordinary values, and one with others."""
    history.conn.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, at timestamptz, paid_at timestamptz, local_at timestamp(3), "
        "due date, price numeric(10,2), weight double precision, share real, during tstzrange, place point)"
    )
    history.conn.execute(
        "INSERT INTO orders SELECT n, '2024-01-05', '2024-01-06', '2024-01-06', '2024-02-01', 1.5, 2.5, 0.5, "
        "'[2024-01-01,infinity)', '(1,2)' FROM generate_series(1, 5) AS n"
    )
    for n, values in enumerate(ODD):
        history.conn.execute(
            "INSERT INTO orders VALUES (%s, '2024-02-05', %s, %s, %s, %s, %s, %s, '[,infinity]', NULL)",
            [100 + n, *values],
        )
    history.conn.execute("CREATE TABLE public.orders_before AS SELECT * FROM orders")
    return history


async def test_infinity_nan_and_other_years_come_back_as_they_were(orders: History, bucket: ObjectStore) -> None:
    await orders.cleanup(ORDERS)
    counts = await orders.export(ORDERS)
    assert (counts["periods_exported"], counts["rows_exported"]) == (2, 9)
    odd, plain = await orders.exports("public.orders")
    for export in (odd, plain):
        restore(orders.conn, bucket, export, TargetTable("archive", "restored"))
    text = COLUMNS.replace("place", "place::text")
    left, right = f"SELECT {text} FROM public.orders_before", f"SELECT {text} FROM archive.restored"
    either = f"(({left} EXCEPT ALL {right}) UNION ALL ({right} EXCEPT ALL {left}))"
    assert orders.value(f"SELECT count(*) FROM {either} AS x") == 0
    # Only the columns that need it are text, and only in that file.
    types = {name: schema_of(bucket, str(export.object)) for name, export in (("odd", odd), ("plain", plain))}
    assert {name: types["odd"][name] for name in ("at", "paid_at", "local_at", "due", "price", "weight", "share")} == {
        "at": "timestamp[us, tz=UTC]",
        "paid_at": "string",
        "local_at": "string",
        "due": "string",
        "price": "string",
        "weight": "double",
        "share": "float",
    }
    assert types["plain"]["paid_at"] == "timestamp[us, tz=UTC]"
    assert types["plain"]["price"] == "decimal128(10, 2)"


def schema_of(bucket: ObjectStore, name: str) -> dict[str, str]:
    file = pa.BufferReader(bytes(obstore.get(bucket, name).bytes()))
    return {field.name: str(field.type) for field in pq.read_schema(file)}


@pytest.mark.nightly
async def test_a_value_in_the_middle_of_a_large_month_writes_one_file_anew(
    history: History, bucket: ObjectStore
) -> None:
    """By then a part of the file is on its way, and the server sends more rows."""
    rows = 3 * stream.CHUNK // 2_000
    history.conn.execute("CREATE TABLE orders (id int PRIMARY KEY, at timestamptz, paid_at timestamptz, note text)")
    history.conn.execute(
        "INSERT INTO orders SELECT n, '2024-01-05', CASE WHEN n = 5000 THEN 'infinity'::timestamptz ELSE '2024-01-06' "
        "END, repeat(md5(n::text), 62) "
        f"FROM generate_series(1, {rows}) AS n".encode()
    )
    history.conn.execute("CREATE TABLE public.orders_before AS SELECT * FROM orders")
    await history.cleanup(ORDERS)
    assert (await history.export(ORDERS))["rows_exported"] == rows
    [export] = await history.exports("public.orders")
    restore(history.conn, bucket, export, TargetTable("archive", "restored"))
    assert history.differences("public.orders_before", "archive.restored") == 0
    assert len(obstore.list(bucket).collect()) == 2


async def test_other_tables_are_exported_beside_it(tenders: History) -> None:
    tenders.conn.execute("CREATE TABLE orders (id int PRIMARY KEY, at timestamptz, paid_at timestamptz)")
    tenders.conn.execute("INSERT INTO orders VALUES (1, '2024-01-05', 'infinity')")
    await tenders.cleanup(ORDERS, TENDERS)
    assert (await tenders.export(ORDERS, TENDERS))["periods_exported"] == 3
