from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql

from holdfast._drivers import run_sync
from holdfast._engine.jobs.journal import NEVER
from holdfast._model.new_job import OrderKey
from holdfast._model.outcome import Completed, Rescheduled
from holdfast._model.unique import Unique
from holdfast._store.finish import Ending, finish_jobs
from holdfast._store.lease import Held
from holdfast._store.step import NewStep, gather_jobs, save_steps, take_message
from tests.cli.auditing import ME, audited
from tests.kit.commands import PATIENCE, environment, holdfast
from tests.kit.databases import clone
from tests.kit.workers import COMPLETED, FAILED, RETRIED, Worker, enqueue, job, number, statuses

if TYPE_CHECKING:
    from collections.abc import Callable

    from tools.postgres import Server

    Connect = Callable[..., psycopg.Connection[Any]]


@pytest.fixture
def worker(conn: psycopg.Connection[Any]) -> Worker:
    return Worker(conn)


def failed(worker: Worker, **options: Any) -> int:
    """A dead letter."""
    (made,) = enqueue(worker.conn, job("k", '{"n": 1}', **options))
    worker.end(worker.claim(), FAILED)
    return made


def ids(*arguments: str, database: str) -> list[int]:
    output = holdfast("jobs", "list", "--json", *arguments, database=database)
    assert (output.status, output.err) == (0, "")
    return [line["id"] for line in output.json]


def test_list_and_its_filters(database: str, conn: psycopg.Connection[Any], worker: Worker) -> None:
    done, dead = enqueue(conn, job(), job(order_key="customer 7"))
    claimed = worker.claim()
    worker.end([one for one in claimed if one.id == done])
    worker.end([one for one in claimed if one.id == dead], FAILED)
    waiting, other, running = enqueue(conn, job("other"), job("other", queue="mail"), job())
    worker.claim()
    assert ids(database=database) == [running, other, waiting, dead, done]
    assert ids("--limit", "2", database=database) == [running, other]
    assert ids("--status", "completed", database=database) == [done]
    assert ids("--status", "failed", database=database) == [dead]
    assert ids("--status", "processing", database=database) == [running]
    assert ids("--status", "pending", "--kind", "other", database=database) == [other, waiting]
    assert ids("--queue", "mail", database=database) == [other]
    assert ids("--order-key", "customer 7", database=database) == [dead]
    assert ids("--kind", "k' OR true --", database=database) == []


def test_a_table_for_people(database: str, conn: psycopg.Connection[Any], worker: Worker) -> None:
    assert holdfast("jobs", "list", database=database) == (0, "No such jobs.\n", "")
    made = failed(worker)
    enqueue(conn, *(job() for _ in range(3)))
    output = holdfast("jobs", "list", "--limit", "4", database=database)
    head, *lines, more = output.out.splitlines()
    assert head.split() == ["ID", "STATUS", "KIND", "QUEUE", "ATTEMPT", "CREATED", "DUE", "OR", "ENDED", "ERROR"]
    assert lines[-1].split()[:5] == [str(made), "failed", "k", "default", "1/3"]
    assert lines[-1].endswith("Z  Broken")
    assert lines[0].split()[1] == "pending"
    assert more == "The newest 4. There may be more."
    assert "\x1b" not in output.out


