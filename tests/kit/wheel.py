"""The wheel of this checkout, built once for all processes of a run."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def provide(folder: Path) -> Path:
    """Build the wheel in this folder, unless another process did, and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not list(folder.glob("*.whl")):
            _build(folder)
    (wheel,) = folder.glob("*.whl")
    return wheel


def _build(folder: Path) -> None:
    # Without node on PATH the dashboard is taken as it is. Building it in the checkout would be seen by other tests.
    done = subprocess.run(  # noqa: S603 - hatchling, on this checkout
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        env=os.environ | {"PATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
