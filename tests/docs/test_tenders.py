"""The README of tenders: started in a clean environment, used over HTTP, and stopped without a trace."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.docs.block import ROOT, blocks
from tests.docs.page import Run

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.nightly

README = "examples/tenders/README.md"
EXAMPLE = ROOT / "examples" / "tenders"
APPLICATION = "A second terminal"


@pytest.fixture
def clone() -> Iterator[Path]:
    """A clone, as far as the commands need it, in a folder that the user of the temporary PostgreSQL may enter."""
    with tempfile.TemporaryDirectory(prefix="tenders-readme-") as name:
        folder = Path(name)
        for part in (folder, folder / "tmp"):
            part.mkdir(exist_ok=True)
            part.chmod(0o755)
        shutil.copy(ROOT / "pyproject.toml", folder)
        ignored = shutil.ignore_patterns("__pycache__", "tests")
        shutil.copytree(EXAMPLE, folder / "examples" / "tenders", ignore=ignored)
        yield folder


def test_the_readme_does_what_it_shows(clone: Path, variables: dict[str, str]) -> None:
    temporary = clone / "tmp"
    shell = variables | {"TMPDIR": str(temporary)}
    install, start, *use = [block for block in blocks(README) if block.language == "console"]
    with Run(clone, shell, "") as run:
        shell |= {"PORT": run.ports["8000"], "LOCAL_PORT": run.ports["8080"]}
        run.run([install, start])
        try:
            ran = run.run(use)
        except BaseException as exc:
            exc.add_note(run.printed(APPLICATION))
            raise
        finally:
            # In any case: its servers would outlive it.
            status, printed = run.interrupt(APPLICATION)
        assert ran.commands >= 15
        assert (status, "Traceback" in printed) == (0, False), printed
        for port in ("8000", "8080"):
            with pytest.raises(httpx.ConnectError):
                httpx.get(f"http://127.0.0.1:{run.ports[port]}/", trust_env=False)
    assert list(temporary.iterdir()) == []
    assert not (clone / "examples" / "tenders" / "tenders.env").exists()


def test_the_package_has_all_that_it_needs(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    done = subprocess.run(  # noqa: S603 - hatchling, on this checkout
        command, cwd=EXAMPLE, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    [built] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(built) as package:
        names = set(package.namelist())
    assert {"tenders/migrations/0001_tables.sql", "tenders/__main__.py", "tenders/local/server.py"} <= names
    assert not [name for name in names if "/tests/" in name]