@pytest.mark.parametrize("variables", [{}, {"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_colour_is_for_terminals(database: str, worker: Worker, variables: dict[str, str]) -> None:
    failed(worker)
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", "jobs", "list"],
            env=environment(database, **{"TERM": "xterm", "COLUMNS": "160", **variables}),
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=subprocess.PIPE,
        )
        os.close(theirs)
        output = b""
        with suppress(OSError):  # how a terminal says that nobody writes any more
            while piece := os.read(ours, 65536):
                output += piece
        _, error = process.communicate(timeout=PATIENCE)
    finally:
        os.close(ours)
    assert (process.returncode, error) == (0, b"")
    assert b"failed" in output
    assert (b"\x1b[1;31mfailed" in output) == (not variables)
    assert (b"\x1b" in output) == (not variables)


def test_what_is_stored_cannot_move_the_cursor(database: str, conn: psycopg.Connection[Any]) -> None:
    enqueue(conn, job())
    conn.execute("UPDATE holdfast.job SET last_error = E'\\x1b[2Jgone\\nnext'")
    output = holdfast("jobs", "show", "1", database=database)
    assert "\x1b" not in output.out
    assert r"\x1b[2Jgone\nnext" in output.out


def test_the_whole_story(database: str, conn: psycopg.Connection[Any], worker: Worker) -> None:
    (made,) = enqueue(conn, job("k", '{"invoice": 7, "b": 1.0}'))
    worker.end(worker.claim(), RETRIED)
    worker.end(worker.claim(), FAILED)
    (again,) = [
        int(word) for word in holdfast("jobs", "retry", str(made), database=database).out.split() if word.isdecimal()
    ]
    story = holdfast("jobs", "show", str(made), "--json", database=database).json
    assert story["job"]["status"] == "failed"
    assert story["job"]["payload"] == {"invoice": 7, "b": 1.0}
    assert story["job"]["finished_at"].endswith("+00:00")
    assert [(one["attempt"], one["outcome"], one["error"]) for one in story["attempts"]] == [
        (1, "retry", "it broke"),
        (2, "failed", "it broke"),
    ]
    assert story["worker"]["name"] == "tester"
    assert [(one["id"], one["status"]) for one in story["replays"]] == [(again, "pending")]

    reported = holdfast("jobs", "show", str(made), database=database).out
    assert "Attempts (2)" in reported
    assert "Worker 1: tester" in reported
    assert f"Replayed as\nID  STATUS   CREATED\n{again} " in reported

    (claimed,) = worker.claim()
    run_sync(conn, finish_jobs(worker.id, [Ending(claimed, COMPLETED, 1.25)]))
    story = holdfast("jobs", "show", str(again), "--json", database=database).json
    assert (story["job"]["status"], story["job"]["replay_of"], story["replay_of"]["id"]) == ("completed", made, made)
    assert [(one["attempt"], one["outcome"], one["seconds"]) for one in story["attempts"]] == [(1, "completed", 1.25)]
    ended, started = (datetime.fromisoformat(story["attempts"][0][name]) for name in ("ended_at", "started_at"))
    assert ended - started == timedelta(seconds=1.25)
    reported = holdfast("jobs", "show", str(again), database=database).out
    assert f"Replays {made}, which failed." in reported
    assert "Attempts (1)" in reported


def test_a_job_without_a_limit_of_attempts(database: str, conn: psycopg.Connection[Any], worker: Worker) -> None:
    (endless,) = enqueue(conn, job("k", max_attempts=None))
    worker.end(worker.claim(), RETRIED)
    reported = holdfast("jobs", "show", str(endless), database=database).out
    assert re.search(r"^max_attempts +no limit$", reported, re.MULTILINE)
    assert holdfast("jobs", "show", str(endless), "--json", database=database).json["job"]["max_attempts"] is None
    acting = holdfast("jobs", "cancel", "--status", "pending", database=database)
    for output in (holdfast("jobs", "list", database=database), acting):
        assert re.search(rf"^{endless} +pending +k +default +1 +\d", output.out, re.MULTILINE), output.out


def test_show_what_is_not_there(database: str) -> None:
    output = holdfast("jobs", "show", "999", database=database)
    assert output.status == 1
    assert output.err == (
        "holdfast jobs: job 999 does not exist: it was never committed, was deleted, or its history has expired. "
        "See `holdfast jobs list`\n"
    )


def test_retry(database: str, conn: psycopg.Connection[Any], worker: Worker) -> None:
    dead, unique = failed(worker), failed(worker, unique=Unique("u"))
    waiting, holder = enqueue(conn, job("other"), job(unique=Unique("u")))
    output = holdfast("jobs", "retry", "--json", *map(str, (dead, unique, waiting, 999)), database=database)
    assert output.status == 1
    assert [(one["id"], one["result"]) for one in output.json] == [
        (dead, "retried"),
        (unique, "refused"),
        (waiting, "refused"),
        (999, "refused"),
    ]
    assert [one["message"] for one in output.json][1:] == [
        f"another live job has its unique key: {holder}",
        "is pending: only a dead letter (failed) can be retried",
        "does not exist, see `holdfast jobs list`: only a dead letter (failed) can be retried",
    ]
    assert number(conn, "SELECT count(*) FROM holdfast.job WHERE replay_of = %s", dead) == 1


def test_one_that_cannot_be_retried_holds_up_no_other(
    database: str, conn: psycopg.Connection[Any], worker: Worker
) -> None:
    (chain,) = enqueue(conn, job())
    worker.end(worker.claim())
    first, orphan, last = failed(worker), failed(worker, after=[chain]), failed(worker)
    conn.execute("DELETE FROM holdfast.job_history")
    output = holdfast("jobs", "retry", *map(str, (first, orphan, last)), database=database)
    assert (output.status, output.err) == (1, "")
    assert output.out.splitlines()[1] == (
        f"{orphan}: comes after other chains: there is no chain {chain}: it was deleted, or ended too long ago"
    )
    replayed = "SELECT replay_of FROM holdfast.job WHERE replay_of IS NOT NULL ORDER BY 1"
    assert conn.execute(replayed.encode()).fetchall() == [(first,), (last,)]


def test_cancel(database: str, conn: psycopg.Connection[Any], worker: Worker) -> None:
    running, waiting = enqueue(conn, job(), job("other"))
    worker.claim()
    output = holdfast("jobs", "cancel", str(running), str(waiting), database=database)
    assert (output.status, output.err) == (0, "")
    assert output.out.splitlines()[1] == f"{waiting}: cancelled"
    assert output.out.startswith(f"{running}: will be cancelled")
    assert statuses(conn) == {running: "processing", waiting: "cancelled"}
    output = holdfast("jobs", "cancel", str(waiting), database=database)
    assert output == (1, f"{waiting}: is cancelled: only a live job can be cancelled\n", "")


def test_delete(database: str, conn: psycopg.Connection[Any], worker: Worker) -> None:
    running, waiting, later = enqueue(conn, job(), job("other"), job("other", delay=timedelta(days=1)))
    worker.claim()
    dead = number(conn, "SELECT max(id) FROM holdfast.job") + 1
    assert failed(worker) == dead
    every = [str(one) for one in (running, waiting, later, dead, 999)]
    output = holdfast("jobs", "delete", *every, database=database)
    assert output.status == 2
    assert output.err.startswith("holdfast jobs: deleting keeps nothing of a job: give --yes")
    assert len(statuses(conn)) == 4
    output = holdfast("jobs", "delete", "--yes", "--json", *every, database=database)
    assert output.status == 1
    assert [one["result"] for one in output.json] == ["refused", "deleted", "deleted", "refused", "refused"]
    assert output.json[3]["message"] == "is failed: only a job that waits can be deleted; history ages out"
    assert statuses(conn) == {running: "processing", dead: "failed"}


def test_deleting_the_head_of_an_order_key_lets_the_next_go_on(
    database: str, conn: psycopg.Connection[Any], worker: Worker
) -> None:
    first, second, third = enqueue(conn, *(job(order_key="key") for _ in range(3)))
    (claimed,) = worker.claim()
    assert statuses(conn) == {first: "processing", second: "blocked", third: "blocked"}
    worker.end([claimed], RETRIED)
    assert holdfast("jobs", "delete", "--yes", str(first), database=database).status == 0
    assert statuses(conn) == {second: "pending", third: "blocked"}
    assert [one.id for one in worker.claim()] == [second]
    assert holdfast("jobs", "delete", "--yes", str(third), database=database).status == 0
    assert statuses(conn) == {second: "processing"}


def test_deleting_in_a_stopped_order_key_does_not_let_it_go_on(
    database: str, conn: psycopg.Connection[Any], worker: Worker
) -> None:
    key = OrderKey("key", on_failure="block")
    first, second, third = enqueue(conn, *(job(order_key=key) for _ in range(3)))
    worker.end(worker.claim(), FAILED)
    assert worker.claim() == []
    assert holdfast("jobs", "delete", "--yes", str(second), database=database).status == 0
    assert worker.claim() == []
    assert statuses(conn) == {first: "failed", third: "blocked"}


def test_a_stopped_order_key_is_let_go_on(database: str, conn: psycopg.Connection[Any], worker: Worker) -> None:
    _, waiting = enqueue(conn, *(job(order_key=OrderKey("customer 7", on_failure="block")) for _ in range(2)))
    worker.end(worker.claim(), FAILED)
    assert worker.claim() == []
    output = holdfast("jobs", "resume-key", "customer 7", database=database)
    assert output == (0, "customer 7: goes on with its next job\n", "")
    assert [one.id for one in worker.claim()] == [waiting]
    assert audited(conn) == [(ME, "order_key.resume", "customer 7", None)]
    output = holdfast("jobs", "resume-key", "customer 7", database=database)
    why = "the order key customer 7 is not blocked: only a key that a failed job blocks must be resumed"
    assert output == (1, "", f"holdfast jobs: {why}\n")
    assert len(audited(conn)) == 1
    enqueue(conn, job("stops", order_key=OrderKey("a", on_failure="block")))
    stopping = Worker(conn, "stops")
    stopping.end(stopping.claim(), FAILED)
    output = holdfast("jobs", "resume-key", "a", "--json", database=database)
    assert output.json == {"key": "a", "action": "resume-key"}


def test_a_locked_job_is_reported_as_busy(database: str, conn: psycopg.Connection[Any], connect: Connect) -> None:
    (made,) = enqueue(conn, job())
    other = connect(autocommit=False)
    other.execute("SELECT FROM holdfast.job FOR UPDATE")
    output = holdfast("jobs", "delete", "--yes", str(made), database=database)
    assert output == (1, f"{made}: another session is changing it\n", "")
    other.rollback()


def test_a_viewer_may_look_and_not_act(database: str, conn: psycopg.Connection[Any], worker: Worker) -> None:
    made = failed(worker)
    name = sql.Identifier(f"test_viewer_{os.getpid()}")
    conn.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'hush' IN ROLE holdfast_viewer").format(name))
    try:
        viewer = database.replace("postgres@", f"test_viewer_{os.getpid()}:hush@")
        assert ids(database=viewer) == [made]
        assert holdfast("jobs", "show", str(made), database=viewer).status == 0
        output = holdfast("jobs", "retry", str(made), database=viewer)
    finally:
        conn.execute(sql.SQL("DROP ROLE {}").format(name))
    assert output.status == 1
    assert f"test_viewer_{os.getpid()} may not: permission denied for function act_on_jobs. Looking needs" in output.err
    assert "hush" not in output.err


@pytest.mark.parametrize("arguments", [["list"], ["show", "1"], ["cancel", "1"]], ids=" ".join)
def test_a_database_without_schema(server: Server, arguments: list[str]) -> None:
    with clone(server, "template0") as empty:
        output = holdfast("jobs", *arguments, "--database-url", empty)
    assert output == (1, "", "holdfast jobs: This database has no Holdfast schema: run `holdfast migrate`.\n")


def test_no_server() -> None:
    output = holdfast("jobs", "list", database="postgresql://me:hush@127.0.0.1:1/db")
    assert output.status == 1
    assert output.err.startswith("holdfast jobs: cannot connect to the database of DATABASE_URL: ")
    assert "hush" not in output.err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["list", "--limit", "0"],
        ["list", "--limit", "1001"],
        ["list", "--status", "gone"],
        ["show", "x"],
        ["show", "0"],
        ["show", str(2**63)],
        ["retry"],
    ],
    ids=" ".join,
)
def test_called_wrongly(arguments: list[str]) -> None:
    output = holdfast("jobs", *arguments)
    assert output.status == 2
    assert output.err.startswith("holdfast jobs")
    assert output.err.count("\n") == 1


