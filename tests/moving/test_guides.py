"""The guides of how to move, followed with the libraries themselves (marked prove: they are installed)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest

from bench.peers.place import place
from bench.peers.roster import BY_NAME
from tests.cli.commands import PATIENCE, environment
from tests.cli.outbox import add, imported, statuses
from tests.moving.guide import Guide
from tests.traps.workers import number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import psycopg

    Connect = Callable[..., psycopg.Connection[Any]]

ROOT = Path(__file__).parents[2]
PEERS = Path(__file__).parent / "peers"
CELERY = ("celery==5.7.0", "sqlalchemy==2.0.51", "psycopg[binary]==3.3.8", "pydantic", "cronsim")


@pytest.fixture
def conn(connect: Connect) -> psycopg.Connection[Any]:
    return connect()


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
    """Return when there are so many jobs; fail after a minute."""
    conn.execute(
        f"""
        DO $$
        DECLARE
            deadline timestamptz := clock_timestamp() + interval '60 seconds';
        BEGIN
            WHILE (SELECT count(*) FROM holdfast.job) < {int(jobs)} LOOP
                ASSERT clock_timestamp() < deadline, 'too few jobs';
                PERFORM pg_sleep(0.01);
            END LOOP;
        END $$
        """.encode()
    )


def moved(conn: psycopg.Connection[Any], guide: Guide) -> None:
    """Follow a guide for a peer that has two jobs that are due, one for tomorrow, an invalid one and an unknown one."""
    guide.write_files()
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


@pytest.mark.prove
def test_procrastinate(database: str, conn: psycopg.Connection[Any], tmp_path: Path) -> None:
    program = str(PEERS / "procrastinate_jobs.py")
    peer("procrastinate", program, database, "defer")
    moved(conn, Guide("move-from-procrastinate.md", tmp_path, database))
    assert conn.execute("SELECT order_key FROM holdfast.job_history ORDER BY id").fetchall() == [
        (None,),
        ("customer 7",),
    ]
    # Its own worker runs what was left to it, and nothing else.
    peer("procrastinate", program, database, "work")
    found = conn.execute("SELECT id, status::text FROM procrastinate_jobs ORDER BY id").fetchall()
    assert found == [(1, "cancelled"), (2, "cancelled"), (3, "cancelled"), (4, "failed"), (5, "succeeded")]


@pytest.mark.prove
def test_pgqueuer(database: str, conn: psycopg.Connection[Any], tmp_path: Path) -> None:
    program = str(PEERS / "pgqueuer_jobs.py")
    peer("pgqueuer", program, database, "enqueue")
    moved(conn, Guide("move-from-pgqueuer.md", tmp_path, database))
    assert conn.execute("SELECT id FROM pgqueuer ORDER BY id").fetchall() == [(4,), (5,)]
    assert peer("pgqueuer", program, database, "work") == "ran b'\\x00\\xff'\n"


@pytest.mark.prove
def test_oban(database: str, conn: psycopg.Connection[Any], tmp_path: Path) -> None:
    peer("oban", str(PEERS / "oban_jobs.py"), database)
    moved(conn, Guide("move-from-oban.md", tmp_path, database))
    found = conn.execute("SELECT id, state::text, cancelled_at IS NOT NULL FROM oban_jobs ORDER BY id").fetchall()
    assert found == [(n, "cancelled", True) for n in (1, 2, 3)] + [(n, "available", False) for n in (4, 5)]


@pytest.mark.prove
def test_celery_forwards_its_tasks(database: str, conn: psycopg.Connection[Any], tmp_path: Path) -> None:
    guide = Guide("move-from-celery.md", tmp_path, database)
    guide.write_files()
    # A broker for which Celery needs no server.
    broker = f"sqla+sqlite:///{tmp_path / 'broker.sqlite'}"
    variables = environment(database, CELERY_BROKER_URL=broker, PYTHONPATH=str(ROOT / "src"))
    peer("celery-results", str(PEERS / "celery_tasks.py"), "send", python=CELERY, variables=variables)
    worker = subprocess.Popen(  # noqa: S603 - the worker of the guide
        [
            str(place("celery-results", python=CELERY) / "bin" / "python"),
            *[
                "-m",
                "celery",
                "-A",
                "shop.tasks",
                "worker",
                "--pool",
                "solo",
                "--without-gossip",
                "--without-mingle",
                "--loglevel",
                "ERROR",
            ],
        ],
        cwd=tmp_path,
        env=variables,
    )
    try:
        await_jobs(conn, 3)
    finally:
        worker.terminate()
        worker.wait(PATIENCE)
    guide.work()
    assert sorted(completed(conn)) == [("order.ship", f"shipped {n}") for n in (1, 2, 3)]
    assert number(conn, "SELECT count(*) FROM holdfast.inbox WHERE consumer = 'celery'") == 3


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


def test_the_guides_name_the_versions_that_are_tried() -> None:
    packages = {name: BY_NAME[name].python[0] for name in ("procrastinate", "pgqueuer", "oban")} | {"celery": CELERY[0]}
    shown = {"oban": "Oban for Python", "celery": "Celery"}
    for name, package in packages.items():
        tried = f"{shown.get(name, name)} {package.partition('==')[2]}"
        assert tried in (ROOT / "docs" / "how-to" / f"move-from-{name}.md").read_text()
