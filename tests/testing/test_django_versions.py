"""Django's patterns, on every version of Django that is supported, and not only on the one that is pinned."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDED = ("hypothesis", "psycopg[binary]", "pytest", "pytest-asyncio", "pytest-randomly", "pytest-timeout")
LONGEST_SECONDS = 900


def run(*command: str | Path) -> str:
    done = subprocess.run(  # noqa: S603 - our own commands
        [str(part) for part in command],
        cwd=ROOT,
        env=os.environ | {"PYTEST_ADDOPTS": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LONGEST_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    return done.stdout


@pytest.mark.prove
@pytest.mark.parametrize(
    ("django", "python"),
    [("~=4.2.0", "oldest"), ("~=5.2.0", "newest"), ("", "newest")],
    ids=["4.2", "5.2", "newest"],
)
def test_the_test_kit_and_the_integration(tmp_path: Path, django: str, python: str) -> None:
    run(run("tools/python.sh", python).strip(), "-m", "venv", tmp_path)
    inside = tmp_path / "bin" / "python"
    run(inside, "-m", "pip", "install", "--quiet", f"django{django}", ROOT, *NEEDED)
    version = run(inside, "-c", "import django; print(django.__version__)").strip()
    assert version.startswith(django.removeprefix("~=").removesuffix("0"))
    reported = run(inside, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/testing/test_django.py")
    assert "4 passed" in reported
