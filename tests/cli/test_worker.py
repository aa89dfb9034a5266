from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from holdfast import Holdfast, HoldfastError
from holdfast._engine.keeper import LONGEST_PAUSE, SHORTEST_PAUSE, backoff
from holdfast._engine.supervisor import cause
from tests.cli.shop import GATE
from tests.kit.commands import PATIENCE, Running, environment, holdfast
from tests.kit.waiting import until_true
from tests.kit.workers import enqueue, job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import psycopg

    Connect = Callable[..., psycopg.Connection[Any]]


@contextmanager
def gate(connect: Connect) -> Iterator[psycopg.Connection[Any]]:
    """Handlers of the kind `gated` wait until this is left, or the connection closed."""
    holder = connect()
    holder.execute("SELECT pg_advisory_lock(%s)", [GATE])
    yield holder
    holder.close()


def statuses(conn: psycopg.Connection[Any]) -> dict[str, int]:
    return dict(
        conn.execute(
            "SELECT status::text, count(*) FROM (SELECT status FROM holdfast.job UNION ALL "
            "SELECT status FROM holdfast.job_history UNION ALL SELECT status FROM holdfast.job_failed) s GROUP BY 1"
        ).fetchall()
    )


def wasted(conn: psycopg.Connection[Any]) -> int:
    """How many jobs that wait have had an attempt counted."""
    row = conn.execute("SELECT count(*) FROM holdfast.job WHERE attempt > 0").fetchone()
    assert row is not None
    return int(row[0])


def endings(conn: psycopg.Connection[Any]) -> list[str | None]:
    rows = conn.execute("SELECT stop_reason FROM holdfast.worker ORDER BY stopped_at, id").fetchall()
    return [reason for (reason,) in rows]


def test_it_says_which_database_it_serves(database: str, tmp_path: Path) -> None:
    """The address in the code wins; a variable with another one is for commands that do not know the application."""
    (tmp_path / "own.py").write_text(f"from holdfast import Holdfast\napp = Holdfast({database!r})\n")
    parts = conninfo_to_dict(database)
    place = f"localhost:{parts['port']}/{parts['dbname']}"
    elsewhere = "postgresql://me:hush@db.internal/other"
    with Running("worker", "own:app", database=elsewhere, cwd=tmp_path) as worker:
        (warning,) = worker.wait_for_line(f"this worker serves {place}")
        assert worker.wait_for_line("worker started")[0]["at"] == place
        worker.signal(signal.SIGTERM)
        assert worker.ended() == 0
    assert "names db.internal:5432/other, which" in warning["message"]
    with Running("worker", "own:app", database=database, cwd=tmp_path) as worker:
        worker.wait_for_line("worker started")
        worker.signal(signal.SIGTERM)
        assert worker.ended() == 0
    assert not any("this worker serves" in output for output in worker.messages())


@pytest.mark.nightly
def test_full_collections_do_not_visit_what_the_application_imported(
    database: str, tmp_path: Path, conn: psycopg.Connection[Any]
) -> None:
    (tmp_path / "own.py").write_text(
        "import gc\nfrom logging import getLogger\nfrom holdfast import Holdfast\n"
        "app = Holdfast()\nloaded = [[] for _ in range(100_000)]\n"
        "@app.job('count')\nasync def count():\n"
        "    objects = {'collected': len(gc.get_objects()), 'frozen': gc.get_freeze_count()}\n"
        "    getLogger('own').info('counted', extra=objects)\n"
    )
    enqueue(conn, job("count"))
    with Running("worker", "own:app", database=database, cwd=tmp_path) as worker:
        (counted,) = worker.wait_for_line("counted")
        worker.signal(signal.SIGTERM)
        assert worker.ended() == 0
    assert counted["frozen"] > 100_000
    assert counted["collected"] < 20_000


