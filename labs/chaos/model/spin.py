"""Spin and a C compiler: a model becomes a program that visits every state.

Taken from PATH; on Debian, as root, installed when missing.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tools.postgres import _cache, _locked, _run

if TYPE_CHECKING:
    from collections.abc import Mapping

MODEL = Path(__file__).with_name("lease.pml")
MOST_SECONDS = 300
_VIOLATED = re.compile(r"assertion violated (\w+)|(acceptance cycle) \(at|(invalid end state) \(at")
_STORED = re.compile(r"^ *([\d.e+]+) states, stored", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Search:
    """The result of a search."""

    states: int
    seconds: float
    broken: str | None
    """The invariant; None: it holds in every state."""


def provide() -> None:
    """Install what is missing."""
    missing = [name for name in ("spin", "gcc") if shutil.which(name) is None]
    if not missing:
        return
    with _locked(_cache() / "lock"):
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            raise RuntimeError(f"install {' and '.join(missing)}, or put them on PATH")
        env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        _run(["apt-get", "update", "-qq"], env=env)
        _run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", "spin", "gcc", "libc6-dev"], env=env)


def search(defines: Mapping[str, int | None], *, liveness: bool = False, soon: bool = False) -> Search:
    """Visit every state of the model under these defines, or stop at the first that is wrong.

    `soon`: it will be wrong soon, so that compiling quickly saves more than running quickly.
    """
    flags = [f"-D{name}" if value is None else f"-D{name}={value}" for name, value in defines.items()]
    kind = ["-DNOFAIR"] if liveness else ["-DSAFETY"]
    with tempfile.TemporaryDirectory(prefix="holdfast-model-") as folder:
        begun = time.monotonic()
        _call(["spin", "-a", *flags, *(["-DLIVENESS"] if liveness else []), str(MODEL)], folder)
        _call(["gcc", "-O0" if soon else "-O1", "-w", *kind, "-DMEMLIM=3500", "-o", "pan", "pan.c"], folder)
        output = _call(["./pan", "-m100000", *(["-a"] if liveness else [])], folder)
        seconds = time.monotonic() - begun
    stored, violated = _STORED.search(output), _VIOLATED.search(output)
    # Too deep or too large, it says so, and proves nothing.
    if stored is None or ("Search not completed" in output and violated is None) or "depth too small" in output:
        raise RuntimeError(f"the search did not end:\n{output}")
    broken = None
    if violated is not None:
        broken = violated[1] or ("every_job_ends" if violated[2] else "invalid end state")
    return Search(states=int(float(stored[1])), seconds=seconds, broken=broken)


def _call(command: list[str], folder: str) -> str:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=MOST_SECONDS, check=False, stdin=subprocess.DEVNULL
    )
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr
