from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from psycopg import sql

from tests.cli.auditing import ME, audited
from tests.kit.commands import holdfast
from tests.kit.databases import clone
from tests.kit.workers import Worker, enqueue, job, statuses

if TYPE_CHECKING:
    import psycopg

    from tools.postgres import Server


def control(conn: psycopg.Connection[Any], name: str) -> tuple[Any, ...] | None:
    return conn.execute(
        "SELECT paused, concurrency, lease_ms, rate FROM holdfast.queue WHERE name = %s", [name]
    ).fetchone()


def test_an_empty_database_has_none(database: str) -> None:
    assert holdfast("queues", database=database).out == "No queue has jobs, a control row or a worker.\n"


def test_list(database: str, conn: psycopg.Connection[Any]) -> None:
    Worker(conn, queues=["default"])
    enqueue(conn, job(), job(), job(queue="mail"))
    output = holdfast("queues", "list", database=database)
    head, default, mail, counted = output.out.splitlines()
    assert head.split()[:5] == ["NAME", "STATE", "DUE", "OLDEST", "PENDING"]
    assert default.split()[:3] == ["default", "open", "2"]
    assert mail.split()[:3] == ["mail", "unserved", "1"]
    assert counted.startswith("Live jobs were counted at ")
    listed = holdfast("queues", "--json", database=database).json
    assert [(queue["name"], queue["depth"]["due"]) for queue in listed["items"]] == [("default", 2), ("mail", 1)]


def test_pause_and_resume(database: str, conn: psycopg.Connection[Any]) -> None:
    worker = Worker(conn)
    enqueue(conn, job())
    output = holdfast("queues", "pause", "default", database=database)
    assert output == (
        0,
        "default: paused; what runs goes on, and each worker claims nothing more from its next heartbeat on\n",
        "",
    )
    assert control(conn, "default") == (True, None, None, None)
    assert worker.claim() == []
    assert holdfast("queues", "resume", "default", "--json", database=database).json == {
        "name": "default",
        "action": "resume",
    }
    assert len(worker.claim()) == 1
    assert audited(conn) == [(ME, "queue.pause", "default", None), (ME, "queue.resume", "default", None)]


def test_a_misspelled_queue_is_not_created(database: str, conn: psycopg.Connection[Any]) -> None:
    for words in (("pause", "mial"), ("resume", "mial"), ("set", "mial", "--rate", "1")):
        output = holdfast("queues", *words, database=database)
        assert (output.status, output.out) == (1, "")
        assert "No queue is named mial" in output.err
    assert audited(conn) == []
    assert conn.execute("SELECT name FROM holdfast.queue").fetchall() == []


def test_set_keeps_what_is_not_named(database: str, conn: psycopg.Connection[Any]) -> None:
    enqueue(conn, job(queue="pdf"))
    output = holdfast("queues", "set", "pdf", "--concurrency", "2", "--rate", "0.5", database=database)
    assert output == (0, "pdf: concurrency 2, lease own, rate 0.5\n", "")
    assert control(conn, "pdf") == (False, 2, None, 0.5)
    holdfast("queues", "pause", "pdf", database=database)
    output = holdfast("queues", "set", "pdf", "--lease", "30", "--rate", "own", database=database)
    assert output.out == "pdf: concurrency 2, lease 30, rate own\n"
    assert control(conn, "pdf") == (True, 2, 30000, None)
    assert [line[1] for line in audited(conn)] == ["queue.set", "queue.pause", "queue.set"]
    output = holdfast("queues", "set", "pdf", database=database)
    assert output == (2, "", "holdfast queues: nothing to set for pdf: give --concurrency, --lease, --rate\n")


def test_cancel_waiting_previews_first_and_acts_when_confirmed(database: str, conn: psycopg.Connection[Any]) -> None:
    worker = Worker(conn, queues=["mail"])
    (running,) = enqueue(conn, job(queue="mail"))
    worker.claim()
    waiting = enqueue(conn, *(job(queue="mail") for _ in range(3)))
    (other,) = enqueue(conn, job())
    output = holdfast("queues", "cancel-waiting", "mail", database=database)
    assert output == (0, "mail: 3 jobs would be cancelled. Give --yes to do it.\n", "")
    assert set(statuses(conn).values()) == {"pending", "processing"}
    assert audited(conn) == []
    output = holdfast("queues", "cancel-waiting", "mail", "--limit", "2", "--yes", database=database)
    assert output == (0, "mail: 2 jobs cancelled.\n", "")
    output = holdfast("queues", "cancel-waiting", "mail", "--yes", "--json", database=database)
    assert (output.json["done"], output.json["capped"]) == (1, False)
    assert statuses(conn) == {running: "processing", other: "pending"} | dict.fromkeys(waiting, "cancelled")
    assert [line[3] for line in audited(conn)] == [2, 1]


def test_a_viewer_may_not_act(database: str, conn: psycopg.Connection[Any]) -> None:
    enqueue(conn, job())
    user = f"test_looker_{os.getpid()}"
    conn.execute(sql.SQL("CREATE ROLE {} LOGIN IN ROLE holdfast_viewer").format(sql.Identifier(user)))
    try:
        looker = database.replace("postgres@", f"{user}@")
        assert holdfast("queues", database=looker).status == 0
        output = holdfast("queues", "pause", "default", database=looker)
    finally:
        conn.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(user)))
    assert (output.status, output.out) == (1, "")
    assert "holdfast_operator" in output.err
    assert control(conn, "default") is None


@pytest.mark.parametrize(
    "arguments",
    [
        ["pause"],
        ["pause", ""],
        ["pause", "a\x01b"],
        ["set", "a", "--concurrency", "-1"],
        ["set", "a", "--lease", "0.5"],
        ["set", "a", "--rate", "0"],
        ["set", "a", "--rate", "nan"],
        ["cancel-waiting", "a", "--limit", "0"],
    ],
    ids=repr,
)
def test_called_wrongly(arguments: list[str]) -> None:
    output = holdfast("queues", *arguments)
    assert output.status == 2
    assert output.err.startswith("holdfast queues")
    assert output.err.count("\n") == 1


def test_a_database_without_schema(server: Server) -> None:
    with clone(server, "template0") as empty:
        output = holdfast("queues", "--database-url", empty)
    assert output == (1, "", "holdfast queues: This database has no Holdfast schema: run `holdfast migrate`.\n")


def test_no_server() -> None:
    output = holdfast("queues", database="postgresql://me:hush@127.0.0.1:1/db")
    assert output.status == 1
    assert output.err.startswith("holdfast queues: cannot connect to the database of DATABASE_URL: ")
    assert "hush" not in output.err
