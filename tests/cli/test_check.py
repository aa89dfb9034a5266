from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from psycopg import sql

from holdfast._drivers import run_sync
from holdfast._model.settings_table import SETTINGS
from holdfast._store.finish import Ending, finish_jobs
from holdfast._store.inspect import take_census
from holdfast._store.schema import migrations
from holdfast._store.subscription import subscribe
from holdfast._store.worker import register_worker
from tests.kit.commands import Output, holdfast
from tests.kit.databases import clone, encoded
from tests.kit.workers import FAILED, RETRIED, Worker, enqueue, job
from tools.pgbouncer import PgBouncer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import psycopg

    from tools.postgres import Server

SUBJECTS = ["archive", "database", "schema", "rights", "workers", "roles", "isolation", "connections", "listen"]


@contextmanager
def user(conn: psycopg.Connection[Any], database: str, options: str) -> Iterator[str]:
    """Yield the address of a new user of this database."""
    name = f"test_check_{os.getpid()}"
    conn.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'hush' {}").format(sql.Identifier(name), sql.SQL(options)))
    try:
        yield database.replace("postgres@", f"{name}:hush@")
    finally:
        conn.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


def findings(output: Output) -> dict[str, tuple[str, str]]:
    """By subject: verdict and text."""
    return {one["subject"]: (one["verdict"], one["message"]) for one in output.json["findings"]}


def test_all_is_well(database: str, server_version: int) -> None:
    output = holdfast("check", "--json", database=database, HOLDFAST_BATCH_SIZE="70", PDF_RENDER_CONCURRENCY="4")
    assert (output.status, output.err) == (0, "")
    found = findings(output)
    assert list(found) == SUBJECTS
    assert found.pop("workers") == ("note", "0 live workers: nothing runs"), "and a worker could run so"
    assert {verdict for verdict, _ in found.values()} == {"ok"}
    assert found["database"][1].endswith(f"PostgreSQL {server_version}")
    assert found["schema"][1] == f"up to date: {migrations()[-1].name}"
    assert found["connections"][1].startswith("6 per process; the server allows 200, 3 of them reserved, ")
    assert output.json["ok"] is True
    settings = {row["name"]: row for row in output.json["settings"]}
    assert list(settings) == [setting.name for setting in SETTINGS]
    assert settings["HOLDFAST_BATCH_SIZE"]["value"] == "70"
    assert settings["HOLDFAST_BATCH_SIZE"]["source"] == "HOLDFAST_BATCH_SIZE"
    assert settings["HOLDFAST_QUEUE_CONCURRENCY"]["source"] == "alias PDF_RENDER_CONCURRENCY"
    assert settings["HOLDFAST_CONCURRENCY"] == settings["HOLDFAST_CONCURRENCY"] | {"value": "10", "source": "default"}


def test_for_people_with_an_application(database: str, shop: Path) -> None:
    odd = {"OUTBOX_BATCH_SIZ": "1", "HOLDFAST_API_SERVICE_TOKEN": "hush"}
    output = holdfast("check", "shop:app", database=database, cwd=shop, **odd)
    assert output.status == 0
    assert output.out.startswith("SETTING")
    assert "note: OUTBOX_BATCH_SIZ is not known: did you mean OUTBOX_BATCH_SIZE?" in output.out
    kinds = "blocking, borrowing, broken, deaf, endless, gated, leaving, quick, stubborn"
    assert f"\n9 kinds: {kinds}\n2 queues: default, slow\n0 runners: -\n" in output.out
    assert "hush" not in output.out + output.err
    for subject in SUBJECTS:
        assert f"  {subject}  " in output.out


def test_one_of_a_thing_is_not_called_many(database: str, tmp_path: Path) -> None:
    (tmp_path / "single.py").write_text(
        """from holdfast import Holdfast, Job

app = Holdfast()


@app.job("charge", queue="pay")
async def charge(job: Job[None]) -> None: ...
"""
    )
    output = holdfast("check", "single:app", database=database, cwd=tmp_path)
    limit = "1 time limit: charge 180 s (3 leases)"
    assert f"\n0 imports: -\n1 kind: charge\n1 queue: pay\n0 runners: -\n0 schedules: -\n{limit}\n" in output.out


