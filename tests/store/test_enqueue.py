from __future__ import annotations

import json
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast._drivers import run_sync
from holdfast._model.codec import JsonCodec
from holdfast._model.new_job import OrderKey
from holdfast._model.unique import Unique
from holdfast._store.enqueue import enqueue_job, enqueue_jobs
from tests.kit.mutation import open_trap
from tests.kit.plans import explained
from tests.kit.workers import Worker, enqueue, job, number

if TYPE_CHECKING:
    from tests.kit.workers import Connect
    from tools.postgres import Server

COLUMNS = (
    "kind, payload::text, queue, priority, max_attempts, attempt, status::text, expires_at, order_key, order_block, "
    "order_seq, unique_key, headers::text, payload_version, chain_id, locked_by, last_error"
)


def row(conn: psycopg.Connection[Any], columns: str = COLUMNS) -> Any:
    return conn.execute(f"SELECT {columns} FROM holdfast.job".encode()).fetchall()


@pytest.mark.parametrize("one", [True, False])
def test_what_a_plain_job_stores(connect: Connect, one: bool) -> None:
    """Nulls where nothing was said: narrow rows are written three times."""
    conn = connect()
    new = job("mail", '{"to": "a@b.c"}')
    handle = run_sync(conn, enqueue_job(new)) if one else run_sync(conn, enqueue_jobs([new]))[0]
    assert (handle.chain_id, handle.created) == (handle.id, True)
    assert row(conn) == [("mail", '{"to": "a@b.c"}', "default", 5, 3, 0, "pending", *[None] * 10)]
    assert row(conn, "available_at = created_at, shard = id & 63, now() - created_at < interval '1 minute'") == [
        (True,) * 3
    ]


TRACEPARENT = '{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}'
TRACED = f"enqueue('k', '{{\"n\":1}}', 'q', 0, 1000, headers => '{TRACEPARENT}')"


def test_most_jobs_and_events_pass_one_check(connect: Connect) -> None:
    """The rules one by one cost as much as half of an insert: only what sets something else pays for them."""
    conn = connect()
    for function, given in (("job_fault", "kind"), ("event_fault", "topic")):
        fault = f"'{given}: 1 to 200 bytes of text expected, got null'"
        open_trap(conn, function, (f"{given} IS NULL", "true"), (fault, "'all the rules'"))
    for call in ("enqueue('k')", TRACED, "publish('t', '[]')", "publish('t', '[]', 'k')"):
        conn.execute(f"SELECT holdfast.{call}".encode())
    columns = "queue, priority, max_attempts, payload::text, headers::text, available_at = created_at, later"
    assert row(conn, columns) == [
        ("default", 5, 3, "{}", None, True, None),
        ("q", 0, 1000, '{"n":1}', TRACEPARENT, True, None),
    ]
    for call in ("enqueue('k', delay => '1 s')", "enqueue('k', NULL)", "publish('t', '[]', headers => '{}')"):
        with pytest.raises(psycopg.DatabaseError, match="all the rules"):
            conn.execute(f"SELECT holdfast.{call}".encode())


def test_only_options_that_are_read_make_plain_jobs(connect: Connect) -> None:
    """The library says so of a list, and then nothing else of it is read."""
    conn = connect()
    columns = "queue, priority, max_attempts, payload::text, headers::text, available_at = created_at, shard = id & 63"
    plain = [job(payload='{"n":1}').options(queue="q", priority=0, max_attempts=None), job()]
    statement = enqueue_jobs(plain)
    assert statement.params["plain"]
    run_sync(conn, statement)
    assert row(conn, columns) == [
        ("q", 0, None, '{"n":1}', None, True, True),
        ("default", 5, 3, "{}", None, True, True),
    ]
    for other in ("delay", "expires", "order_key", "unique", "headers", "after"):
        given: dict[str, Any] = {
            other: {"headers": {"a": "b"}, "after": [1]}.get(other, 60 if other in {"delay", "expires"} else "k")
        }
        assert not enqueue_jobs([*plain, job().options(**given)]).params["plain"], other


def test_every_option_is_stored(connect: Connect) -> None:
    conn = connect()
    at = datetime(2100, 1, 1, tzinfo=UTC)
    new = job("k", '{"n":1}').options(
        at=at,
        priority=0,
        queue="mail",
        order_key=OrderKey("o", on_failure="block"),
        unique=Unique("u"),
        expires=at + timedelta(days=1),
        headers={"trace": "ü"},
        max_attempts=1000,
    )
    handle = run_sync(conn, enqueue_job(new))
    (stored,) = row(conn)
    assert stored == (
        *("k", '{"n":1}', "mail", 0, 1000, 0, "pending", at + timedelta(days=1), "o", True, handle.id, "u"),
        *('{"trace":"ü"}', None, None, None, None),
    )
    assert row(conn, "available_at") == [(at,)]


def test_delays_and_expiry_are_counted_from_the_servers_clock(connect: Connect) -> None:
    conn = connect()
    enqueue(conn, job(delay=timedelta(hours=1), expires=timedelta(hours=2)))
    assert row(conn, "available_at - created_at, expires_at - created_at") == [(timedelta(hours=1), timedelta(hours=2))]


def test_the_past_is_lifted_to_the_present(connect: Connect) -> None:
    conn = connect()
    enqueue(conn, job(at=datetime(2000, 1, 1, tzinfo=UTC)))
    assert row(conn, "available_at = created_at") == [(True,)]


