"""The README does what it shows, from an empty environment to a phone that was notified; and nothing is left behind."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from tenders.tests.fleet import EXAMPLE
from tests import wheel as wheels
from tests.docs import environment
from tests.docs.page import Run, run_page

if TYPE_CHECKING:
    from tests.docs.environment import Environment

README = "examples/tenders/README.md"
ROOT = EXAMPLE.parents[1]


@pytest.fixture(scope="session")
def clean(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Environment:
    """The environment in which the pages of the documentation are run too."""
    base = tmp_path_factory.getbasetemp()
    shared = base if worker_id == "master" else base.parent
    return environment.provide(shared / "clean-environment", wheels.provide(shared / "wheel"))


def test_the_readme_does_what_it_shows(clean: Environment) -> None:
    with ExitStack() as ends:
        # A folder that the user of the PostgreSQL may enter, and one for all temporary files.
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="tenders-readme-")))
        folder.chmod(0o755)
        temporary = folder / "tmp"
        temporary.mkdir(mode=0o755)
        shutil.copy(ROOT / "pyproject.toml", folder)
        ignored = shutil.ignore_patterns("__pycache__", "tests")
        shutil.copytree(EXAMPLE, folder / "examples" / "tenders", ignore=ignored)

        variables = environment.variables(clean, folder) | {"TMPDIR": str(temporary)}
        run = ends.enter_context(Run(folder, variables, ""))
        variables |= {"PORT": run.ports["8000"], "LOCAL_PORT": run.ports["8080"]}
        try:
            ran = run_page(README, run)
            assert ran.commands >= 15
        finally:
            status, printed = run.stop()
        assert status == 0, printed
        assert "Traceback" not in printed
        assert list(temporary.iterdir()) == []
        assert not (folder / "examples" / "tenders" / "tenders.env").exists()
        for port in ("8000", "8080"):
            with pytest.raises(httpx.ConnectError):
                httpx.get(f"http://127.0.0.1:{run.ports[port]}/")


def test_the_package_has_all_that_it_needs(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    done = subprocess.run(  # noqa: S603 - hatchling, on this checkout
        command, cwd=EXAMPLE, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    [built] = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(built).namelist()
    assert {"tenders/migrations/0001_tables.sql", "tenders/__main__.py", "tenders/local/server.py"} <= set(names)
    assert not [name for name in names if "/tests/" in name]