def test_a_kind_without_a_limit_of_attempts_is_noted(database: str, shop: Path) -> None:
    shop.joinpath("patient.py").write_text(
        "from holdfast import Holdfast, Job, Retry\n"
        "app = Holdfast()\n"
        "@app.job('sync', retry=Retry(max_attempts=None))\n"
        "async def sync(job: Job[None]) -> None: ...\n"
        "@app.job('other')\n"
        "async def other(job: Job[None]) -> None: ...\n"
    )
    output = holdfast("check", "patient:app", "--json", database=database, cwd=shop)
    assert output.status == 0
    notes = [one["message"] for one in output.json["findings"] if one["verdict"] == "note"]
    assert notes[0] == "sync has no limit of attempts: failing never makes a dead letter of its jobs"


@pytest.mark.parametrize(("encoding", "verdict"), [("SQL_ASCII", "wrong"), ("LATIN1", "note")])
def test_the_encoding(server: Server, encoding: str, verdict: str) -> None:
    with encoded(server, encoding) as name:
        found = findings(holdfast("check", "--json", database=server.url(name)))
    assert found["encoding"][0] == verdict
    assert encoding in found["encoding"][1]


def test_what_would_be_waited_for_in_vain(database: str, shop: Path, conn: psycopg.Connection[Any]) -> None:
    enqueue(conn, job("elsewhere", queue="far"))
    run_sync(conn, take_census(every_ms=0))
    subscription = run_sync(conn, subscribe("out", target="t", topics=(), partitions=2, beginning=True)).id
    conn.execute(
        "INSERT INTO holdfast.parked (subscription_id, partition, event_id, holds_key, parked_at) "
        "VALUES (%(id)s, 0, 1, false, now()), (%(id)s, 1, 2, false, now())",
        {"id": subscription},
    )
    output = holdfast("check", "shop:app", "--queues", "slow=1,slwo=1", "--json", database=database, cwd=shop)
    assert output.status == 0
    notes = [(one["subject"], one["message"]) for one in output.json["findings"] if one["verdict"] == "note"]
    (named, queue), *others = notes
    assert named == "kinds"
    assert queue.startswith("no kind names the queue slwo: ")
    assert others == [
        ("workers", "0 live workers: nothing runs"),
        ("kinds", "no live worker takes elsewhere from the queue far: 1 due job"),
        ("events", "2 parked events of out: holdfast events parked out"),
    ]


def test_a_live_worker_is_counted(database: str, conn: psycopg.Connection[Any]) -> None:
    run_sync(conn, register_worker("w", queues=["mail"], kinds=["k"]))
    assert findings(holdfast("check", "--json", database=database))["workers"] == ("ok", "1 live worker")


def test_show_says_that_no_live_worker_takes_a_job(database: str, conn: psycopg.Connection[Any]) -> None:
    (waiting,) = enqueue(conn, job("k", queue="mail"))
    output = holdfast("jobs", "show", str(waiting), database=database)
    assert "\nNo live worker takes k from the queue mail. Run: holdfast worker\n" in output.out
    run_sync(conn, register_worker("w", queues=["mail"], kinds=["k"]))
    [wait] = holdfast("jobs", "show", "--json", str(waiting), database=database).json["waits"]
    assert wait["code"] == "turn"


def test_show_prints_the_last_traceback_the_last_log_and_how_long_attempts_ran(
    database: str, conn: psycopg.Connection[Any]
) -> None:
    worker = Worker(conn)
    (made,) = enqueue(conn, job("k"))
    traced = "  File 'shop.py', line 1, in send\nOSError: no \x1b[31mroute"
    for outcome in (RETRIED, FAILED):
        [claimed] = worker.claim()
        ending = Ending(claimed, outcome, 1.5, f"{traced} {claimed.attempt}")
        ending.log = f"INFO shop: try {claimed.attempt}"
        run_sync(conn, finish_jobs(worker.id, [ending]))
    output = holdfast("jobs", "show", str(made), database=database).out
    assert "ATTEMPT  OUTCOME  DUE" in output
    assert output.count("  1.5 s  ") == 2
    assert "\nTraceback of attempt 2\n    File 'shop.py', line 1, in send\n  OSError: no \\x1b[31mroute 2\n" in output
    assert "\nLog of attempt 2\n  INFO shop: try 2\n" in output
    story = holdfast("jobs", "show", "--json", str(made), database=database).json
    assert [one["traceback"] for one in story["attempts"]] == [f"{traced} 1", f"{traced} 2"]
    assert [one["log"] for one in story["attempts"]] == ["INFO shop: try 1", "INFO shop: try 2"]


def test_no_database() -> None:
    output = holdfast("check", "--json")
    assert output.status == 1
    assert findings(output)["database"] == (
        "wrong",
        "no database: give the application one: Holdfast(url), or set HOLDFAST_DATABASE_URL or DATABASE_URL",
    )