def test_a_reader_that_has_seen_enough(database: str, conn: psycopg.Connection[Any]) -> None:
    enqueue(conn, *(job("k", json.dumps({"text": "x" * 100})) for _ in range(1000)))
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as out:
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", "jobs", "list", "--limit", "1000", "--json"],
            env=environment(database),
            stdout=out,
            stderr=subprocess.PIPE,
            timeout=PATIENCE,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, b"")


def test_acting_by_filter_previews_first_and_acts_when_confirmed(
    database: str, conn: psycopg.Connection[Any], worker: Worker
) -> None:
    dead = [failed(worker) for _ in range(3)]
    enqueue(conn, job("other"))
    by_filter = ["retry", "--status", "failed", "--kind", "k"]
    output = holdfast("jobs", *by_filter, database=database)
    assert (output.status, output.err) == (0, "")
    assert [line.split()[0] for line in output.out.splitlines()[1:4]] == [str(one) for one in reversed(dead)]
    assert output.out.endswith("3 jobs would be retried. Give --yes to do it.\n")
    assert (number(conn, "SELECT count(*) FROM holdfast.job"), audited(conn)) == (1, [])

    output = holdfast("jobs", *by_filter, "--limit", "2", "--yes", database=database)
    assert output == (0, "2 of 2 jobs retried.\n", "")
    output = holdfast("jobs", *by_filter, "--yes", "--json", database=database)
    assert (output.json["matched"], output.json["done"], output.json["capped"]) == (1, 1, False)
    assert number(conn, "SELECT count(*) FROM holdfast.job WHERE replay_of IS NOT NULL") == 3
    assert audited(conn) == [(ME, "jobs.retry", None, 2), (ME, "jobs.retry", None, 1)]
    assert holdfast("jobs", *by_filter, "--yes", database=database).out == "No such jobs.\n"


