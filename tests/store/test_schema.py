from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.pq import Trace, TransactionStatus

from holdfast._model.errors import HoldfastError, SchemaMissing, SchemaOutdated, SchemaUnknown, UnsupportedConnection
from holdfast._store.schema import (
    _applying,
    _beginning,
    _text,
    check,
    check_async,
    migrate,
    migrations,
    missing_from,
    numbered,
    script,
    verify,
)
from holdfast._store.script import split
from holdfast._store.statement import statements

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tools.postgres import Server

NAMES = [migration.name for migration in migrations()]
WHOLE = [(migration.number, migration.name, migration.checksum) for migration in migrations()]

# Everything that migrate leaves behind, as text, without times and without object ids.
CATALOG = """
SELECT 'schema', nspname, nspowner::regrole::text,
    (SELECT string_agg(a::text, ' ' ORDER BY a::text) FROM unnest(nspacl) AS a), ''
    FROM pg_namespace WHERE nspname = 'holdfast'
UNION ALL
SELECT 'relation', oid::regclass::text, relowner::regrole::text,
    (SELECT string_agg(a::text, ' ' ORDER BY a::text) FROM unnest(relacl) AS a),
    concat_ws(' ', relkind, relpersistence, reloptions::text, pg_get_expr(relpartbound, oid), pg_get_partkeydef(oid))
    FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace
UNION ALL
SELECT 'column', attrelid::regclass::text, attname, format_type(atttypid, atttypmod),
    concat_ws(' ', attnum, attnotnull, attidentity, attstorage, attcollation::regcollation, pg_get_expr(adbin, adrelid))
    FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
    WHERE attrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace) AND NOT attisdropped
UNION ALL
SELECT 'index', indexrelid::regclass::text, indrelid::regclass::text, pg_get_indexdef(indexrelid), ''
    FROM pg_index WHERE indrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace)
UNION ALL
SELECT 'constraint', conname, conrelid::regclass::text, pg_get_constraintdef(oid), ''
    FROM pg_constraint WHERE connamespace = 'holdfast'::regnamespace
UNION ALL
SELECT 'function', oid::regprocedure::text, proowner::regrole::text,
    (SELECT string_agg(a::text, ' ' ORDER BY a::text) FROM unnest(proacl) AS a), pg_get_functiondef(oid)
    FROM pg_proc WHERE pronamespace = 'holdfast'::regnamespace
UNION ALL
SELECT 'type', oid::regtype::text, typowner::regrole::text, typacl::text,
    (SELECT string_agg(enumlabel, ' ' ORDER BY enumsortorder) FROM pg_enum WHERE enumtypid = pg_type.oid)
    FROM pg_type WHERE typnamespace = 'holdfast'::regnamespace
UNION ALL
SELECT 'default', defaclrole::regrole::text, defaclobjtype::text, defaclacl::text, defaclnamespace::regnamespace::text
    FROM pg_default_acl
UNION ALL
SELECT 'migration', number::text, name, checksum, '' FROM holdfast.migration
"""