def test_one_of_two_databases_is_away(database: str) -> None:
    output = holdfast("check", "--json", HOLDFAST_DATABASE_URL=f"postgresql://me:hush@127.0.0.1:1/away {database}")
    assert output.status == 1
    archive, first, *others = output.json["findings"]
    assert archive["subject"] == "archive"
    assert (first["verdict"], first["database"]) == ("wrong", "away")
    assert first["message"].startswith("cannot connect to the database of HOLDFAST_DATABASE_URL, away: ")
    assert ["archive", *(one["subject"] for one in others)] == [*SUBJECTS, "placement"]
    assert {one["verdict"] for one in others if one["subject"] != "workers"} == {"ok"}
    assert "hush" not in output.out + output.err


@pytest.mark.parametrize("address", ["postgresql://me:a@hush@there/db", "postgresql://me:p/hush@there/db"])
def test_an_address_that_cannot_be_read_is_not_repeated(address: str) -> None:
    output = holdfast("check", "--json", DATABASE_URL=address)
    assert output.status == 1
    assert "hush" not in "".join(one["message"] for one in output.json["findings"]) + output.err


def test_no_schema(server: Server) -> None:
    with clone(server, "template0") as empty:
        output = holdfast("check", "--json", database=empty)
    assert output.status == 1
    assert findings(output)["schema"] == ("wrong", "This database has no Holdfast schema: run `holdfast migrate`.")
    assert "rights" not in findings(output)


def test_more_connections_than_there_are(database: str) -> None:
    output = holdfast("check", "--json", database=database, HOLDFAST_MAX_CONNECTIONS="198")
    assert output.status == 1
    verdict, states = findings(output)["connections"]
    assert verdict == "wrong"
    assert "not one process fits" in states


def test_the_limit_of_a_user(database: str, conn: psycopg.Connection[Any]) -> None:
    with user(conn, database, "IN ROLE holdfast_worker CONNECTION LIMIT 4") as url:
        output = holdfast("check", "--json", database=url)
    assert output.status == 1
    assert findings(output)["rights"][0] == "ok"
    assert findings(output)["roles"] == ("ok", "all there; this user has holdfast_worker")
    assert "this database or user at most 4: not one process fits" in findings(output)["connections"][1]
    assert "hush" not in output.out


def test_a_viewer_cannot_work(database: str, conn: psycopg.Connection[Any]) -> None:
    with user(conn, database, "IN ROLE holdfast_viewer") as url:
        output = holdfast("check", "--json", database=url)
    assert output.status == 1
    name = f"test_check_{os.getpid()}"
    assert findings(output)["rights"] == ("wrong", f"{name} may look but not work: GRANT holdfast_worker TO {name}")


def test_transactions_that_are_stricter_by_default(database: str, conn: psycopg.Connection[Any]) -> None:
    name = sql.Identifier(conn.info.dbname)
    conn.execute(sql.SQL("ALTER DATABASE {} SET default_transaction_isolation = 'serializable'").format(name))
    output = holdfast("check", "--json", database=database)
    assert output.status == 1
    verdict, states = findings(output)["isolation"]
    assert verdict == "wrong"
    assert states.startswith("a transaction is SERIALIZABLE by default, and a worker needs READ COMMITTED: ")
    assert states.endswith("ALTER ROLE postgres SET default_transaction_isolation = 'read committed'")


def test_behind_a_pooler(database: str, server: Server) -> None:
    with PgBouncer(server) as pooler:
        url = database.replace(f":{server.port}/", f":{pooler.port}/")
        listening = holdfast("check", "--json", database=url)
        polling = holdfast("check", "--json", database=url, HOLDFAST_LISTEN="false")
    assert listening.status == 1
    verdict, states = findings(listening)["listen"]
    assert verdict == "wrong"
    assert states.startswith(
        "a pooler shares the server's sessions between its clients. Give workers a direct address,"
    )
    assert polling.status == 0
    assert findings(polling)["listen"][0] == "note"


def test_a_pooler_that_gives_every_client_a_session_lets_notifications_through(database: str, server: Server) -> None:
    with PgBouncer(server, mode="session") as pooler:
        output = holdfast("check", "--json", database=database.replace(f":{server.port}/", f":{pooler.port}/"))
    assert output.status == 0
    assert findings(output)["listen"] == ("ok", "works: idle workers are woken")


def test_settings_that_are_refused(database: str) -> None:
    output = holdfast("check", database=database, HOLDFAST_HEARTBEAT_MS="60000")
    assert output.status == 1
    assert output.err.startswith(
        "holdfast check: the settings are refused: HOLDFAST_HEARTBEAT_MS (60000) must be below"
    )
