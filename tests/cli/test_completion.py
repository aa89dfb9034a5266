"""Completion in the shell, by argcomplete."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.commands import PATIENCE, environment


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("holdfast c", {"capacity", "check"}),
        ("holdfast queues ", {"list", "pause", "resume", "set", "cancel-waiting", "-h", "--help"}),
        ("holdfast tokens make --role ", {"viewer", "operator", "developer"}),
        ("holdfast jobs list --status p", {"pending", "processing"}),
        ("holdfast worker shop:app --log-format ", {"auto", "human", "json"}),
        # What is for ourselves is not offered.
        ("holdfast worker shop:app --supervised", set()),
    ],
)
def test_completion(line: str, expected: set[str], tmp_path: Path) -> None:
    complete = 'eval "$(register-python-argcomplete holdfast)"'
    ask = f"{complete}\nCOMP_LINE='{line}' COMP_POINT={len(line)}\n_python_argcomplete holdfast\necho ${{COMPREPLY[@]}}"
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    out = subprocess.check_output(  # noqa: S603 - the shell under test
        ["/bin/bash", "-c", ask], text=True, timeout=PATIENCE, env=environment(None, PATH=path), cwd=tmp_path
    )
    assert set(out.split()) >= expected
    assert expected or not out.strip()
