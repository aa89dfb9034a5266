"""A worker with a loop that cannot go on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from holdfast._engine.keeper import BROKEN_STATUS, MOST_ENDS
from tests.kit.commands import Running
from tests.telemetry.asking import wait_until
from tools.ports import free_port


@pytest.fixture
def frail(tmp_path: Path) -> Path:
    """A folder with the application `frail:app`."""
    shutil.copy(Path(__file__).with_name("frail.py"), tmp_path)
    return tmp_path


def test_it_ends_with_a_status_of_its_own(database: str, frail: Path) -> None:
    with Running("worker", "frail:app", database=database, cwd=frail) as worker:
        [ended, *_] = worker.wait_for_line("a loop of the worker ended, and is started again", MOST_ENDS)
        assert (ended["loop"], ended["ends"]) == ("finisher", 1)
        assert "it ends again and again" in str(ended["exception"])
        worker.wait_for_line("a loop of the worker cannot go on")
        assert worker.ended() == BROKEN_STATUS


def test_readiness_names_the_loop(database: str, frail: Path) -> None:
    port = free_port()
    with Running(
        "worker", "frail:app", "--http", f"127.0.0.1:{port}", database=database, cwd=frail, FRAIL_PAUSE="3600"
    ):
        output = wait_until(port, "/ready", lambda output: "loop_ended" in output.text)
        assert output.status == 503
        assert [(p["code"], p["loop"]) for p in output.json["problems"]] == [("loop_ended", "finisher")]
