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
from tests.cli.commands import Said, holdfast
from tests.databases import clone
from tests.traps.workers import FAILED, RETRIED, Worker, enqueue, job
from tools.pgbouncer import PgBouncer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import psycopg

    from tools.postgres import Server

SUBJECTS = ["archive", "database", "schema", "rights", "roles", "isolation", "connections", "listen"]


@pytest.fixture
def conn(connect: Callable[..., psycopg.Connection[Any]]) -> psycopg.Connection[Any]:
    return connect()


@contextmanager
def user(conn: psycopg.Connection[Any], database: str, options: str) -> Iterator[str]:
    """Yield the address of a new user of this database."""
    name = f"test_check_{os.getpid()}"
    conn.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'hush' {}").format(sql.Identifier(name), sql.SQL(options)))
    try:
        yield database.replace("postgres@", f"{name}:hush@")
    finally:
        conn.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


def findings(said: Said) -> dict[str, tuple[str, str]]:
    """By subject: verdict and text."""
    return {one["subject"]: (one["verdict"], one["says"]) for one in said.json["findings"]}


def test_all_is_well(database: str, server_version: int) -> None:
    said = holdfast("check", "--json", database=database, HOLDFAST_BATCH_SIZE="70", PDF_RENDER_CONCURRENCY="4")
    assert (said.status, said.err) == (0, "")
    found = findings(said)
    assert list(found) == SUBJECTS
    assert {verdict for verdict, _ in found.values()} == {"ok"}
    assert found["database"][1].endswith(f"PostgreSQL {server_version}")
    assert found["schema"][1] == f"up to date: {migrations()[-1].name}"
    assert found["connections"][1].startswith("6 per process; the server allows 200, 3 of them reserved, ")
    assert said.json["ok"] is True
    settings = {row["name"]: row for row in said.json["settings"]}
    assert list(settings) == [setting.name for setting in SETTINGS]
    assert settings["HOLDFAST_BATCH_SIZE"]["value"] == "70"
    assert settings["HOLDFAST_BATCH_SIZE"]["source"] == "HOLDFAST_BATCH_SIZE"
    assert settings["HOLDFAST_QUEUE_CONCURRENCY"]["source"] == "alias PDF_RENDER_CONCURRENCY"
    assert settings["HOLDFAST_CONCURRENCY"] == settings["HOLDFAST_CONCURRENCY"] | {"value": "10", "source": "default"}


def test_for_people_with_an_application(database: str, shop: Path) -> None:
    odd = {"OUTBOX_BATCH_SIZ": "1", "HOLDFAST_API_SERVICE_TOKEN": "hush"}
    said = holdfast("check", "shop:app", database=database, cwd=shop, **odd)
    assert said.status == 0
    assert said.out.startswith("SETTING")
    assert "note: OUTBOX_BATCH_SIZ is not known: did you mean OUTBOX_BATCH_SIZE?" in said.out
    kinds = "blocking, borrowing, broken, deaf, endless, gated, leaving, quick, stubborn"
    assert f"\n9 kinds: {kinds}\n2 queues: default, slow\n0 runners: -\n" in said.out
    assert "hush" not in said.out + said.err
    for subject in SUBJECTS:
        assert f"  {subject}  " in said.out


def test_one_of_a_thing_is_not_called_many(database: str, tmp_path: Path) -> None:
    (tmp_path / "single.py").write_text(
        """from holdfast import Holdfast, Job

app = Holdfast()


@app.job("charge", queue="pay")
async def charge(job: Job[None]) -> None: ...
"""
    )
    said = holdfast("check", "single:app", database=database, cwd=tmp_path)
    limit = "1 time limit: charge 180 s (3 leases)"
    assert f"\n0 imports: -\n1 kind: charge\n1 queue: pay\n0 runners: -\n0 schedules: -\n{limit}\n" in said.out


def test_a_kind_without_a_limit_of_attempts_is_noted(database: str, shop: Path) -> None:
    shop.joinpath("patient.py").write_text(
        "from holdfast import Holdfast, Job, Retry\n"
        "app = Holdfast()\n"
        "@app.job('sync', retry=Retry(max_attempts=None))\n"
        "async def sync(job: Job[None]) -> None: ...\n"
        "@app.job('other')\n"
        "async def other(job: Job[None]) -> None: ...\n"
    )
    said = holdfast("check", "patient:app", "--json", database=database, cwd=shop)
    assert said.status == 0
    notes = [one["says"] for one in said.json["findings"] if one["verdict"] == "note"]
    assert notes == ["sync has no limit of attempts: failing never makes a dead letter of its jobs"]


