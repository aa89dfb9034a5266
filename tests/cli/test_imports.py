"""Small commands import little."""

from __future__ import annotations

import subprocess
import sys

import pytest

from holdfast import _cli as cli


@pytest.mark.parametrize("command", ["jobs", "events", "runners", "worker", "migrate"])
def test_a_command_imports_neither_the_others_nor_the_api(command: str) -> None:
    others = {f"holdfast._cli.{name}" for name in cli._COMMANDS if name != command} | {"holdfast._ops.responses"}
    code = (
        "import contextlib, sys; from holdfast._cli import main\n"
        f"with contextlib.suppress(SystemExit): main([{command!r}, '--help'])\n"
        f"print('too many:', sorted({others!r} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert f"usage: holdfast {command}" in done.stdout
    assert done.stdout.endswith("too many: []\n")
