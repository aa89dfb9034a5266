"""The programs of how-to/recipes.md, each with the libraries it is about, which nothing else here needs."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.docs.block import ROOT, blocks

if TYPE_CHECKING:
    from tests.docs.block import Block

LIBRARIES = ["sqlmodel", "litestar", "uvloop", "anyio", "attrs", "cattrs", "httpx"]
RECIPES = [
    (program, output) for program, output in pairwise(blocks("docs/how-to/recipes.md")) if program.language == "python"
]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python with the libraries of the recipes."""
    environment = tmp_path_factory.mktemp("recipes")
    _run(sys.executable, "-m", "venv", "--without-pip", environment)
    found = environment / "bin" / "python"
    uv = Path(sys.executable).parent / "uv"
    _run(uv, "pip", "install", "-q", "--python", found, f"{ROOT}[sqlalchemy,binary]", *LIBRARIES)
    return found


def _run(*command: str | Path, **options: Any) -> str:
    done: subprocess.CompletedProcess[str] = subprocess.run(  # noqa: S603 - a program of the page
        command, capture_output=True, text=True, timeout=300, check=False, **options
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.nightly
@pytest.mark.parametrize(("program", "output"), RECIPES, ids=[program.title for program, _ in RECIPES])
def test_a_recipe_does_what_it_shows(
    program: Block, output: Block, python: Path, database: str, tmp_path: Path
) -> None:
    (tmp_path / program.title).write_text(program.text)
    variables = {"HOLDFAST_DATABASE_URL": database, "DATABASE_URL": database, "HOLDFAST_WORKER_ENABLED": "true"}
    # As a module, so that its types have the name of the file.
    start = f"import {Path(program.title).stem}"
    assert _run(python, "-W", "error", "-c", start, cwd=tmp_path, env=os.environ | variables) == output.text