def test_what_would_be_waited_for_in_vain(database: str, shop: Path, conn: psycopg.Connection[Any]) -> None:
    enqueue(conn, job("elsewhere", queue="far"))
    run_sync(conn, take_census(every_ms=0))
    subscription = run_sync(conn, subscribe("out", target="t", topics=(), partitions=2, beginning=True)).id
    conn.execute(
        "INSERT INTO holdfast.parked (subscription_id, partition, event_id, holds_key, parked_at) "
        "VALUES (%(id)s, 0, 1, false, now()), (%(id)s, 1, 2, false, now())",
        {"id": subscription},
    )
    said = holdfast("check", "shop:app", "--queues", "slow=1,slwo=1", "--json", database=database, cwd=shop)
    assert said.status == 0
    notes = [(one["subject"], one["says"]) for one in said.json["findings"] if one["verdict"] == "note"]
    (named, queue), *others = notes
    assert named == "kinds"
    assert queue.startswith("no kind names the queue slwo: ")
    assert others == [
        ("kinds", "no live worker takes elsewhere from the queue far: 1 due job"),
        ("events", "2 parked events of out: holdfast events parked out"),
    ]


def test_jobs_that_left_for_another_database_and_did_not_arrive(database: str, conn: psycopg.Connection[Any]) -> None:
    enqueue(conn, *[job() for _ in range(5)])
    ids = [row[0] for row in conn.execute("SELECT id FROM holdfast.job ORDER BY id")]
    for last in (ids[1], ids[2]):
        conn.execute(
            "SELECT holdfast.depart_jobs('6bd0aa8e-9c2e-4b0c-8a4c-3c0d6f8f3f11', 'us', NULL, NULL, 0, %s, 9)", [last]
        )
    conn.execute("UPDATE holdfast.departure SET departed_at = now() - interval '3 hours 5 minutes' WHERE seq = 1")
    left = "3 jobs in 2 batches left for us and did not arrive, the oldest 3h 5m ago"
    said = holdfast("check", "--json", HOLDFAST_DATABASE_URL=f"eu={database}")
    go_on = "unless a move is running, go on with `holdfast move --from eu --to us`"
    assert findings(said)["moving"] == ("note", f"{left}: {go_on}")
    assert said.status == 0
    said = holdfast("check", "--json", database=database)
    assert findings(said)["moving"][1].endswith("`holdfast move --from ADDRESS --to us`")
    conn.execute("UPDATE holdfast.departure SET arrived_at = now(), body = NULL")
    assert "moving" not in findings(holdfast("check", "--json", database=database))


def test_show_says_that_no_live_worker_takes_a_job(database: str, conn: psycopg.Connection[Any]) -> None:
    (waiting,) = enqueue(conn, job("k", queue="mail"))
    said = holdfast("jobs", "show", str(waiting), database=database)
    assert "\nNo live worker takes k from the queue mail.\n" in said.out
    run_sync(conn, register_worker("w", queues=["mail"], kinds=["k"]))
    assert holdfast("jobs", "show", "--json", str(waiting), database=database).json["served"] is True


def test_show_prints_the_last_traceback_and_how_long_attempts_ran(database: str, conn: psycopg.Connection[Any]) -> None:
    worker = Worker(conn)
    (made,) = enqueue(conn, job("k"))
    traced = "  File 'shop.py', line 1, in send\nOSError: no \x1b[31mroute"
    for outcome in (RETRIED, FAILED):
        [claimed] = worker.claim()
        run_sync(conn, finish_jobs(worker.id, [Ending(claimed, outcome, 1.5, f"{traced} {claimed.attempt}")]))
    said = holdfast("jobs", "show", str(made), database=database).out
    assert "ATTEMPT  OUTCOME  STARTED" in said
    assert said.count("  1.500  ") == 2
    assert "\nTraceback of attempt 2\n    File 'shop.py', line 1, in send\n  OSError: no \\x1b[31mroute 2\n" in said
    story = holdfast("jobs", "show", "--json", str(made), database=database).json
    assert [one["traceback"] for one in story["attempts"]] == [f"{traced} 1", f"{traced} 2"]


def test_no_database() -> None:
    said = holdfast("check", "--json")
    assert said.status == 1
    assert findings(said)["database"] == (
        "wrong",
        "no database: set HOLDFAST_DATABASE_URL or DATABASE_URL, or give the application one: Holdfast(url)",
    )


