"""A witness that is frozen as a machine would be, and what is run again because of what it saw."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tools.witness import STANDSTILL, Witness

# What takes longer to import than the tests in here take.
FEW_PLUGINS = "-p no:schemathesis -p no:hypothesispytest -p no:anyio -p no:randomly -p no:asyncio"
TESTS = """
import os, signal, time
from pathlib import Path
from tests.kit.standstill import WITNESS

def frozen(config):
    witness = config.stash[WITNESS]
    os.kill(witness.pid, signal.SIGSTOP)
    # It stops when its main thread gets its turn, which takes a while on a busy machine.
    os.waitid(os.P_PID, witness.pid, os.WSTOPPED)
    time.sleep(0.7)
    os.kill(witness.pid, signal.SIGCONT)
    # Until all of its threads have noticed: later, it would be the next test's standstill.
    while witness.longest(since=time.monotonic()):
        pass

def ran(request):
    runs = Path(__file__).with_name(request.node.name)
    with runs.open("a") as file:
        file.write(".")
    return len(runs.read_text())

def test_fails_in_a_standstill(request):
    if ran(request) == 1:
        frozen(request.config)
        assert False

def test_fails_in_every_standstill(request):
    ran(request)
    frozen(request.config)
    assert False

def test_fails(request):
    ran(request)
    assert False

def test_passes_in_a_standstill(request):
    ran(request)
    frozen(request.config)
"""


def test_a_standstill_is_seen_until_it_is_past() -> None:
    with Witness() as witness:
        started = time.monotonic()
        os.kill(witness.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, witness.pid, os.WSTOPPED)
        time.sleep(2 * STANDSTILL)
        os.kill(witness.pid, signal.SIGCONT)
        assert witness.longest(since=started) >= 2 * STANDSTILL - 0.1
        assert witness.longest(since=time.monotonic() + 3600) == 0


@pytest.mark.nightly
@pytest.mark.parametrize(
    "side_by_side",
    [
        pytest.param([], id="alone", marks=pytest.mark.prove),
        pytest.param(["-p", "tests.kit.forks", "--processes", "1"], id="forked"),
    ],
)
def test_what_failed_in_a_standstill_is_run_again_once(tmp_path: Path, side_by_side: list[str]) -> None:
    for attempt in range(5):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        output = _run(folder, side_by_side)
        if not output["test_fails"][2]:
            break  # no standstill but those that the tests made
    assert output == {
        "test_fails_in_a_standstill": ("PASSED", 2, True),
        "test_fails_in_every_standstill": ("FAILED", 2, True),
        "test_fails": ("FAILED", 1, False),
        "test_passes_in_a_standstill": ("PASSED", 1, False),
    }


def outside() -> dict[str, str]:
    """Return the environment of a pytest that runs in another folder and uses the plugins of the kit."""
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "PYTEST_ADDOPTS": FEW_PLUGINS}


def _run(folder: Path, options: list[str]) -> dict[str, tuple[str, int, bool]]:
    """Return of each test its verdict, how often it ran, and whether the summary says so."""
    (folder / "test_it.py").write_text(TESTS)
    ended = subprocess.run(  # noqa: S603 - pytest, on the file above
        [sys.executable, "-m", "pytest", "-rfp", "-p", "tests.kit.standstill", "-p", "no:cacheprovider", *options],
        cwd=folder,
        env=outside(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2 failed, 2 passed" in ended.stdout
    return {
        name: (verdict, len((folder / name).read_text()), f"RUN AGAIN test_it.py::{name}: " in ended.stdout)
        for verdict, name in re.findall(r"^(PASSED|FAILED) test_it\.py::(\w+)", ended.stdout, re.MULTILINE)
    }
