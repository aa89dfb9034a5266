"""The process of an export needs little memory, however many rows a day has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast._archive import export
from tests.archive.killed import children

if TYPE_CHECKING:
    from tests.kit.archive import History

pytestmark = pytest.mark.nightly

MEBIBYTES = 300


@pytest.mark.parametrize("jobs", [300_000, pytest.param(3_000_000, marks=pytest.mark.prove)])
async def test_memory_is_bounded(history: History, jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    history.jobs_of(100, jobs)
    history.jobs_of(99, jobs // 10)  # by the same process
    peaks: list[int] = []

    def measure(_: str) -> None:
        for pid in children():
            status = Path(f"/proc/{pid}/status").read_text()
            if found := re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE):
                peaks.append(int(found[1]) // 1024)

    monkeypatch.setattr(export, "on_step", measure)
    assert (await history.export())["rows_exported"] == jobs + jobs // 10
    assert 20 < max(peaks) < MEBIBYTES