def test_one_of_two_databases_is_away(database: str) -> None:
    said = holdfast("check", "--json", HOLDFAST_DATABASE_URL=f"postgresql://me:hush@127.0.0.1:1/away {database}")
    assert said.status == 1
    archive, first, *others = said.json["findings"]
    assert archive["subject"] == "archive"
    assert (first["verdict"], first["database"]) == ("wrong", "away")
    assert first["says"].startswith("cannot connect to the database of HOLDFAST_DATABASE_URL, away: ")
    assert ["archive", *(one["subject"] for one in others)] == [*SUBJECTS, "placement"]
    assert {one["verdict"] for one in others} == {"ok"}
    assert "hush" not in said.out + said.err


@pytest.mark.parametrize("address", ["postgresql://me:a@hush@there/db", "postgresql://me:p/hush@there/db"])
def test_an_address_that_cannot_be_read_is_not_repeated(address: str) -> None:
    said = holdfast("check", "--json", DATABASE_URL=address)
    assert said.status == 1
    assert "hush" not in "".join(one["says"] for one in said.json["findings"]) + said.err


def test_no_schema(server: Server) -> None:
    with clone(server, "template0") as empty:
        said = holdfast("check", "--json", database=empty)
    assert said.status == 1
    assert findings(said)["schema"] == ("wrong", "This database has no Holdfast schema: run `holdfast migrate`.")
    assert "rights" not in findings(said)


def test_more_connections_than_there_are(database: str) -> None:
    said = holdfast("check", "--json", database=database, HOLDFAST_MAX_CONNECTIONS="198")
    assert said.status == 1
    verdict, says = findings(said)["connections"]
    assert verdict == "wrong"
    assert "not one process fits" in says


def test_the_limit_of_a_user(database: str, conn: psycopg.Connection[Any]) -> None:
    with user(conn, database, "IN ROLE holdfast_worker CONNECTION LIMIT 4") as url:
        said = holdfast("check", "--json", database=url)
    assert said.status == 1
    assert findings(said)["rights"][0] == "ok"
    assert findings(said)["roles"] == ("ok", "all there; this user has holdfast_worker")
    assert "this database or user at most 4: not one process fits" in findings(said)["connections"][1]
    assert "hush" not in said.out


def test_a_viewer_cannot_work(database: str, conn: psycopg.Connection[Any]) -> None:
    with user(conn, database, "IN ROLE holdfast_viewer") as url:
        said = holdfast("check", "--json", database=url)
    assert said.status == 1
    name = f"test_check_{os.getpid()}"
    assert findings(said)["rights"] == ("wrong", f"{name} may look but not work: GRANT holdfast_worker TO {name}")


def test_transactions_that_are_stricter_by_default(database: str, conn: psycopg.Connection[Any]) -> None:
    name = sql.Identifier(conn.info.dbname)
    conn.execute(sql.SQL("ALTER DATABASE {} SET default_transaction_isolation = 'serializable'").format(name))
    said = holdfast("check", "--json", database=database)
    assert said.status == 1
    verdict, says = findings(said)["isolation"]
    assert verdict == "wrong"
    assert says.startswith("a transaction is SERIALIZABLE by default, and a worker needs READ COMMITTED: ")
    assert says.endswith("ALTER ROLE postgres SET default_transaction_isolation = 'read committed'")


def test_behind_a_pooler(database: str, server: Server) -> None:
    with PgBouncer(server) as pooler:
        url = database.replace(f":{server.port}/", f":{pooler.port}/")
        listening = holdfast("check", "--json", database=url)
        polling = holdfast("check", "--json", database=url, HOLDFAST_LISTEN="false")
    assert listening.status == 1
    verdict, says = findings(listening)["listen"]
    assert verdict == "wrong"
    assert says.startswith("a pooler shares the server's sessions between its clients. Give workers a direct address,")
    assert polling.status == 0
    assert findings(polling)["listen"][0] == "note"


def test_a_pooler_that_gives_every_client_a_session_lets_notifications_through(database: str, server: Server) -> None:
    with PgBouncer(server, mode="session") as pooler:
        said = holdfast("check", "--json", database=database.replace(f":{server.port}/", f":{pooler.port}/"))
    assert said.status == 0
    assert findings(said)["listen"] == ("ok", "works: idle workers are woken")


def test_settings_that_are_refused(database: str) -> None:
    said = holdfast("check", database=database, HOLDFAST_HEARTBEAT_MS="60000")
    assert said.status == 1
    assert said.err.startswith("holdfast check: the settings are refused: HOLDFAST_HEARTBEAT_MS (60000) must be below")
