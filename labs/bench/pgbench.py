"""pgbench, for many clients that cost little."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tools.postgres import provide

if TYPE_CHECKING:
    from tools.postgres import Server

_RATE = re.compile(r"^tps = ([\d.]+)", re.MULTILINE)


def transactions_per_second(server: Server, url: str, script: str, *, clients: int, seconds: int) -> float:
    """Run one statement per transaction, prepared, in every client; return the rate of all."""
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(script)
        file.flush()
        options = ["-n", "-M", "prepared", "-c", str(clients), "-j", "2", "-T", str(seconds), "-f", file.name]
        done = subprocess.run([_program(server), *options, url], capture_output=True, text=True, check=False)
    found = _RATE.search(done.stdout)
    assert done.returncode == 0 and found, done.stdout + done.stderr  # noqa: PT018 - one thing: it worked
    return float(found[1])


def _program(server: Server) -> Path:
    """Return pgbench of this server, or any other: it only speaks the protocol."""
    places = [provide(server.version) / "pgbench", *sorted(Path("/usr/lib/postgresql").glob("*/bin/pgbench"))]
    if on_path := shutil.which("pgbench"):
        places.append(Path(on_path))
    for place in places:
        if place.exists():
            return place
    raise RuntimeError("pgbench is missing: install the programs of any PostgreSQL")
