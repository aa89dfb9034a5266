"""The commands of the Procfile, run as a platform runs them: by a shell, with DATABASE_URL and PORT."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import urllib.request
from datetime import timedelta
from pathlib import Path

import pytest

from tests.deploy.containerfile import ROOT
from tests.deploy.program import Program, run
from tests.deploy.settings import load, longest_stop, parse
from tools.ports import free_port

# A process of the usual platform is killed so long after SIGTERM.
PLATFORM = timedelta(seconds=30)


def processes() -> dict[str, str]:
    text = (ROOT / "deploy" / "Procfile").read_text()
    return dict(re.findall(r"^([A-Za-z0-9_-]+):\s*(.+)$", text, re.MULTILINE))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "deploy" / "shop.py", tmp_path)
    return tmp_path


def shell(name: str) -> list[str]:
    # `exec`, as platforms do it: signals go to the command and not to a shell.
    words = processes()[name]
    variables = re.match(r"(?:[A-Z_]+=\S+ )*", words)
    assert variables is not None
    return ["/bin/sh", "-c", f"{variables[0]}exec {words[variables.end() :]}"]


def environment(database: str, port: int) -> dict[str, str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), "/usr/bin", "/bin"])
    return {"PATH": path, "DATABASE_URL": database, "PORT": str(port), "PYTHONUNBUFFERED": "1"}


@pytest.mark.nightly
def test_a_worker_stops_before_the_platform_kills_it() -> None:
    assert processes().keys() == {"release", "worker", "web"}
    words = shlex.split(processes()["worker"])
    given = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
    assert longest_stop(load(given)) < PLATFORM
    for command in processes().values():
        parse(shlex.split(command.replace("$PORT", "5000").partition("holdfast ")[2]))


@pytest.mark.nightly
def test_the_release_migrates(database: str, folder: Path) -> None:
    done = run(shell("release"), cwd=folder, env=environment(database, 0))
    assert (done.returncode, done.stdout) == (0, "The schema is up to date.\n"), done


def test_the_worker_runs_and_stops(database: str, folder: Path) -> None:
    env = environment(database, 0)
    with Program(shell("worker"), cwd=folder, env=env) as worker:
        worker.wait_for_line("worker started")
        done = run([sys.executable, "shop.py"], cwd=folder, env=env | {"HOLDFAST_DATABASE_URL": database})
        assert done.stdout == "receipt for order 7 sent, attempt 1\n", done
        status, seconds = worker.stop()
    assert status == 0
    assert seconds < PLATFORM.total_seconds()


@pytest.mark.nightly
def test_the_web_process_serves_the_dashboard_at_the_given_port(database: str, folder: Path) -> None:
    port = free_port()
    # Its own address in place of every interface of this machine.
    command = [word.replace("0.0.0.0", "127.0.0.1") for word in shell("web")]  # noqa: S104
    with Program(command, cwd=folder, env=environment(database, port)) as web:
        web.wait_for_line(f"Serving on http://127.0.0.1:{port}/")
        # Without a worker, /ready would be refused.
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/live", timeout=10) as answer:
            assert answer.status == 200
        status, _ = web.stop()
    assert status == 0
