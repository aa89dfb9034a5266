"""The units of systemd: verified by systemd's own tool, and run by their ExecStart and signals."""

from __future__ import annotations

import shutil
import signal
import sys
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from tests.deploy.containerfile import ROOT
from tests.deploy.program import Program, run
from tests.deploy.settings import load, longest_stop, parse
from tests.deploy.unit import Unit
from tools.ports import free_port

NAMES = ("holdfast.service", "holdfast-migrate.service")
ANALYZE = shutil.which("systemd-analyze")
SLOW = """
import asyncio
from holdfast import Holdfast, Job

app = Holdfast()


@app.job("report.write")
async def write(job: Job[None], seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "written"
"""


@pytest.fixture
def folder(tmp_path: Path, database: str) -> Path:
    """The folder of an application with its settings, as the unit names them."""
    shutil.copy(ROOT / "deploy" / "shop.py", tmp_path)
    (tmp_path / "holdfast.env").write_text(f"HOLDFAST_DATABASE_URL={database}\n")
    return tmp_path


def program() -> Path:
    return Path(sys.executable).with_name("holdfast")


def moved(name: str, folder: Path) -> Unit:
    port = str(free_port())
    return Unit(Unit.read(name).moved(folder, program()).text.replace("9464", port))


def environment(unit: Unit) -> dict[str, str]:
    """The environment of the process: Environment=, then EnvironmentFile=, which wins."""
    lines = Path(unit.one("EnvironmentFile")).read_text().splitlines()
    return {"PATH": "/usr/bin:/bin", **unit.environment, **dict(line.split("=", 1) for line in lines)}


@pytest.mark.nightly
@pytest.mark.skipif(ANALYZE is None, reason="systemd is not installed")
@pytest.mark.parametrize("name", NAMES)
def test_systemd_accepts_it(name: str, tmp_path: Path) -> None:
    for unit in NAMES:
        (tmp_path / unit).write_text(Unit.read(unit).moved(tmp_path, program()).text)
    done = run([str(ANALYZE), "verify", str(tmp_path / name)], cwd=tmp_path, env={})
    # An unknown value is only printed.
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.nightly
@pytest.mark.skipif(ANALYZE is None, reason="systemd is not installed")
def test_systemd_finds_it_confined(tmp_path: Path) -> None:
    (tmp_path / "holdfast.service").write_text(Unit.read("holdfast.service").moved(tmp_path, program()).text)
    options = ["--offline=yes", "--threshold=50"]
    done = run([str(ANALYZE), "security", *options, str(tmp_path / "holdfast.service")], cwd=tmp_path, env={})
    assert done.returncode == 0, done.stdout.splitlines()[-1]


def test_commands_settings_and_times_agree() -> None:
    worker, migrate = map(Unit.read, NAMES)
    assert parse(worker.command[1:]).command == "worker"
    assert parse(migrate.command[1:]).command == "migrate"
    assert timedelta(seconds=int(worker.one("TimeoutStopSec"))) > longest_stop(load(worker.environment))
    assert "holdfast-migrate.service" in worker.all("Wants")
    assert any("holdfast-migrate.service" in line for line in worker.all("After"))
    assert worker.one("DynamicUser") == migrate.one("DynamicUser") == "yes"


@pytest.mark.nightly
def test_the_migration_runs_to_its_end_again_and_again(folder: Path) -> None:
    unit = moved("holdfast-migrate.service", folder)
    for _ in range(2):
        done = run(unit.command, cwd=folder, env=environment(unit))
        assert (done.returncode, done.stdout) == (0, "The schema is up to date.\n"), done


@pytest.mark.nightly
def test_a_stop_lets_running_jobs_finish_within_its_time(folder: Path, database: str) -> None:
    (folder / "shop.py").write_text(SLOW)
    unit = moved("holdfast.service", folder)
    with Program(unit.command, cwd=folder, env=environment(unit)) as worker:
        worker.wait_for_line("worker started")
        start(database, seconds=1.5)
        status, seconds = worker.stop(signal.Signals[unit.one("KillSignal")])
    assert status == 0
    assert seconds < int(unit.one("TimeoutStopSec"))
    with psycopg.connect(database, autocommit=True) as conn:
        ended = conn.execute("SELECT status::text, attempt FROM holdfast.job_history").fetchall()
    assert ended == [("completed", 1)]


@pytest.mark.nightly
def test_a_job_that_does_not_end_does_not_delay_the_stop(folder: Path, database: str) -> None:
    (folder / "shop.py").write_text(SLOW)
    with (folder / "holdfast.env").open("a") as file:
        file.write("HOLDFAST_SHUTDOWN_TIMEOUT_MS=500\n")
    unit = moved("holdfast.service", folder)
    with Program(unit.command, cwd=folder, env=environment(unit)) as worker:
        worker.wait_for_line("worker started")
        start(database, seconds=600)
        status, seconds = worker.stop()
    assert status == 0, "the job was given back"
    assert seconds < longest_stop(load({"HOLDFAST_SHUTDOWN_TIMEOUT_MS": "500"})).total_seconds()
    with psycopg.connect(database, autocommit=True) as conn:
        assert conn.execute("SELECT status::text FROM holdfast.job").fetchone() == ("pending",)


def start(database: str, *, seconds: float) -> None:
    """Enqueue a job, and return when it runs."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("SELECT holdfast.enqueue('report.write', json_build_object('seconds', %s::float))", [seconds])
        for _ in range(600):
            if conn.execute("SELECT count(*) FROM holdfast.job WHERE status = 'processing'").fetchone() == (1,):
                return
            conn.execute("SELECT pg_sleep(0.05)")
    raise AssertionError("no worker took the job")
