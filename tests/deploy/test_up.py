"""`make up` of the page: from a clone to a dashboard with a job done, without a container engine."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.deploy.containerfile import ROOT
from tests.deploy.program import Program
from tests.deploy.test_compose import ask
from tests.docs.block import blocks
from tests.kit.shown import SHOWN
from tools.compose import Service

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.nightly

PAGE = "docs/how-to/deploy.md"
VENV = Path(sys.executable).parents[1]


def shown() -> list[str]:
    """Return the commands of the page."""
    (block,) = [block for block in blocks(PAGE) if block.language == "sh" and "git clone" in block.text]
    return block.text.splitlines()


def variables() -> dict[str, str]:
    kept = ("PATH", "HOME", "LANG", "PYENV_ROOT", "PIP_", "UV_", "SSL_", "npm_", "NPM_", "NODE_")
    return {name: value for name, value in os.environ.items() if name.startswith(kept) or "proxy" in name.lower()} | {
        "PYTHONUNBUFFERED": "1"
    }


def follow(command: list[str], folder: Path) -> float:
    """Run `make up`, use what it prints, and stop it. Return the seconds until a job was done and shown."""
    began = time.monotonic()
    with Program(command, cwd=folder, env=variables()) as up:
        assert up.wait_for_line("receipt for order") == "receipt for order 7 sent, attempt 1\n"
        token = up.wait_for_line("hf_").strip()
        dashboard = up.wait_for_line("Dashboard").split()[1]
        assert b"<title>" in ask(f"{dashboard}/")
        listed = json.loads(ask(f"{dashboard}/api/v1/jobs?status=completed", token))
        took = time.monotonic() - began
        assert [job["kind"] for job in listed["items"]] == ["receipt.send"], listed
        up.wait_for_line("Everything runs")
        # As a terminal does it: to all of them.
        os.killpg(up.process.pid, signal.SIGINT)
        up.ended()
    with pytest.raises(OSError, match="refused"):
        ask(f"{dashboard}/live")
    return took


def test_make_up_leads_to_a_dashboard_with_a_job_done(record_property: Callable[[str, object], None]) -> None:
    assert shown()[-1] == "make up"
    took = follow(["make", "--no-print-directory", "up", f"VENV={VENV}", "ARGS=--free-ports"], ROOT)
    record_property(SHOWN, f"make up, installed: {took:.1f} seconds to a job done")
    assert took < 60


@pytest.mark.prove
def test_three_commands_lead_there_from_a_clone(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    clone, enter, make = shown()
    assert (clone.split()[:2], enter) == (["git", "clone"], "cd holdfast")
    folder = tmp_path / "holdfast"
    began = time.monotonic()
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)  # noqa: S603, S607
    # What `make up` does first, in a command of its own: it takes longer than a line is waited for.
    first = ["make", ".venv/bin/holdfast", "src/holdfast/_ops/pages/index.html"]
    subprocess.run(first, cwd=folder, env=variables(), check=True)  # noqa: S603
    installed = time.monotonic() - began
    took = installed + follow([*make.split(), "ARGS=--free-ports"], folder)
    record_property(SHOWN, f"make up, from a clone: three commands and {took:.0f} seconds to a job done")
    assert took < 15 * 60


def test_a_service_that_ends_is_reported_with_what_it_printed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print('the port is taken')"]
    with (
        Service(command, cwd=tmp_path, env={}, log=tmp_path / "log") as service,
        pytest.raises(RuntimeError, match=re.compile("'started' was not printed:\nthe port is taken", re.MULTILINE)),
    ):
        service.wait_for("started")