def test_cancelling_and_deleting_by_filter(database: str, conn: psycopg.Connection[Any]) -> None:
    ours = enqueue(conn, *(job("ours", queue="mail") for _ in range(2)))
    (other,) = enqueue(conn, job("other", queue="mail"))
    assert holdfast("jobs", "cancel", "--kind", "ours", "--yes", database=database).status == 0
    assert statuses(conn) == {other: "pending"} | dict.fromkeys(ours, "cancelled")
    assert holdfast("jobs", "delete", "--queue", "mail", database=database).out.endswith("Give --yes to do it.\n")
    assert holdfast("jobs", "delete", "--queue", "mail", "--yes", database=database).out == "1 of 1 job deleted.\n"
    assert statuses(conn) == dict.fromkeys(ours, "cancelled")
    output = holdfast("jobs", "retry", "--status", "pending", "--yes", database=database)
    assert output == (1, "", "holdfast jobs: retry is for jobs that are failed, not pending.\n")


def test_acting_by_id_is_in_the_audit_table(database: str, conn: psycopg.Connection[Any], worker: Worker) -> None:
    dead = failed(worker)
    waiting, other = enqueue(conn, job("other"), job("other"))
    holdfast("jobs", "retry", str(dead), "999", database=database)
    holdfast("jobs", "cancel", str(waiting), "999", database=database)
    holdfast("jobs", "delete", "--yes", str(other), str(dead), database=database)
    assert audited(conn) == [
        (ME, "jobs.retry", str(dead), 1),
        (ME, "jobs.cancel", str(waiting), 1),
        (ME, "jobs.delete", str(other), 1),
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ["retry", "7", "--kind", "k"],
        ["retry", "--yes"],
        ["cancel", "--limit", "5"],
        ["delete", "--yes"],
        ["retry", "--kind", "k", "--rate", "fast"],
        ["retry", "--text", "a", "--rate", "5/s"],
    ],
    ids=" ".join,
)
def test_ids_or_a_filter(arguments: list[str]) -> None:
    output = holdfast("jobs", *arguments)
    assert output.status == 2
    assert output.err.startswith("holdfast jobs")
    assert output.err.count("\n") == 1


