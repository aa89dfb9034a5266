"""Scripts that the theme would load from another host: taken from npm once, and kept in the cache of this machine.

mermaid draws the diagrams, and iframe-worker makes the search work when the site is read from a disk.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple


class Script(NamedTuple):
    package: str
    member: str
    sha256: str


SCRIPTS = {
    "assets/mermaid.js": Script(
        "@mermaid-js/tiny@12.0.0",
        "package/dist/mermaid.tiny.js",
        "9f2807e402479d2864bfd9a95052076fc69d0ff45a0b25148b84b70fc33425b9",
    ),
    "assets/iframe-worker.js": Script(
        "iframe-worker@1.0.4",
        "package/shim/index.js",
        "e8e412dbcfea9b7e31b5ffa288d7b6035915e714c542f4176a0cdbe262fc9609",
    ),
}


def provide(script: Script) -> Path:
    """Return the file of a script; fetch its package when it is missing."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdfast-site"
    file = cache / f"{script.sha256}.js"
    if not file.exists():
        cache.mkdir(parents=True, exist_ok=True)
        text = _fetched(script)
        if (found := hashlib.sha256(text).hexdigest()) != script.sha256:
            raise RuntimeError(f"{script.package}: expected a file with the digest {script.sha256}, got {found}")
        new = file.with_suffix(f".{os.getpid()}")
        new.write_bytes(text)
        new.rename(file)
    return file


def _fetched(script: Script) -> bytes:
    # A virtualenv that is not activated has its node and npm beside its python.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    npm = shutil.which("npm", path=path)
    if npm is None:
        raise RuntimeError(f"{script.package} comes from npm, which is missing: run make setup")
    with tempfile.TemporaryDirectory() as folder:
        command = [npm, "pack", "--silent", script.package]
        subprocess.run(command, cwd=folder, env=os.environ | {"PATH": path}, check=True, capture_output=True)
        [packed] = Path(folder).glob("*.tgz")
        with tarfile.open(packed) as archive:
            member = archive.extractfile(script.member)
            if member is None:
                raise RuntimeError(f"{script.package}: expected the file {script.member}")
            return member.read()
