"""The ground a measurement stands on: a durable PostgreSQL of its own, and migrated databases in it.

HOLDFAST_BENCH_POSTGRES chooses the version.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg

from tests.kit.databases import clone, create_template
from tools.postgres import Server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

SETTINGS: dict[str, str | int] = {
    "fsync": "on",
    "full_page_writes": "on",
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "30min",
}


class Ground:
    """A server, and fresh databases with the schema."""

    def __init__(self, server: Server, template: str | None = None) -> None:
        """`template`: a migrated database to copy. Default: it is created."""
        self.server = server
        self._template = template or create_template(server)

    def database(self) -> AbstractContextManager[str]:
        """Yield the address of a migrated, unused database."""
        return clone(self.server, self._template)


@contextmanager
def ground(**settings: str | int) -> Iterator[Ground]:
    with Server(version(), **(SETTINGS | settings)) as server:
        yield Ground(server)


def version() -> int:
    return int(os.environ.get("HOLDFAST_BENCH_POSTGRES", "15"))


@contextmanager
def connected(url: str) -> Iterator[psycopg.Connection[Any]]:
    """Yield a connection that prepares every statement, as a worker's does."""
    with psycopg.connect(url, autocommit=True, prepare_threshold=0) as conn:
        # The plain statements have no settings of their own; ours do.
        conn.execute("SET enable_seqscan = off")
        conn.execute("SET jit = off")
        yield conn


def checkpoint(conn: psycopg.Connection[Any]) -> None:
    """Write out what loading left behind, so that no turn pays for it."""
    conn.execute("CHECKPOINT")


def progress(text: str) -> None:
    print(f"  … {text}", file=sys.stderr, flush=True)