def test_show_says_why_a_job_waits(database: str, conn: psycopg.Connection[Any], worker: Worker) -> None:
    later, paused, dead, stopped, first, second = enqueue(
        conn,
        job(delay=3600),
        job(queue="pdf"),
        job(order_key=OrderKey("customer 7", on_failure="block")),
        job(order_key=OrderKey("customer 7", on_failure="block")),
        job(order_key="customer 8"),
        job(order_key="customer 8"),
    )
    conn.execute("INSERT INTO holdfast.queue (name, paused) VALUES ('pdf', true)")
    worker.end([one for one in worker.claim() if one.id == dead], FAILED)
    output = {
        one: holdfast("jobs", "show", str(one), database=database).out for one in (later, paused, stopped, second)
    }
    assert "\nIt is due at 2" in output[later]
    assert "\nThe queue pdf is paused. Run: holdfast queues resume pdf\n" in output[paused]
    letter = f"the dead letter {dead}: retry that one, or resume the key without it."
    resume = "holdfast jobs resume-key 'customer 7'"
    assert f"\nIts order key customer 7 is stopped by {letter} Run: {resume}\n" in output[stopped]
    assert f"\nIt waits for job {first}, which comes before it in the order key.\n" in output[second]
    (wait, *_) = holdfast("jobs", "show", "--json", str(second), database=database).json["waits"]
    assert (wait["code"], wait["jobs"]) == ("order_key", [str(first)])
    assert holdfast("jobs", "show", "--json", str(dead), database=database).json["waits"] == []


