"""Rows by the million from a few that the peer's own API made: copies of them, with keys of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from psycopg import sql

if TYPE_CHECKING:
    import psycopg

    from labs.bench.peers.peer import Rows

CHUNK = 200_000
# The first 32 bits of a time-ordered key are its time in steps of 65 seconds: a copy is that much older.
_EARLIER = """
CREATE OR REPLACE FUNCTION pg_temp.earlier(key uuid, number bigint) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
    SELECT (lpad(to_hex(('x' || left(key::text, 8))::bit(32)::bigint - number), 8, '0') || substr(key::text, 9))::uuid
$$
"""


def multiply(conn: psycopg.Connection[Any], rows: Rows, times: int) -> None:
    """Leave `times` as many rows in these tables as there are; then vacuum, as time would have."""
    conn.execute("SET session_replication_role = replica")  # no trigger, no foreign key: only rows
    conn.execute(_EARLIER)
    for table, keys in rows.items():
        held = _number(conn, table)
        if not held:
            continue
        step = max(1, CHUNK // held)
        for begun in range(1, times, step):
            _copy(conn, table, keys, begun, min(begun + step, times) - 1)
    conn.execute("SET session_replication_role = origin")
    for table in rows:
        conn.execute(f"VACUUM (ANALYZE) {table}".encode(), prepare=False)


def _copy(conn: psycopg.Connection[Any], table: str, keys: dict[str, str], first: int, last: int) -> None:
    found = conn.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped"
        " AND attgenerated = '' ORDER BY attnum",
        [table],
    ).fetchall()
    names = [name for (name,) in found]
    unknown = keys.keys() - set(names)
    assert not unknown, f"{table} has no {unknown}"
    values = [
        keys[name].format(x=f'x."{name}"', n="n.n") if name in keys else sql.Identifier("x", name).as_string()
        for name in names
    ]
    columns = ", ".join(f'"{name}"' for name in names)
    source = f"pg_temp.seed_{_plain(table)} AS x, generate_series({first}::bigint, {last}) AS n(n)"
    conn.execute(
        f"INSERT INTO {table} ({columns}) OVERRIDING SYSTEM VALUE"
        f" SELECT {', '.join(values)} FROM {source} ORDER BY n.n DESC".encode(),
        prepare=False,
    )


def _number(conn: psycopg.Connection[Any], table: str) -> int:
    """Keep what there is as the seed of the copies, and count it."""
    conn.execute(f"CREATE TEMP TABLE seed_{_plain(table)} AS SELECT * FROM {table}".encode(), prepare=False)
    row = conn.execute(f"SELECT count(*) FROM pg_temp.seed_{_plain(table)}".encode(), prepare=False).fetchone()
    assert row is not None
    return int(row[0])


def _plain(table: str) -> str:
    return table.replace(".", "_")