@pytest.mark.nightly(daily=["15"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_run_jobs_then_stop(database: str, shop: Path, conn: psycopg.Connection[Any], number: signal.Signals) -> None:
    ids = enqueue(conn, *(job("quick", f'{{"n": {n}}}') for n in range(3)))
    with Running("worker", "shop:app", database=database, cwd=shop) as worker:
        received = worker.wait_for_line("quick", 3)
        worker.signal(number)
        assert worker.ended() == 0
    assert sorted(line["job"] for line in received) == ids
    assert {line["kind"] for line in received} == {"quick"}
    assert all(line["worker"] and line["chain"] == line["job"] for line in received)
    assert statuses(conn) == {"completed": 3}
    assert endings(conn) == ["stopped"]


@pytest.mark.nightly
def test_stop_under_load(database: str, shop: Path, connect: Connect, conn: psycopg.Connection[Any]) -> None:
    """Running jobs finish, and those that have not started are released uncounted."""
    enqueue(conn, *(job("gated") for _ in range(300)))
    with (
        gate(connect) as holder,
        Running("worker", "shop:app", "--queues", "default=4", database=database, cwd=shop) as worker,
    ):
        worker.wait_for_line("gated", 4)
        worker.signal(signal.SIGTERM)
        worker.wait_for_line("stopping")
        holder.close()
        assert worker.ended() == 0
    assert statuses(conn) == {"completed": 4, "pending": 296}
    assert wasted(conn) == 0
    assert endings(conn) == ["stopped"]
    assert worker.messages().count("gated") == 4


@pytest.mark.nightly(daily=["40"])
@pytest.mark.parametrize("after", [1, 40, 400])
def test_stop_in_full_flow(database: str, shop: Path, conn: psycopg.Connection[Any], after: int) -> None:
    enqueue(conn, *(job("quick") for _ in range(3000)))
    with Running("worker", "shop:app", database=database, cwd=shop) as worker:
        worker.wait_for_line("quick", after)
        worker.signal(signal.SIGTERM)
        assert worker.ended() == 0
    found = statuses(conn)
    assert found.get("completed", 0) == worker.messages().count("quick")
    assert found == {"completed": found["completed"], "pending": 3000 - found["completed"]}
    assert wasted(conn) == 0
    assert endings(conn) == ["stopped"]


def test_what_does_not_finish_in_time_is_given_back(database: str, shop: Path, conn: psycopg.Connection[Any]) -> None:
    enqueue(conn, *(job("endless", queue="slow") for _ in range(3)))
    with Running("worker", "shop:app", database=database, cwd=shop, HOLDFAST_SHUTDOWN_TIMEOUT_MS="200") as worker:
        worker.wait_for_line("endless", 3)
        worker.signal(signal.SIGTERM)
        assert worker.ended() == 0
    assert statuses(conn) == {"pending": 3}
    assert wasted(conn) == 0
    assert endings(conn) == ["stopped, with jobs aborted"]


def test_a_second_signal_stops_at_once(database: str, shop: Path, conn: psycopg.Connection[Any]) -> None:
    enqueue(conn, *(job("endless", queue="slow") for _ in range(3)))
    with Running("worker", "shop:app", database=database, cwd=shop, HOLDFAST_SHUTDOWN_TIMEOUT_MS="60000") as worker:
        worker.wait_for_line("endless", 3)
        worker.signal(signal.SIGINT)
        worker.wait_for_line("stopping")
        worker.signal(signal.SIGTERM)
        worker.wait_for_line("stopping at once")
        assert worker.process.wait(PATIENCE / 2) == 0
    assert statuses(conn) == {"pending": 3}
    assert wasted(conn) == 0
    assert endings(conn) == ["stopped, with jobs aborted"]


@pytest.mark.nightly
def test_a_thread_that_does_not_listen_does_not_keep_the_process(
    database: str, shop: Path, conn: psycopg.Connection[Any]
) -> None:
    enqueue(conn, job("deaf", queue="slow"))
    with Running("worker", "shop:app", database=database, cwd=shop, HOLDFAST_SHUTDOWN_TIMEOUT_MS="0") as worker:
        worker.wait_for_line("deaf")
        worker.signal(signal.SIGTERM)
        assert worker.ended() == 1
    assert statuses(conn) == {"processing": 1}
    assert endings(conn) == ["stopped, with handlers that ignored it"]
    assert "jobs are left to the reaper: 1" in worker.messages()


LEFT_BEHIND = {
    "stubborn": (1, {"processing": 1}),
    "leaving": (0, {"completed": 1}),
    "borrowing": (0, {"pending": 1}),
}


@pytest.mark.nightly(daily=["1-stubborn"])
@pytest.mark.parametrize("kind", LEFT_BEHIND)
@pytest.mark.parametrize("signals", [1, 2])
def test_whatever_a_handler_leaves_behind_the_process_ends(
    database: str, shop: Path, conn: psycopg.Connection[Any], kind: str, signals: int
) -> None:
    status, left = LEFT_BEHIND[kind]
    enqueue(conn, job(kind, queue="slow"))
    timeout = "200" if signals == 1 else "60000"
    with Running("worker", "shop:app", database=database, cwd=shop, HOLDFAST_SHUTDOWN_TIMEOUT_MS=timeout) as worker:
        worker.wait_for_line(kind)
        begun = time.monotonic()
        for _ in range(signals):
            worker.signal(signal.SIGTERM)
            if signals == 2:
                worker.wait_for_line("stopping")
        assert worker.ended() == status
        assert time.monotonic() - begun < 30
    assert statuses(conn) == left
    assert "worker stopped" in worker.messages()
    assert any("handlers left something running" in message for message in worker.messages())


@pytest.mark.nightly
def test_a_handler_that_blocks_the_event_loop_does_not_keep_the_process(
    database: str, shop: Path, conn: psycopg.Connection[Any]
) -> None:
    enqueue(conn, job("blocking", queue="slow"))
    with Running("worker", "shop:app", database=database, cwd=shop, HOLDFAST_SHUTDOWN_TIMEOUT_MS="100") as worker:
        worker.wait_for_line("blocking")
        worker.signal(signal.SIGTERM)
        assert worker.ended() == 3
    assert worker.messages()[-1] == "not stopped in time: the process is ended"
    assert statuses(conn) == {"processing": 1}


@pytest.mark.nightly
def test_a_third_signal_ends_a_process_whose_event_loop_is_blocked(
    database: str, shop: Path, conn: psycopg.Connection[Any]
) -> None:
    enqueue(conn, job("blocking", queue="slow"))
    with Running("worker", "shop:app", database=database, cwd=shop, HOLDFAST_SHUTDOWN_TIMEOUT_MS="60000") as worker:
        worker.wait_for_line("blocking")
        begun = time.monotonic()
        while worker.process.poll() is None and time.monotonic() - begun < PATIENCE:
            worker.signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                worker.process.wait(0.2)
        assert worker.ended() == -signal.SIGTERM


def test_processes_are_restarted_and_stopped_together(database: str, shop: Path, conn: psycopg.Connection[Any]) -> None:
    with Running("worker", "shop:app", "--processes", "2", database=database, cwd=shop) as supervisor:
        supervisor.wait_for_line("worker started", 2)
        pids = [line["pid"] for line in supervisor.log if line["message"] == "process started"]
        os.kill(pids[0], signal.SIGKILL)
        (died,) = supervisor.wait_for_line("process died: signal SIGKILL")
        assert died["status"] == -signal.SIGKILL
        supervisor.wait_for_line("worker started")
        supervisor.signal(signal.SIGTERM)
        assert supervisor.ended() == 0
    assert supervisor.messages().count("process ended: exit code 0") == 2
    assert sorted(endings(conn), key=str) == [None, "stopped", "stopped"]
    enqueue(conn, job("quick"))
    assert statuses(conn) == {"pending": 1}


def running(conn: psycopg.Connection[Any]) -> int:
    return statuses(conn).get("processing", 0)


@pytest.mark.nightly
def test_so_many_handlers_at_once(database: str, shop: Path, connect: Connect, conn: psycopg.Connection[Any]) -> None:
    """`--concurrency` bounds all queues together, and `--queues` each of them."""
    enqueue(conn, *(job("gated", queue=queue) for queue in ("default", "other") for _ in range(20)))
    options = ("--concurrency", "5", "--queues", "default=3,other=4")
    with gate(connect), Running("worker", "shop:app", *options, database=database, cwd=shop) as worker:
        worker.wait_for_line("gated", 5)
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = %s AND NOT granted"
        until_true(lambda: conn.execute(waiting.encode(), [GATE]).fetchone() == (5,), PATIENCE)
        assert worker.messages().count("gated") == 5


@pytest.mark.nightly
def test_it_stops_after_so_many_jobs(database: str, shop: Path, conn: psycopg.Connection[Any]) -> None:
    """Failed attempts count, and what was claimed ahead is given back uncounted."""
    enqueue(conn, job("broken", max_attempts=1), *(job("quick") for _ in range(300)))
    options = ("--max-jobs", "10", "--concurrency", "2")
    with Running("worker", "shop:app", *options, database=database, cwd=shop) as worker:
        assert worker.ended() == 0
    ended = sum(statuses(conn).get(status, 0) for status in ("completed", "failed"))
    assert 10 <= ended < 300
    assert wasted(conn) == 0
    assert endings(conn) == ["stopped"]


@pytest.mark.nightly
def test_a_process_that_has_run_its_jobs_is_replaced(database: str, shop: Path, conn: psycopg.Connection[Any]) -> None:
    enqueue(conn, *(job("quick") for _ in range(10)))
    options = ("--processes", "1", "--max-jobs", "10", "--queues", "default=1")
    with Running("worker", "shop:app", *options, database=database, cwd=shop) as supervisor:
        supervisor.wait_for_line("process ended: exit code 6")
        supervisor.wait_for_line("worker started")
        enqueue(conn, job("quick"))
        supervisor.wait_for_line("quick")
        supervisor.signal(signal.SIGTERM)
        assert supervisor.ended() == 0
    assert not any("died" in message for message in supervisor.messages())
    assert statuses(conn) == {"completed": 11}


SCRIPT = """
import sys, os
from holdfast import Holdfast, Job

app = Holdfast()

@app.job("cpu", executor="process")
def cpu(job: Job[None]) -> int:
    return os.getpid()

@app.job("quick")
async def quick(job: Job[None]) -> int:
    return os.getpid()

if __name__ == "__main__":
    sys.exit(app.run_worker(id="script", concurrency=2, max_jobs=int(sys.argv[1])))
"""


@contextmanager
def script(folder: Path, database: str, max_jobs: int, text: str = SCRIPT) -> Iterator[subprocess.Popen[str]]:
    (folder / "script.py").write_text(text)
    with subprocess.Popen(  # noqa: S603 - this interpreter
        [sys.executable, "script.py", str(max_jobs)],
        cwd=folder,
        env=environment(database),
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.nightly
def test_a_script_runs_a_worker_until_a_signal(database: str, tmp_path: Path, conn: psycopg.Connection[Any]) -> None:
    """Its processes import the script too, and start no worker."""
    enqueue(conn, job("cpu"), job("quick"))
    with script(tmp_path, database, 1_000) as process:
        until_true(lambda: statuses(conn) == {"completed": 2}, PATIENCE)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    assert conn.execute("SELECT name, stop_reason FROM holdfast.worker").fetchall() == [("script", "stopped")]
    pids = dict(conn.execute("SELECT kind, result::text::int FROM holdfast.job_history").fetchall())
    assert pids["quick"] == process.pid != pids["cpu"]


@pytest.mark.nightly
def test_a_script_ends_after_so_many_jobs(database: str, tmp_path: Path, conn: psycopg.Connection[Any]) -> None:
    enqueue(conn, *(job("quick") for _ in range(3)))
    with script(tmp_path, database, 3) as process:
        assert process.wait(PATIENCE) == 0
    assert statuses(conn) == {"completed": 3}


@pytest.mark.nightly
def test_a_script_that_is_refused_fails_with_the_reason(database: str, tmp_path: Path) -> None:
    elsewhere = conninfo_to_dict(database) | {"dbname": "nothing"}
    with script(tmp_path, " ".join(f"{name}={value}" for name, value in elsewhere.items()), 3) as process:
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert "DatabaseRefused: " in errors


@pytest.mark.nightly
async def test_a_worker_blocks_the_main_thread_only(database: str) -> None:
    app = Holdfast(database)
    with pytest.raises(HoldfastError, match="an event loop runs here: write `async with"):
        app.run_worker()
    with pytest.raises(HoldfastError, match="signals reach the main thread only"):
        await asyncio.to_thread(app.run_worker)


@pytest.mark.nightly
def test_a_process_that_ends_well_is_not_restarted(database: str, shop: Path, conn: psycopg.Connection[Any]) -> None:
    with Running("worker", "shop:app", "--processes", "2", database=database, cwd=shop) as supervisor:
        supervisor.wait_for_line("worker started", 2)
        pids = [line["pid"] for line in supervisor.log if line["message"] == "process started"]
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        assert supervisor.ended() == 0
    assert endings(conn) == ["stopped", "stopped"]


@pytest.mark.nightly
def test_an_interrupt_at_the_terminal_reaches_each_process_once(
    database: str, shop: Path, connect: Connect, conn: psycopg.Connection[Any]
) -> None:
    enqueue(conn, job("gated"))
    with (
        gate(connect) as holder,
        Running("worker", "shop:app", "--processes", "1", database=database, cwd=shop) as supervisor,
    ):
        supervisor.wait_for_line("gated")
        os.killpg(supervisor.process.pid, signal.SIGINT)
        supervisor.wait_for_line("stopping")
        holder.close()
        assert supervisor.ended() == 0
    assert "stopping at once" not in supervisor.messages()
    assert statuses(conn) == {"completed": 1}


@pytest.mark.nightly
def test_a_signal_to_every_process_of_a_unit_stops_gently(
    database: str, shop: Path, connect: Connect, conn: psycopg.Connection[Any]
) -> None:
    """As systemd does: the processes have the signal from it, and once more from their supervisor."""
    enqueue(conn, job("gated"), job("gated"))
    with (
        gate(connect) as holder,
        Running(
            "worker", "shop:app", "--processes", "2", "--queues", "default=1", database=database, cwd=shop
        ) as supervisor,
    ):
        supervisor.wait_for_line("gated", 2)
        pids = [line["pid"] for line in supervisor.log if line["message"] == "process started"]
        for pid in (*pids, supervisor.process.pid):
            os.kill(pid, signal.SIGTERM)
        supervisor.wait_for_line("stopping", 2)
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        holder.close()
        assert supervisor.ended() == 0
    assert "stopping at once" not in supervisor.messages()
    assert statuses(conn) == {"completed": 2}


@pytest.mark.nightly
def test_a_process_that_cannot_be_reached_is_killed_by_its_supervisor(
    database: str, shop: Path, conn: psycopg.Connection[Any]
) -> None:
    with Running(
        "worker", "shop:app", "--processes", "1", database=database, cwd=shop, HOLDFAST_SHUTDOWN_TIMEOUT_MS="0"
    ) as supervisor:
        supervisor.wait_for_line("worker started")
        (pid,) = [line["pid"] for line in supervisor.log if line["message"] == "process started"]
        os.kill(pid, signal.SIGSTOP)
        supervisor.signal(signal.SIGTERM)
        assert supervisor.ended() == 1
    assert "process ended: signal SIGKILL" in supervisor.messages()


@pytest.mark.nightly
def test_a_second_signal_to_the_supervisor(database: str, shop: Path, conn: psycopg.Connection[Any]) -> None:
    enqueue(conn, job("endless", queue="slow"))
    with Running("worker", "shop:app", "--processes", "1", database=database, cwd=shop) as supervisor:
        supervisor.wait_for_line("endless")
        supervisor.signal(signal.SIGTERM)
        supervisor.wait_for_line("stopping")
        supervisor.signal(signal.SIGTERM)
        supervisor.wait_for_line("stopping at once")
        assert supervisor.ended() == 0
    assert statuses(conn) == {"pending": 1}
    assert wasted(conn) == 0


def test_processes_stop_when_their_supervisor_is_killed(
    database: str, shop: Path, conn: psycopg.Connection[Any]
) -> None:
    with Running("worker", "shop:app", "--processes", "2", database=database, cwd=shop) as supervisor:
        supervisor.wait_for_line("worker started", 2)
        supervisor.signal(signal.SIGKILL)
        assert supervisor.ended() == -signal.SIGKILL
    assert supervisor.messages().count("the supervisor is gone") == 2
    assert endings(conn) == ["stopped", "stopped"]


@pytest.mark.nightly
def test_a_process_that_cannot_start_is_tried_again(database: str, conn: psycopg.Connection[Any], shop: Path) -> None:
    conn.execute("INSERT INTO holdfast.migration VALUES (9999, '9999_future_breaking', 'x')")
    with Running("worker", "shop:app", "--processes", "1", database=database, cwd=shop) as supervisor:
        received = supervisor.wait_for_line("process died: exit code 1", 2)
        supervisor.signal(signal.SIGTERM)
        supervisor.ended()
    assert [line["deaths"] for line in received] == [1, 2]
    assert any("which breaks this code" in message for message in supervisor.messages())


def test_the_pause_before_a_restart_grows_and_is_bounded() -> None:
    for deaths in range(1, 50):
        assert SHORTEST_PAUSE <= backoff(deaths) <= LONGEST_PAUSE
    assert backoff(20) >= LONGEST_PAUSE / 2
    assert (cause(-9), cause(3)) == ("signal SIGKILL", "exit code 3")
    assert cause(-200) == "signal 200"


APPS = {
    "shop": (2, "shop does not name an application: write module:attribute, e.g. shop.jobs:app"),
    "shop.py:app": (2, "shop.py is a file, not a module: write shop:app"),
    "./jobs/shop.py:app": (2, "./jobs/shop.py is a file, not a module: write jobs.shop:app"),
    "shup:app": (1, "there is no module shup in {cwd} or on the Python path: run this where the application's code is"),
    "shop.jobs:app": (1, "there is no module shop.jobs in shop: "),
    "shop:ap": (1, "shop has no ap: did you mean shop:app?"),
    "shop:quick": (1, "shop:quick is a Kind, not a Holdfast: did you mean shop:app?"),
    "empty:app": (1, "empty has no app, and no other Holdfast: it is made by app = Holdfast()"),
    "needy:app": (1, "importing needy failed at needy.py line 2: ModuleNotFoundError: No module named 'unheard_of'"),
    "torn:app": (1, "importing torn failed at torn.py line 1: SyntaxError: "),
    "leaky:app": (1, "importing leaky failed at leaky.py line 1: ValueError: postgresql://me:***@there"),
    "misled:app": (1, "importing misled failed at misled.py line 3: ValueError: max_attempts"),
    "leaving:app": (1, "importing leaving failed at leaving.py line 1: SystemExit: 3"),
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", APPS)
def test_an_application_that_cannot_be_loaded(shop: Path, database: str, name: str) -> None:
    for module, code in {
        "empty": "",
        "needy": "import os\nimport unheard_of\n",
        "torn": "app = (\n",
        "leaky": "raise ValueError('postgresql://me:hush@there')",
        "leaving": "raise SystemExit(3)",
        "misled": "from holdfast import Retry\n\nRetry(max_attempts=0)",
    }.items():
        (shop / f"{module}.py").write_text(code)
    status, message = APPS[name]
    output = holdfast("worker", name, database=database, cwd=shop)
    assert output.status == status
    assert output.err.startswith(f"holdfast worker: {message.format(cwd=shop)}")
    assert output.err.count("\n") == 1
    assert output.out == ""


@pytest.mark.parametrize(
    ("variables", "status", "message"),
    [
        ({}, 2, "no database: give the application one: Holdfast(url), or set HOLDFAST_DATABASE_URL or DATABASE_URL"),
        (
            {"DATABASE_URL": "postgresql://me:a@hush@there/db"},
            2,
            "cannot read the URL of DATABASE_URL: it must look like",
        ),
        (
            {"DATABASE_URL": "postgresql://me@here/db", "HOLDFAST_BATCH_SIZE": "many"},
            1,
            "the settings are refused: HOLDFAST_BATCH_SIZE must be a whole number, not 'many'",
        ),
    ],
)
def test_a_worker_without_what_it_needs(shop: Path, variables: dict[str, str], status: int, message: str) -> None:
    output = holdfast("worker", "shop:app", cwd=shop, **variables)
    assert output.status == status
    assert output.err.startswith(f"holdfast worker: {message}")
    assert output.err.count("\n") == 1
    assert "hush" not in output.err


def test_several_problems_are_reported_together(shop: Path) -> None:
    output = holdfast("worker", "shop:app", cwd=shop, HOLDFAST_BATCH_SIZE="many", HOLDFAST_CONCURRENCY="0")
    assert output.status == 1
    assert "\n  - HOLDFAST_BATCH_SIZE must be" in output.err
    assert "\n  - HOLDFAST_CONCURRENCY must be" in output.err


@pytest.mark.nightly
@pytest.mark.parametrize("queues", ["", "default", "default=0", "default=x", "a=1,a=2", "=3", "default=99999"])
def test_queues_that_cannot_be_read(shop: Path, queues: str) -> None:
    output = holdfast("worker", "shop:app", "--queues", queues, cwd=shop)
    assert output.status == 2
    assert "holdfast worker: --queues: " in output.err
