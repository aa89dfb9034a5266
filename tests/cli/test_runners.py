from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Cron, Holdfast
from holdfast._drivers import run_sync
from holdfast._model.schedule import Every
from holdfast._store.schedule import declare_schedules, list_schedules, record_run, register_schedules, start_run
from holdfast._store.worker import register_worker
from tests.cli.auditing import ME, audited
from tests.kit.commands import holdfast
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

    from holdfast._store.schedule import ScheduleLine


@pytest.fixture
def conn(connect: Callable[..., psycopg.Connection[Any]]) -> psycopg.Connection[Any]:
    conn = connect()
    worker = run_sync(conn, register_worker("one", queues=[], kinds=[]))
    run_sync(conn, declare_schedules(["cleanup", "reminders"], worker=worker))
    hourly = Every(timedelta(hours=1))
    run_sync(conn, register_schedules([("cleanup", hourly, None), ("reminders", hourly, None)]))
    run_sync(conn, record_run(run_sync(conn, start_run()), "cleanup", "completed", worker=0, counts={"deleted": 12}))
    run_sync(conn, record_run(run_sync(conn, start_run()), "outbox", "completed", worker=0, counts={"claimed": 3}))
    return conn


def schedule(conn: psycopg.Connection[Any], name: str) -> ScheduleLine:
    (found,) = [line for line in run_sync(conn, list_schedules()) if line.name == name]
    return found


def test_nothing_yet(database: str) -> None:
    output = holdfast("runners", database=database)
    assert (output.status, output.err) == (0, "")
    assert output.out.startswith("No schedule is stored")
    assert holdfast("runners", "--json", database=database).json == []


def test_list_schedules_and_last_runs(database: str, conn: psycopg.Connection[Any]) -> None:
    output = holdfast("runners", database=database)
    assert (output.status, output.err) == (0, "")
    head, *lines = output.out.splitlines()
    assert head.split()[:4] == ["NAME", "WHAT", "SCHEDULE", "STATE"]
    assert [line.split()[0] for line in lines] == ["cleanup", "outbox", "reminders"]
    assert "12 deleted" in lines[0]
    assert "waiting" in lines[0]
    assert lines[1].split()[1:4] == ["-", "-", "-"]
    assert output.out == holdfast("runners", "list", database=database).out


@pytest.mark.parametrize("arguments", [["--json"], ["list", "--json"], ["--json", "list"]], ids=" ".join)
def test_list_for_machines(database: str, conn: psycopg.Connection[Any], arguments: list[str]) -> None:
    cleanup, outbox, reminders = holdfast("runners", *arguments, database=database).json
    assert cleanup["name"] == "cleanup"
    assert cleanup["schedule"]["what"] == "runner"
    assert cleanup["last_run"]["counts"] == {"deleted": 12}
    assert datetime.fromisoformat(cleanup["last_run"]["started_at"]).tzinfo == UTC
    assert outbox["schedule"] is None
    assert reminders["last_run"] is None


def test_what_runs_now(database: str, conn: psycopg.Connection[Any]) -> None:
    worker, dead = (run_sync(conn, register_worker(name, queues=[], kinds=[])) for name in ("here", "gone"))
    look = "UPDATE holdfast.schedule SET started_at = '2026-05-01Z', locked_by = %s, locked_until = %s WHERE name = %s"
    conn.execute(look, [worker, "2126-05-01Z", "cleanup"])
    conn.execute(look, [dead, "2026-05-02Z", "reminders"])
    run_sync(conn, record_run(run_sync(conn, start_run()), "loop", None, worker=worker, counts={}))
    output = {line.split()[0]: line for line in holdfast("runners", database=database).out.splitlines()}
    assert "running since 2026-05-01 00:00:00Z on worker here" in output["cleanup"]
    assert "on worker here" in output["loop"]
    assert "running" not in output["reminders"]
    assert "running" not in output["outbox"]
    found = {line["name"]: line["running"] for line in holdfast("runners", "--json", database=database).json}
    assert found["cleanup"] == {"since": "2026-05-01T00:00:00+00:00", "worker": worker}
    assert found["loop"]["worker"] == worker
    assert found["reminders"] is found["outbox"] is None