def catalog(url: str) -> set[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as conn:
        return set(conn.execute(CATALOG.encode()))


def recorded(url: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as conn:
        return conn.execute("SELECT number, name, checksum FROM holdfast.migration ORDER BY number").fetchall()


def await_lock_waiters(conn: psycopg.Connection[Any], waiters: int) -> None:
    """Return when so many sessions of this database wait for an advisory lock; fail after thirty seconds."""
    conn.execute(
        """
        DO $$
        DECLARE
            deadline timestamptz := clock_timestamp() + interval '30 seconds';
        BEGIN
            WHILE (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database =
                    (SELECT oid FROM pg_database WHERE datname = current_database())) < %d LOOP
                ASSERT clock_timestamp() < deadline, 'nobody waits for the lock';
                PERFORM pg_sleep(0.005);
            END LOOP;
        END $$
        """.replace("%d", str(int(waiters))).encode()
    )


def await_waiter(conn: psycopg.Connection[Any], table: str) -> None:
    """Return when a session waits for this table; fail after thirty seconds."""
    conn.execute(
        """
        DO $$
        DECLARE
            deadline timestamptz := clock_timestamp() + interval '30 seconds';
        BEGIN
            WHILE NOT EXISTS (SELECT FROM pg_locks WHERE relation = '%s'::regclass AND NOT granted) LOOP
                ASSERT clock_timestamp() < deadline, 'nobody waits for the table';
                PERFORM pg_sleep(0.005);
            END LOOP;
        END $$
        """.replace("%s", table).encode()
    )


def test_the_first_migration_is_the_schema() -> None:
    folder = files("holdfast._store").joinpath("sql", "schema")
    subjects = sorted((file for file in folder.iterdir()), key=lambda file: file.name)
    text = "\n".join(file.read_text(encoding="utf-8") for file in subjects)
    first = migrations()[0]
    assert (first.name, first.sql, first.checksum) == ("0001_schema", text, sha256(text.encode()).hexdigest())
    assert [migration.number for migration in migrations()] == list(range(1, len(NAMES) + 1))


def test_the_schema_makes_everything_once() -> None:
    """A reader never has to look for the last version of a function."""
    made = re.findall(r"^CREATE (?:OR REPLACE )?(?:UNLOGGED )?\w+ (holdfast\.\w+)", migrations()[0].sql, re.MULTILINE)
    assert len(made) > 150
    assert [name for name in made if made.count(name) > 1] == []
    assert re.findall(r"OR REPLACE|^ALTER|^DROP", migrations()[0].sql, re.MULTILINE) == []


@pytest.mark.parametrize(
    "names",
    [["0002_b.sql"], ["0001_a.sql", "0003_c.sql"], ["0001_a.sql", "0001_b.sql"], ["1_a.sql"], ["0001_A'.sql"]],
    ids=" ".join,
)
def test_numbers_have_no_holes(names: list[str]) -> None:
    with pytest.raises(HoldfastError, match="is not the name of migration"):
        numbered([(name, "") for name in names])


@pytest.mark.parametrize("autocommit", [True, False])
def test_an_empty_database(empty: str, autocommit: bool) -> None:
    with psycopg.connect(empty, autocommit=autocommit) as conn:
        assert migrate(conn) == NAMES
        assert conn.info.transaction_status == TransactionStatus.IDLE
        check(conn)
        assert conn.info.transaction_status == TransactionStatus.IDLE
        assert migrate(conn) == []
    assert recorded(empty) == WHOLE


def test_the_caller_keeps_row_factory_and_isolation(empty: str) -> None:
    with psycopg.connect(empty, row_factory=psycopg.rows.dict_row) as conn:
        conn.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        conn.read_only = True
        assert migrate(conn) == NAMES
        check(conn)


def test_nothing_stays_in_the_session(empty: str) -> None:
    settings = "SELECT name, setting FROM pg_settings WHERE name NOT LIKE 'plpgsql.%'"
    with psycopg.connect(empty, autocommit=True) as conn:
        before: dict[str, str] = dict(conn.execute(settings).fetchall())
        migrate(conn)
        assert dict(conn.execute(settings).fetchall()) == before
        assert conn.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)
        assert conn.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchone() == (0,)


def test_an_unsafe_search_path_is_not_used(empty: str) -> None:
    with psycopg.connect(empty, autocommit=True, options="-c search_path=trap,pg_catalog") as conn:
        conn.execute("CREATE SCHEMA trap")
        conn.execute(
            "CREATE FUNCTION trap.hashtext(text) RETURNS integer LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'trapped'; END $$"
        )
        assert migrate(conn) == NAMES


def test_refused_inside_a_transaction(empty: str) -> None:
    with psycopg.connect(empty) as conn:
        conn.execute("SELECT 1")
        with pytest.raises(UnsupportedConnection, match="not in one"):
            migrate(conn)


def test_a_migration_that_fails_leaves_nothing_of_itself(empty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = numbered(
        [("0001_a.sql", "CREATE TABLE holdfast.a ();"), ("0002_b.sql", "CREATE TABLE holdfast.b (); SELECT 1 / 0;")]
    )
    monkeypatch.setattr("holdfast._store.schema.migrations", lambda: broken)
    with psycopg.connect(empty, autocommit=True) as conn:
        with pytest.raises(psycopg.errors.DivisionByZero):
            migrate(conn)
        assert conn.execute("SELECT to_regclass('holdfast.a'), to_regclass('holdfast.b')").fetchone() == (
            "holdfast.a",
            None,
        )
    assert recorded(empty) == [(1, "0001_a", broken[0].checksum)]


def one_more(monkeypatch: pytest.MonkeyPatch, sql: str) -> str:
    """Add a migration after those of today, and return its name."""
    name = f"{len(migrations()) + 1:04}_spare"
    later = numbered([*((f"{known.name}.sql", known.sql) for known in migrations()), (f"{name}.sql", sql)])
    monkeypatch.setattr("holdfast._store.schema.migrations", lambda: later)
    return name


def test_a_migration_begins_again_when_it_deadlocks_with_a_worker(
    database: str, connect: Callable[..., psycopg.Connection[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = one_more(
        monkeypatch, "ALTER TABLE holdfast.job ADD spare integer; ALTER TABLE holdfast.worker ADD spare integer;"
    )
    worker, migrating = connect(), connect(autocommit=True)
    with ThreadPoolExecutor(1) as pool, worker.transaction():
        # As a claim does: the worker's row first, then the jobs. The migration is to be the one that gives way.
        worker.execute("SET LOCAL deadlock_timeout = '1min'")
        worker.execute("SELECT FROM holdfast.worker").fetchall()
        migrated = pool.submit(migrate, migrating)
        with connect() as looking:
            await_waiter(looking, "holdfast.worker")
        worker.execute("SELECT FROM holdfast.job").fetchall()
        assert not migrated.done()
    assert migrated.result() == [name]


def test_a_migration_that_waits_for_a_table_lets_others_work(
    database: str, connect: Callable[..., psycopg.Connection[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = one_more(monkeypatch, "ALTER TABLE holdfast.job ADD spare integer;")
    reader, migrating = connect(), connect(autocommit=True)
    with ThreadPoolExecutor(1) as pool:
        with reader.transaction(), connect(autocommit=True) as looking, connect(autocommit=True) as working:
            reader.execute("SELECT FROM holdfast.job").fetchall()
            migrated = pool.submit(migrate, migrating)
            for _ in range(2):
                await_waiter(looking, "holdfast.job")
                # It queues up behind the migration, and continues when the migration gives way.
                working.execute("SET statement_timeout = '5s'")
                working.execute("SELECT FROM holdfast.job LIMIT 1")
            assert not migrated.done()
        assert migrated.result(30) == [name]


def test_a_migration_gives_up_when_its_locks_are_held_for_too_long(
    database: str, connect: Callable[..., psycopg.Connection[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    one_more(monkeypatch, "ALTER TABLE holdfast.job ADD spare integer;")
    monkeypatch.setattr("holdfast._store.schema.PATIENCE", 0.5)
    reader = connect()
    with reader.transaction(), connect(autocommit=True) as migrating:
        reader.execute("SELECT FROM holdfast.job").fetchall()
        with pytest.raises(psycopg.errors.LockNotAvailable):
            migrate(migrating)
    assert recorded(database) == WHOLE


def test_a_function_is_never_committed_open_to_everybody(empty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "CREATE FUNCTION holdfast.f() RETURNS integer LANGUAGE sql AS $$ SELECT 1 $$;"
    later = numbered([("0001_a.sql", text), ("0002_b.sql", "SELECT 1 / 0;")])
    monkeypatch.setattr("holdfast._store.schema.migrations", lambda: later)
    with psycopg.connect(empty, autocommit=True) as conn:
        with pytest.raises(psycopg.errors.DivisionByZero):
            migrate(conn)
        assert conn.execute("SELECT has_function_privilege('public', 'holdfast.f()', 'EXECUTE')").fetchone() == (False,)


@pytest.mark.nightly(daily=["serializable"])
@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
def test_two_processes_at_once(empty: str, isolation: str) -> None:
    options = f"-c default_transaction_isolation={isolation.replace(' ', chr(92) + ' ')}"
    environment = os.environ | {"HOLDFAST_DATABASE_URL": empty, "PGOPTIONS": options}
    command = [sys.executable, "-m", "holdfast", "migrate"]
    with psycopg.connect(empty, autocommit=True) as conn, conn.transaction():
        conn.execute("SELECT pg_advisory_xact_lock(hashtext('holdfast.migrate'), 0)")
        processes = [
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # noqa: S603 - our own program
            for _ in range(2)
        ]
        await_lock_waiters(conn, 2)
    output = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], output
    assert [error for _, error in output] == ["", ""]
    assert sorted(re.findall(r"applied (\w+)", output[0][0] + output[1][0])) == NAMES
    assert recorded(empty) == WHOLE


def test_the_printed_script_does_the_same(server: Server, empty: str, database: str) -> None:
    psql = shutil.which("psql") or shutil.which("psql", path=str(server._bin))
    if psql is None:
        pytest.skip("psql is not installed")

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, input=script(), capture_output=True, text=True, check=False)  # noqa: S603 - our own script

    command = [psql, "--no-psqlrc", "--quiet", "--output=/dev/null", "--dbname", empty]
    done = run()
    assert (done.returncode, done.stderr) == (0, "")
    assert catalog(empty) == catalog(database)
    with psycopg.connect(empty, autocommit=True) as conn:
        check(conn)
        assert migrate(conn) == []
    assert run().returncode == 3
    assert catalog(empty) == catalog(database)


def test_statement_by_statement_gives_the_same_as_all_at_once(empty: str, database: str) -> None:
    with psycopg.connect(empty, autocommit=True) as conn:
        for step in [*(_applying(migration) for migration in migrations()), _text("roles.sql")]:
            with conn.transaction():
                conn.execute(f"{_beginning()}\n{step}".encode(), prepare=False)
    assert catalog(empty) == catalog(database)


def test_the_server_receives_one_statement_at_a_time(empty: str, tmp_path: Path) -> None:
    """Citus refuses several in one text for a schema that it distributes."""
    with (tmp_path / "trace").open("w") as trace, psycopg.connect(empty, autocommit=True) as conn:
        conn.pgconn.trace(trace.fileno())
        conn.pgconn.set_trace_flags(Trace.SUPPRESS_TIMESTAMPS)
        migrate(conn)
        conn.pgconn.untrace()
    messages = re.findall(r"^F\t\d+\t(Query|Parse)\t (.*)", (tmp_path / "trace").read_text(), re.MULTILINE)
    plain = {text for kind, text in messages if kind == "Query"}
    reads = {f'"{statements()[name]}"'.splitlines()[0] for name in ("applied_migrations", "is_remnant")}
    assert plain == {'"BEGIN"', '"COMMIT"', *reads}
    wanted = [*(_applying(migration) for migration in migrations()), _text("roles.sql")]
    sent = sum(kind == "Parse" for kind, _ in messages)
    assert sent == sum(len(split(f"{_beginning()}\n{step}")) for step in wanted)


def test_migrating_again_changes_nothing(database: str, connect: Callable[..., psycopg.Connection[Any]]) -> None:
    before = catalog(database)
    assert migrate(connect()) == []
    assert catalog(database) == before


def test_a_missing_schema(empty: str) -> None:
    with psycopg.connect(empty, autocommit=True) as conn, pytest.raises(SchemaMissing, match="run `holdfast migrate`"):
        check(conn)


def test_a_schema_of_that_name_which_is_not_ours(empty: str) -> None:
    with psycopg.connect(empty) as conn:
        conn.execute("CREATE SCHEMA holdfast")
        with pytest.raises(SchemaMissing):
            check(conn)
        conn.commit()
        assert migrate(conn) == NAMES


@pytest.mark.parametrize(
    "remnant",
    ["CREATE TYPE holdfast.status AS ENUM ('a')", "CREATE FUNCTION holdfast.f() RETURNS int RETURN 1"],
    ids=["type", "function"],
)
def test_a_schema_is_found_by_its_tables_and_not_by_what_was_copied_without_them(empty: str, remnant: str) -> None:
    with psycopg.connect(empty, autocommit=True) as conn:
        conn.execute("CREATE SCHEMA holdfast")
        conn.execute(remnant.encode())
        with pytest.raises(SchemaMissing):
            check(conn)
        with pytest.raises(SchemaUnknown, match="functions or types and no table of ours"):
            migrate(conn)
        assert conn.execute("SELECT to_regclass('holdfast.migration')").fetchone() == (None,)
        conn.execute("DROP SCHEMA holdfast CASCADE")
        assert migrate(conn) == NAMES


def test_on_citus_nothing_is_copied_to_other_nodes(empty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("citus.enable_ddl_propagation", "citus.enable_schema_based_sharding")
    seen = f"SELECT current_setting('{names[0]}') AS one, current_setting('{names[1]}') AS two"
    one_more(monkeypatch, f"CREATE TABLE holdfast.seen AS {seen};")
    with psycopg.connect(empty, autocommit=True, options=" ".join(f"-c {name}=on" for name in names)) as conn:
        migrate(conn)
        assert conn.execute("SELECT * FROM holdfast.seen").fetchone() == ("off", "off")
        assert conn.execute(seen.encode()).fetchone() == ("on", "on")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ("DELETE FROM holdfast.migration", SchemaMissing, "run `holdfast migrate`"),
        (
            "DELETE FROM holdfast.migration WHERE number >= 2",
            SchemaOutdated,
            "lacks 0002_spare, 0003_spare: run `holdfast migrate`",
        ),
        ("DELETE FROM holdfast.migration WHERE number = 2", SchemaUnknown, "has another 0003"),
        ("UPDATE holdfast.migration SET checksum = 'changed' WHERE number = 2", SchemaUnknown, "has another 0002"),
        (
            "INSERT INTO holdfast.migration VALUES (9998, '9998_future', 'x'), (9999, '9999_future_breaking', 'x')",
            SchemaUnknown,
            "9999_future_breaking, which breaks this code",
        ),
    ],
    ids=["emptied", "older", "hole", "changed", "newer"],
)
async def test_a_schema_that_is_not_the_one_known(
    *,
    database: str,
    connect: Callable[..., psycopg.Connection[Any]],
    change: str,
    error: type[HoldfastError],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    three = numbered([(f"{NAMES[0]}.sql", migrations()[0].sql), ("0002_spare.sql", ""), ("0003_spare.sql", "")])
    monkeypatch.setattr("holdfast._store.schema.migrations", lambda: three)
    conn = connect()
    migrate(conn)
    conn.execute(change.encode())
    with pytest.raises(error, match=message):
        check(conn)
    async with await psycopg.AsyncConnection.connect(database) as other:
        with pytest.raises(error, match=message):
            await check_async(other)
        assert other.info.transaction_status == TransactionStatus.IDLE
    if error is SchemaUnknown:
        with pytest.raises(error, match=message):
            migrate(conn)


async def test_a_newer_schema_that_breaks_nothing_passes_and_is_left_alone(
    database: str, connect: Callable[..., psycopg.Connection[Any]]
) -> None:
    conn = connect()
    conn.execute("INSERT INTO holdfast.migration VALUES (9999, '9999_future', 'x')")
    conn.execute("GRANT SELECT ON holdfast.job TO holdfast_producer")
    check(conn)
    async with await psycopg.AsyncConnection.connect(database) as other:
        await check_async(other)
    before = catalog(database)
    assert migrate(conn) == []
    assert catalog(database) == before, "the grants are the newer version's to set"


async def test_the_schema_known_passes(database: str, connect: Callable[..., psycopg.Connection[Any]]) -> None:
    check(connect())
    with connect(autocommit=False, row_factory=psycopg.rows.dict_row) as conn:
        conn.execute("SELECT 1")
        check(conn)
        assert conn.info.transaction_status == TransactionStatus.INTRANS
    async with await psycopg.AsyncConnection.connect(database, row_factory=psycopg.rows.dict_row) as other:
        await check_async(other)


def test_the_verdict_needs_no_database() -> None:
    verify(WHOLE)
    assert missing_from([]) == migrations()
    assert missing_from(WHOLE) == ()
    assert [migration.name for migration in missing_from(WHOLE[:1])] == NAMES[1:]
    with pytest.raises(SchemaMissing):
        verify([])


def test_a_vacuum_does_not_shrink_the_tables_that_run_empty_again_and_again(database: str) -> None:
    """It would lock them exclusively, and cancel queries on standbys."""
    with psycopg.connect(database) as conn:
        rows = conn.execute(
            "SELECT c.relname FROM pg_class c WHERE 'vacuum_truncate=off' = ANY (c.reloptions) AND c.relkind = 'r' "
            "AND (c.reltoastrelid = 0 OR c.relpersistence = 'u' OR EXISTS (SELECT FROM pg_class t "
            "WHERE t.oid = c.reltoastrelid AND 'vacuum_truncate=off' = ANY (t.reloptions))) ORDER BY 1"
        ).fetchall()
    assert [name for (name,) in rows] == ["job", "member", "message", "reader", "sleeper", "step", "sweep", "watcher"]
