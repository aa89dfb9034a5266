from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.docs import environment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.docs.environment import Environment
    from tools.postgres import Server

SHOP = "shop"


@pytest.fixture(scope="session")
def clean(shared_folder: Path, wheel: Path) -> Environment:
    return environment.provide(shared_folder / "clean-environment", wheel)


@pytest.fixture
def variables(clean: Environment, tmp_path: Path) -> dict[str, str]:
    """The environment of a reader's shell: programs, a home, and a package index that has our wheel."""
    inherited = {
        name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_")) or "proxy" in name
    }
    configured = Path.home() / ".config" / "pip" / "pip.conf"
    return inherited | {
        "PATH": os.pathsep.join([str(clean.shims), str(clean.bin), "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin"]),
        "PYTHON": str(clean.bin / "python"),
        "PYTHONUNBUFFERED": "1",
        "HOME": str(tmp_path),
        "LANG": "C.UTF-8",
        # As in a terminal.
        "HOLDFAST_LOG_FORMAT": "human",
        "PIP_FIND_LINKS": f"{clean.wheels} {os.environ.get('PIP_FIND_LINKS', '')}",
        **({"PIP_CONFIG_FILE": str(configured)} if configured.exists() else {}),
    }


@pytest.fixture
def postgres(server: Server) -> dict[str, str]:
    """Where PostgreSQL is, for a page that does not start its own."""
    return {"PGHOST": "127.0.0.1", "PGPORT": str(server.port), "PGUSER": "postgres"}


@pytest.fixture
def shop(server: Server) -> Iterator[str]:
    """The address of the database that pages name. It is there when a page begins, unless the page makes it."""
    with psycopg.connect(server.url(), autocommit=True) as conn:
        conn.execute(f"DROP DATABASE IF EXISTS {SHOP} WITH (FORCE)")
    yield server.url(SHOP)
    with psycopg.connect(server.url(), autocommit=True) as conn:
        conn.execute(f"DROP DATABASE IF EXISTS {SHOP} WITH (FORCE)")