@pytest.mark.parametrize("why", ["removed", "no worker"])
def test_a_schedule_that_no_worker_declares_has_no_next_time(
    database: str, conn: psycopg.Connection[Any], why: str
) -> None:
    conn.execute("UPDATE holdfast.schedule SET next_at = '2100-01-01Z'")
    conn.execute("UPDATE holdfast.schedule SET declared = NULL, what = 'job', job = '{}' WHERE name = 'reminders'")
    if why == "removed":
        conn.execute("UPDATE holdfast.worker SET schedules = '{other}'")
    else:
        conn.execute("UPDATE holdfast.worker SET heartbeat_at = now() - interval '2 minutes'")
    gone, _, by_hand = holdfast("runners", database=database).out.splitlines()[1:]
    assert "no live worker declares it" in gone
    assert "2100" not in gone
    assert ("2100" in by_hand) == (why == "removed"), "every worker runs one made by hand"


async def test_a_worker_says_what_it_declares(database: str, conn: psycopg.Connection[Any]) -> None:
    conn.execute("DELETE FROM holdfast.schedule")
    app = Holdfast(database)
    report = app.declare("report", dict)
    app.schedule("nightly", report.new({}), every=Cron("0 2 * * *"))
    async with app.worker():
        await until(lambda: {line.name for line in run_sync(conn, list_schedules()) if line.served} >= {"nightly"})
        assert "waiting" in holdfast("runners", database=database).out
    assert not schedule(conn, "nightly").served


def test_pause_resume_trigger(database: str, conn: psycopg.Connection[Any]) -> None:
    output = holdfast("runners", "pause", "cleanup", database=database)
    assert (output.status, output.out) == (0, "cleanup: paused; what runs now goes on\n")
    assert schedule(conn, "cleanup").paused
    assert not schedule(conn, "reminders").paused
    assert "paused" in holdfast("runners", database=database).out

    output = holdfast("runners", "trigger", "cleanup", "--json", database=database)
    assert output.json == {"name": "cleanup", "action": "trigger"}
    assert schedule(conn, "cleanup").triggered
    assert "paused, triggered" in holdfast("runners", database=database).out

    assert holdfast("runners", "resume", "cleanup", "--database-url", database).status == 0
    assert not schedule(conn, "cleanup").paused
    assert audited(conn) == [(ME, f"runner.{action}", "cleanup", None) for action in ("pause", "run", "resume")]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cleanupp", "no schedule is named cleanupp: did you mean cleanup?"),
        ("x", "no schedule is named x: there are cleanup, reminders"),
    ],
)
def test_a_name_that_is_not_there(database: str, conn: psycopg.Connection[Any], name: str, message: str) -> None:
    output = holdfast("runners", "pause", name, database=database)
    assert output == (1, "", f"holdfast runners: {message}\n")
    assert audited(conn) == []


def test_one_that_was_added_is_edited_and_removed(database: str, conn: psycopg.Connection[Any]) -> None:
    conn.execute(
        "INSERT INTO holdfast.schedule (name, what, schedule, job) VALUES ('customer-7', 'job', 'every 60s', '{}')"
    )
    output = holdfast("runners", "edit", "customer-7", "0 9 * * 1 Asia/Tokyo", "--json", database=database)
    assert output.json == {"name": "customer-7", "action": "edit"}
    assert "0 9 * * 1 Asia/Tokyo" in holdfast("runners", database=database).out
    wrong = holdfast("runners", "edit", "customer-7", "every day", database=database)
    assert wrong.status == 2
    assert "an interval is written in seconds" in wrong.err
    holdfast("runners", "remove", "customer-7", database=database)
    assert "customer-7" not in holdfast("runners", database=database).out