def test_handles_come_in_the_order_given(connect: Connect) -> None:
    conn = connect()
    ids = enqueue(conn, *[job(payload=f'{{"n":{n}}}') for n in range(100)])
    assert dict(conn.execute("SELECT id, (payload->>'n')::int FROM holdfast.job").fetchall()) == dict(
        zip(ids, range(100), strict=True)
    )


def test_nothing_is_a_batch_too(connect: Connect) -> None:
    assert enqueue(connect()) == []


@pytest.mark.parametrize("value", ["a\x00b", "\ud800", "\x00", "a\\u0000b", "😀", "\u2028"])
def test_texts_that_jsonb_would_refuse_come_back(connect: Connect, value: str) -> None:
    conn = connect()
    codec = JsonCodec()
    payload = codec.encode({"text": value}, kind="k")
    run_sync(conn, enqueue_job(job(payload=payload)))
    run_sync(conn, enqueue_jobs([job(payload=payload), job(payload=payload)]))
    stored = [claimed.payload for claimed in Worker(conn).claim()]
    assert [codec.decode(text or "") for text in stored] == [{"text": value}] * 3


@pytest.mark.parametrize("unique", [False, True])
def test_five_thousand_jobs_are_one_statement(connect: Connect, unique: bool) -> None:
    conn = connect()
    new = [job(unique=Unique(f"{n}") if unique else None) for n in range(5_000)]
    with explained(conn) as plans:
        handles = run_sync(conn, enqueue_jobs(new))
    assert len({handle.id for handle in handles}) == 5_000
    assert sum("INSERT INTO holdfast.job " in plan for plan in plans) == 1
    assert len(plans) < 40, "no statement per job"
    assert number(conn, "SELECT count(*) FROM holdfast.job") == 5_000


@pytest.mark.parametrize("unique", [False, True])
def test_a_large_batch_is_not_compiled(connect: Connect, unique: bool) -> None:
    conn = connect()
    if not number(conn, "SELECT pg_jit_available()"):
        pytest.skip("this PostgreSQL was built without JIT")
    with explained(conn) as plans:
        enqueue(conn, *[job(unique=Unique(f"{n}") if unique else None) for n in range(2_000)])
    assert not any("JIT:" in plan for plan in plans)


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_a_job_exists_if_its_transaction_commits(connect: Connect, level: str) -> None:
    conn, other = connect(), connect()
    for end, jobs in (("ROLLBACK", 0), ("COMMIT", 2)):
        conn.execute(f"BEGIN ISOLATION LEVEL {level}".encode())
        run_sync(conn, enqueue_job(job()))
        enqueue(conn, job())
        assert number(other, "SELECT count(*) FROM holdfast.job") == 0
        conn.execute(end.encode())
        assert number(other, "SELECT count(*) FROM holdfast.job") == jobs


@pytest.mark.parametrize(
    "bad",
    [
        {"priority": 10},
        {"priority": -1},
        {"max_attempts": 0},
        {"kind": None},
        {"kind": ""},
        {"queue": "q" * 101},
        {"order_key": ""},
    ],
    ids=str,
)
def test_the_database_refuses_what_no_library_checked(connect: Connect, bad: dict[str, Any]) -> None:
    conn = connect()
    with pytest.raises(psycopg.errors.Error):
        conn.execute("SELECT * FROM holdfast.enqueue_jobs(%s)", [json.dumps([{"kind": "k"} | bad])])
    assert row(conn) == []


def psql(server: Server, url: str, sql: str) -> str:
    program = shutil.which("psql") or shutil.which("psql", path=str(server._bin))
    if program is None:
        pytest.skip("psql is not installed")
    command = [program, "--no-psqlrc", "-v", "ON_ERROR_STOP=1", "--tuples-only", "--no-align", "--dbname", url]
    done = subprocess.run([*command, "--command", sql], capture_output=True, text=True, check=False)  # noqa: S603 - our own SQL
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_from_psql(server: Server, database: str, connect: Connect) -> None:
    conn = connect()
    first = psql(server, database, """SELECT holdfast.enqueue('mail', '{"to": "a@b.c"}')""")
    assert row(conn, "id, kind, payload::text, queue") == [(int(first), "mail", '{"to": "a@b.c"}', "default")]
    assert [claimed.id for claimed in Worker(conn, "mail").claim()] == [int(first)]

    call = (
        "SELECT holdfast.enqueue('k', queue => 'q', priority => 1, delay => '1 hour', expires => '1 day', "
        "order_key => 'o', unique_key => 'u', unique_window => '1 day', headers => '{\"a\": \"b\"}')"
    )
    assert psql(server, database, call) == psql(server, database, call), "the window is taken"
    times = "date_trunc('minute', available_at - now() + '30 s'), date_trunc('minute', expires_at - now() + '30 s')"
    stored = row(conn, f"queue, priority, order_key, headers ->> 'a', {times}")
    assert stored[-1] == ("q", 1, "o", "b", timedelta(hours=1), timedelta(days=1))
    assert len(stored) == 2


def test_from_a_trigger(connect: Connect) -> None:
    conn = connect()
    conn.execute("CREATE TABLE invoice (id int)")
    conn.execute(
        "CREATE FUNCTION paid() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "PERFORM holdfast.enqueue('receipt', json_build_object('id', NEW.id)); RETURN NEW; END $$"
    )
    conn.execute("CREATE TRIGGER paid AFTER INSERT ON invoice FOR EACH ROW EXECUTE FUNCTION paid()")
    conn.execute("INSERT INTO invoice VALUES (1), (2)")
    assert row(conn, "payload ->> 'id'") == [("1",), ("2",)]
