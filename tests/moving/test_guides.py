"""The guides of how to move, followed with the libraries themselves (marked prove: they are installed)."""

from __future__ import annotations

import json
import os
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import psycopg
import psycopg.sql
import pytest

from labs.bench.peers.place import place
from labs.bench.peers.roster import BY_NAME
from tests.cli.outbox import add, imported, statuses
from tests.kit.commands import PATIENCE, environment
from tests.kit.sessions import await_condition
from tests.kit.workers import number
from tests.moving.guide import Guide

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Connect = Callable[..., psycopg.Connection[Any]]

ROOT = Path(__file__).parents[2]
PEERS = Path(__file__).parent / "peers"
CELERY = ("celery==5.7.0", "sqlalchemy==2.0.51", "psycopg[binary]==3.3.8", "pydantic", "cronsim")


def peer(
    name: str, *arguments: str, python: Sequence[str] = (), variables: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Run a program with the packages of a peer, and return its output."""
    interpreter = place(name, python=python or BY_NAME[name].python) / "bin" / "python"
    done = subprocess.run(  # noqa: S603 - our own programs
        [str(interpreter), *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env={**os.environ, **variables},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def completed(conn: psycopg.Connection[Any]) -> list[tuple[str, object]]:
    return conn.execute("SELECT kind, result FROM holdfast.job_history ORDER BY id").fetchall()


def waiting(conn: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    """Payload and due time, in whole hours from now, of jobs that wait."""
    return conn.execute(
        "SELECT payload, round(extract(epoch FROM available_at - now()) / 3600)::integer FROM holdfast.job ORDER BY id"
    ).fetchall()


def await_jobs(conn: psycopg.Connection[Any], jobs: int) -> None:
    await_condition(conn, f"(SELECT count(*) FROM holdfast.job) >= {jobs}", seconds=60)


# What goes wrong, what mends it, and what the bridge reports.
FAULTS = (
    ("ALTER SCHEMA holdfast RENAME TO away", "ALTER SCHEMA away RENAME TO holdfast", "SchemaMissing"),
    (
        "ALTER DATABASE {} SET default_transaction_read_only = on",
        "ALTER DATABASE {} RESET default_transaction_read_only",
        "ReadOnlySqlTransaction",
    ),
    (
        """CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(60); RETURN NEW; END $$;
        CREATE TRIGGER cut BEFORE INSERT ON holdfast.job FOR EACH ROW EXECUTE FUNCTION cut()""",
        "DROP FUNCTION cut() CASCADE",
        "AdminShutdown",
    ),
    (
        "ALTER TABLE holdfast.job ADD CONSTRAINT shut CHECK (priority > 9) NOT VALID",
        "ALTER TABLE holdfast.job DROP CONSTRAINT shut",
        "check constraint",
    ),
)


# An import says itself that its transactions write.
STOPPING = [fault for fault in FAULTS if "read_only" not in fault[0]]


@contextmanager
def broken(conn: psycopg.Connection[Any], fault: tuple[str, str, str]) -> Iterator[None]:
    """Let something go wrong with the database, and mend it again."""
    name = psycopg.sql.Identifier(conn.info.dbname).as_string()
    conn.execute(fault[0].format(name).encode())
    yield
    conn.execute(fault[1].format(name).encode())


def moved(conn: psycopg.Connection[Any], guide: Guide, table: str, left: tuple[str, str]) -> None:
    """Follow a guide for a peer that has two jobs that are due, one for tomorrow, an invalid one and an unknown one.

    `left`: the column and its value of a job that a killed worker has left behind, here a copy of the first.
    """
    guide.write_files()
    column, running = left
    conn.execute(f"CREATE TEMP TABLE copied AS SELECT * FROM {table} WHERE id = 1".encode())
    conn.execute(f"UPDATE copied SET id = 1000, {column} = %s".encode(), [running])
    conn.execute(f"INSERT INTO {table} OVERRIDING SYSTEM VALUE SELECT * FROM copied".encode())
    for fault in STOPPING:
        with broken(conn, fault):
            failed = guide.run(*guide.commands()[1])
        assert (failed.status, "Traceback" in failed.err) == (1, False), failed
        assert number(conn, "SELECT count(*) FROM holdfast.imported") == 0
    preview, apply = guide.preview_and_apply()
    assert "Nothing was written. --apply imports 3 rows.\n" in preview.out, preview
    assert (preview.status, apply.status) == (1, 1)
    assert "imported 3 rows as jobs" in apply.out, apply
    assert "Refused and left: 1 row\n" in apply.out
    assert "2 rows left, not imported:" in apply.out
    guide.work()
    assert completed(conn) == [("order.ship", "shipped 1"), ("order.ship", "shipped 2")]
    assert waiting(conn) == [({"order_id": 3}, 24)]
    again = guide.run(*guide.commands()[1], "--json").json
    assert (again["rows"], again["refused"]) == (0, 1)
    condition = f"{column}={running}"
    assert f"`--where {condition}`" in guide.text
    answer = guide.run(*guide.commands()[1], "--where", condition)
    assert "imported 1 row as jobs" in answer.out, answer
    guide.work()
    assert completed(conn)[2:] == [("order.ship", "shipped 1")]


@pytest.mark.prove
def test_procrastinate(database: str, conn: psycopg.Connection[Any], tmp_path: Path) -> None:
    program = str(PEERS / "procrastinate_jobs.py")
    peer("procrastinate", program, database, "defer")
    moved(conn, Guide("move-from-procrastinate.md", tmp_path, database), "procrastinate_jobs", ("status", "doing"))
    assert conn.execute("SELECT order_key FROM holdfast.job_history ORDER BY id").fetchall() == [
        (None,),
        ("customer 7",),
        (None,),
    ]
    # Its own worker runs what was left to it, and nothing else.
    peer("procrastinate", program, database, "work")
    found = conn.execute("SELECT id, status::text FROM procrastinate_jobs WHERE id < 1000 ORDER BY id").fetchall()
    assert found == [(1, "cancelled"), (2, "cancelled"), (3, "cancelled"), (4, "failed"), (5, "succeeded")]


@pytest.mark.prove
def test_pgqueuer(database: str, conn: psycopg.Connection[Any], tmp_path: Path) -> None:
    program = str(PEERS / "pgqueuer_jobs.py")
    peer("pgqueuer", program, database, "enqueue")
    moved(conn, Guide("move-from-pgqueuer.md", tmp_path, database), "pgqueuer", ("status", "picked"))
    assert conn.execute("SELECT id FROM pgqueuer ORDER BY id").fetchall() == [(4,), (5,)]
    assert peer("pgqueuer", program, database, "work") == "ran b'\\x00\\xff'\n"


@pytest.mark.prove
def test_oban(database: str, conn: psycopg.Connection[Any], tmp_path: Path) -> None:
    peer("oban", str(PEERS / "oban_jobs.py"), database)
    moved(conn, Guide("move-from-oban.md", tmp_path, database), "oban_jobs", ("state", "executing"))
    found = conn.execute(
        "SELECT id, state::text, cancelled_at IS NOT NULL FROM oban_jobs WHERE id < 1000 ORDER BY id"
    ).fetchall()
    assert found == [(n, "cancelled", True) for n in (1, 2, 3)] + [(n, "available", False) for n in (4, 5)]


def with_celery(database: str, folder: Path) -> dict[str, str]:
    """The variables of the guide, with a broker for which Celery needs no server."""
    broker = f"sqla+sqlite:///{folder / 'broker.sqlite'}"
    return environment(database, CELERY_BROKER_URL=broker, PYTHONPATH=str(ROOT / "src"))


@contextmanager
def celery_worker(folder: Path, variables: dict[str, str]) -> Iterator[Path]:
    """Run the worker of the guide, and yield its log."""
    log = folder / "celery.log"
    options = ["--pool", "solo", "--without-gossip", "--without-mingle", "--loglevel", "INFO"]
    python = str(place("celery-results", python=CELERY) / "bin" / "python")
    with (
        log.open("w") as output,
        subprocess.Popen(  # noqa: S603 - our own programs
            [python, "-m", "celery", "-A", "shop.tasks", "worker", *options],
            cwd=folder,
            env=variables,
            stdout=output,
            stderr=output,
        ) as worker,
    ):
        try:
            yield log
        finally:
            worker.terminate()
            worker.wait(PATIENCE)


@pytest.mark.prove
def test_celery_forwards_its_tasks(database: str, conn: psycopg.Connection[Any], tmp_path: Path) -> None:
    guide = Guide("move-from-celery.md", tmp_path, database)
    guide.write_files()
    variables = with_celery(database, tmp_path)
    peer("celery-results", str(PEERS / "celery_tasks.py"), "send", python=CELERY, variables=variables)
    with celery_worker(tmp_path, variables):
        await_jobs(conn, 3)
    guide.work()
    assert sorted(completed(conn)) == [("order.ship", f"shipped {n}") for n in (1, 2, 3)]
    assert number(conn, "SELECT count(*) FROM holdfast.inbox WHERE consumer = 'celery'") == 3


@pytest.mark.prove
def test_celery_keeps_its_tasks_through_every_error(
    database: str, conn: psycopg.Connection[Any], tmp_path: Path
) -> None:
    guide = Guide("move-from-celery.md", tmp_path, database)
    guide.write_files()
    bridge = tmp_path / "shop" / "tasks.py"
    bridge.write_text(bridge.read_text().replace("countdown=5", "countdown=0.2"))
    variables = with_celery(database, tmp_path)

    def send(**arguments: object) -> None:
        program = str(PEERS / "celery_tasks.py")
        peer("celery-results", program, "send-one", json.dumps(arguments), python=CELERY, variables=variables)

    with celery_worker(tmp_path, variables) as log:
        send(order=0)
        await_line(log, "InvalidJob")
        for order, fault in enumerate(FAULTS, 1):
            with broken(conn, fault):
                send(order_id=order)
                await_line(log, fault[2])
            await_jobs(conn, order)
        # The one that does not fit is still there, and holds up no other.
        seen = log.read_text().count("InvalidJob")
        await_line(log, "InvalidJob", more_than=seen)
    guide.work()
    assert sorted(completed(conn)) == [("order.ship", f"shipped {n}") for n in range(1, len(FAULTS) + 1)]


def await_line(log: Path, text: str, *, more_than: int = 0) -> None:
    """Return when the log has the text; fail after a minute."""
    deadline = time.monotonic() + 60
    while log.read_text().count(text) <= more_than:
        assert time.monotonic() < deadline, log.read_text()[-5_000:]
        time.sleep(0.05)


@pytest.mark.prove
def test_celery_keeps_a_task_when_the_broker_takes_no_copy(database: str, tmp_path: Path) -> None:
    Guide("move-from-celery.md", tmp_path, database).write_files()
    # The database and the broker are both away, and the message is one that a worker has received.
    code = """
from celery.exceptions import Reject
from shop.tasks import ship
ship.push_request(id="7", args=[7], kwargs={}, called_directly=False, retries=0, is_eager=False)
try:
    ship.run(7)
except Reject as reject:
    print("requeue", reject.requeue)
"""
    variables = environment("postgresql://127.0.0.1:1/none", CELERY_BROKER_URL="amqp://127.0.0.1:1//")
    path = os.pathsep.join([str(ROOT / "src"), str(tmp_path)])
    assert (
        peer("celery-results", "-c", code, python=CELERY, variables={**variables, "PYTHONPATH": path})
        == "requeue True\n"
    )


@pytest.mark.prove
def test_celerys_failed_tasks_are_run_again(database: str, conn: psycopg.Connection[Any], tmp_path: Path) -> None:
    variables = {"DATABASE_URL": database, "CELERY_BROKER_URL": "memory://"}
    peer("celery-results", str(PEERS / "celery_tasks.py"), "store", python=CELERY, variables=variables)
    guide = Guide("move-from-celery.md", tmp_path, database)
    (query,) = guide.texts("sql")
    results = conn.execute(query.strip().encode()).fetchall()
    assert [(status, result) for _, status, result, _ in results][-1] == ("SUCCESS", "shipped")
    guide.write_files()
    preview, apply = guide.preview_and_apply()
    assert "--apply imports 2 rows." in preview.out
    assert "imported 2 rows as jobs" in apply.out
    assert "Refused and left: 1 row\n" in apply.out
    guide.work()
    assert completed(conn) == [("order.ship", "shipped 2"), ("order.ship", "shipped 3")]


def test_an_outbox(database: str, conn: psycopg.Connection[Any], tmp_path: Path) -> None:
    guide = Guide("move-from-an-outbox.md", tmp_path, database)
    (made,) = guide.texts("sql")
    conn.execute(made.encode())
    add(conn, 3)
    conn.execute("INSERT INTO event_outbox (event_type, payload, status) VALUES ('order.placed', '{}', 'sent')")
    guide.write_files()
    preview, apply = guide.preview_and_apply()
    assert "--apply imports 3 rows." in preview.out
    assert apply.status == 0, apply
    assert apply.out.endswith("No row is left to import.\n")
    assert statuses(conn) == {"sent": 4}
    assert len(imported(conn)) == 3
    guide.work()
    assert completed(conn) == [("order.ship", f"shipped {n}") for n in (1, 2, 3)]
    conn.execute("DELETE FROM holdfast.imported WHERE source = 'public.event_outbox'")
    assert number(conn, "SELECT count(*) FROM holdfast.imported") == 0


@pytest.mark.parametrize("fault", STOPPING, ids=lambda fault: fault[2])
def test_an_import_that_fails_takes_no_row(
    database: str, conn: psycopg.Connection[Any], tmp_path: Path, fault: tuple[str, str, str]
) -> None:
    guide = Guide("move-from-an-outbox.md", tmp_path, database)
    (made,) = guide.texts("sql")
    conn.execute(made.encode())
    add(conn, 3)
    guide.write_files()
    with broken(conn, fault):
        failed = guide.run(*guide.commands()[1])
    assert (failed.status, statuses(conn)) == (1, {"pending": 3}), failed
    assert "Traceback" not in failed.err
    assert guide.run(*guide.commands()[1]).status == 0
    assert len(imported(conn)) == 3


def test_the_guides_name_the_versions_that_are_tried() -> None:
    packages = {name: BY_NAME[name].python[0] for name in ("procrastinate", "pgqueuer", "oban")} | {"celery": CELERY[0]}
    shown = {"oban": "Oban for Python", "celery": "Celery"}
    for name, package in packages.items():
        tried = f"{shown.get(name, name)} {package.partition('==')[2]}"
        assert tried in (ROOT / "docs" / "how-to" / f"move-from-{name}.md").read_text()
