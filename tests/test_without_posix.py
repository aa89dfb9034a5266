"""The library, the verbs, the test kit and most commands run without what only POSIX has.

Nothing was run on Windows itself: `.github/workflows/nightly.yml` has a job for it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.kit.commands import environment
from tests.test_front_door import NAMES

ROOT = Path(__file__).parent.parent
SHOP = """
import os, sys
import psycopg
from holdfast import Holdfast, Job
from holdfast.testing import Testing

app = Holdfast(os.environ["DATABASE_URL"])

@app.job("add")
def add(job: Job[None], number: int) -> int:
    return number + 1

@app.job("later")
async def later(job: Job[None], number: int) -> int:
    return number + 2
"""
KIT = """
with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as conn:
    with conn.transaction():
        jobs = [app.sync.enqueue(conn, kind.new(1)) for kind in (add, later)]
    Testing(app, conn).sync.drain()
    print([app.sync.get_job(conn, job).result for job in jobs])
"""
EMBEDDED = """
import asyncio
async def main():
    async with app.embedded_worker(worker_enabled=True):
        async with await psycopg.AsyncConnection.connect(os.environ["DATABASE_URL"], autocommit=True) as conn:
            jobs = [await app.enqueue(conn, kind.new(1)) for kind in (add, later)]
        print([await app.wait(job) for job in jobs])
with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
    runner.run(main())
"""
COMMAND = "import sys; from holdfast._cli import run_process; sys.exit(run_process())"


def run(folder: Path, text: str, *words: str, database: str | None = None) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(text)
    return subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-m", "tests.kit.without_posix", str(folder / "program.py"), *words],
        cwd=ROOT,
        env=environment(database, USERNAME="ann"),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_every_public_module_is_imported(tmp_path: Path) -> None:
    done = run(tmp_path, "".join(f"import {name}\n" for name in ("holdfast", *NAMES)))
    assert (done.returncode, done.stderr) == (0, "")


def test_jobs_are_enqueued_and_run_by_the_test_kit(tmp_path: Path, database: str) -> None:
    done = run(tmp_path, SHOP + KIT, database=database)
    assert (done.stdout, done.stderr) == ("[2, 3]\n", "")


def test_a_worker_inside_an_application_runs_them(tmp_path: Path, database: str) -> None:
    done = run(tmp_path, SHOP + EMBEDDED, database=database)
    assert done.stdout == "[2, 3]\n", done.stderr


@pytest.mark.parametrize(
    "words", ["migrate", "check", "jobs list", "queues list", "runners list", "events list", "limits"]
)
def test_a_command_looks_and_acts(tmp_path: Path, database: str, words: str) -> None:
    done = run(tmp_path, COMMAND, *words.split(), database=database)
    assert done.returncode == 0, done.stderr


def test_the_audit_names_the_user(tmp_path: Path, database: str) -> None:
    with psycopg.connect(database) as conn:
        conn.execute("INSERT INTO holdfast.queue (name) VALUES ('mail')")
    done = run(tmp_path, COMMAND, "queues", "pause", "mail", database=database)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", ["worker", "dev", "demo", "tick", "archive"])
def test_a_command_that_cannot_run_says_where_it_can(tmp_path: Path, command: str) -> None:
    done = run(tmp_path, COMMAND, command, "shop:app")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"holdfast {command}: it does not run on this system. Run it on Linux or macOS")
    assert len(done.stderr.splitlines()) == 1
