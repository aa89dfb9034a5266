"""The public API as type checkers see it: what is accepted has no error, what is rejected one on each marked line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent

Found = dict[str, set[int]]


def run(*command: str) -> str:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    ran = subprocess.run(  # noqa: S603 - our own tools
        [sys.executable, "-m", *command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode in {0, 1}, ran.stdout + ran.stderr
    return ran.stdout


def files(folder: str) -> list[str]:
    return [str(path) for path in sorted((HERE / folder).glob("*.py"))]


def mypy(folder: str) -> Found:
    found: Found = defaultdict(set)
    for line in run("mypy", "--strict", "--no-error-summary", *files(folder)).splitlines():
        if match := re.match(r"(.+\.py):(\d+): error:", line):
            found[Path(match[1]).name].add(int(match[2]))
        elif ": note:" not in line:
            pytest.fail(line)
    return found


def pyright(folder: str) -> Found:
    report = json.loads(run("pyright", "--outputjson", "--pythonpath", sys.executable, *files(folder)))
    assert report["summary"]["filesAnalyzed"] == len(files(folder))
    found: Found = defaultdict(set)
    for diagnostic in report["generalDiagnostics"]:
        if diagnostic["severity"] == "error":
            found[Path(diagnostic["file"]).name].add(diagnostic["range"]["start"]["line"] + 1)
    return found


def marked(folder: str) -> Found:
    """Return the lines that say `# rejected`."""
    return {
        path.name: {number for number, line in enumerate(path.read_text().splitlines(), 1) if "# rejected" in line}
        for path in (HERE / folder).glob("*.py")
    }


# What is accepted `make check` looks at, too.
@pytest.mark.parametrize(
    ("checker", "folder"),
    [
        pytest.param("mypy", "accepted", marks=pytest.mark.prove),
        ("mypy", "rejected"),
        pytest.param("pyright", "accepted", marks=pytest.mark.prove),
        ("pyright", "rejected"),
    ],
)
def test_checkers_agree_with_the_marks(checker: str, folder: str) -> None:
    found = mypy(folder) if checker == "mypy" else pyright(folder)
    expected = marked(folder)
    assert {name: sorted(found.get(name, ())) for name in expected} == {
        n: sorted(lines) for n, lines in expected.items()
    }
    assert any(expected.values()) == (folder == "rejected")