def test_show_tells_the_steps_of_a_story_and_where_it_waits(
    database: str, conn: psycopg.Connection[Any], worker: Worker
) -> None:
    asleep, waiting, gathering, ended = enqueue(conn, job(), job(), job(), job())
    for claimed in worker.claim():
        held = Held(claimed.id, claimed.token)
        steps = [NewStep(held, ("charge", "7"), '"secret result"')]
        if claimed.id == asleep:
            steps.append(NewStep(held, ("cool off", None), state="sleep", until=timedelta(days=3)))
        saved = run_sync(conn, save_steps(worker.id, steps))
        if claimed.id == waiting:
            run_sync(conn, take_message(worker.id, held, ("approval", None), timedelta(days=7), beside=False))
        if claimed.id == gathering:
            run_sync(conn, gather_jobs(worker.id, held, ("labels", None), [job("child")] * 2, beside=False))
        due = saved[-1].due or NEVER
        worker.end([claimed], Completed() if claimed.id == ended else Rescheduled(due))
    output = {
        one: holdfast("jobs", "show", str(one), database=database).out for one in (asleep, waiting, gathering, ended)
    }
    assert "\nIt sleeps, 'cool off', since 2" in output[asleep]
    assert "\nIt waits for the message 'approval' since 2" in output[waiting]
    assert "\nIt waits for the jobs of 'labels' since 2" in output[gathering]
    assert "\nIt waits for the end of 2 chains: chain " in output[gathering]
    assert "It is due at" not in output[waiting] + output[asleep] + output[gathering]
    for one, names in ((asleep, ["charge", "cool off"]), (waiting, ["charge", "approval"]), (ended, ["charge"])):
        assert f"\nSteps ({len(names)})\n" in output[one]
        assert "secret result" not in output[one]
        shown = holdfast("jobs", "show", "--json", str(one), database=database).json
        assert [step["name"] for step in shown["steps"]] == names
        assert "steps" not in shown["job"]
