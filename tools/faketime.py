"""libfaketime: a wall clock of one's own for a process.

Taken from the usual folders of a distribution; on Debian, as root, installed when it is missing.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tools.postgres import _cache, _locked, _run

_LIBRARY = "*/faketime/libfaketimeMT.so.1"


def provide() -> Path:
    """Return the library, the one for processes with threads; install it when it is missing."""
    with _locked(_cache() / "lock"):
        if _found() is None:
            if os.geteuid() != 0 or shutil.which("apt-get") is None:
                raise RuntimeError("install libfaketime")
            env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
            _run(["apt-get", "update", "-qq"], env=env)
            _run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", "faketime"], env=env)
        found = _found()
    if found is None:
        raise RuntimeError("libfaketime was installed, but is in no folder of libraries")
    return found


def environment(seconds: float) -> dict[str, str]:
    """Return what a process is started with whose wall clock is off by so much; its monotonic clock is true."""
    return {
        "LD_PRELOAD": str(provide()),
        "FAKETIME": f"{seconds:+.0f}s",
        "DONT_FAKE_MONOTONIC": "1",
        # The times of files stay as they are: else all that Python has compiled would seem to be of another source.
        "NO_FAKE_STAT": "1",
    }


def _found() -> Path | None:
    places = (Path("/usr/lib"), Path("/usr/local/lib"))
    return next((path for place in places for path in sorted(place.glob(_LIBRARY))), None)
