"""Fixtures for every test: a server per process, a migrated database per test.

HOLDFAST_TEST_POSTGRES chooses the version of PostgreSQL, HYPOTHESIS_PROFILE how many examples are tried.
"""

from __future__ import annotations

import gc
import os
import signal
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings

from tests.kit import wheel as wheels
from tests.kit.databases import administered, clone, create_template
from tools.postgres import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytest_plugins = ["tests.kit.standstill", "tests.kit.forks", "tests.kit.parts", "tests.kit.share", "tests.kit.shown"]

# A suite that a shell started in the background ignores Ctrl-C, and so would every program that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A machine that stands still for a while is no property of what is tested.
PATIENT: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("everyday", max_examples=100, **PATIENT)
settings.register_profile("prove", max_examples=5_000, **PATIENT)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "everyday"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep the garbage collector away from modules and tests, which stay until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A folder that all processes of a run have in common."""
    base = tmp_path_factory.getbasetemp()
    return base if worker_id == "master" else base.parent


@pytest.fixture(scope="session")
def wheel(shared_folder: Path) -> Path:
    """The wheel of this checkout."""
    return wheels.provide(shared_folder / "wheel")


@pytest.fixture(scope="session")
def server_version() -> int:
    return int(os.environ.get("HOLDFAST_TEST_POSTGRES", "15"))


@pytest.fixture(scope="session")
def server(server_version: int) -> Iterator[Server]:
    # What it would do, and when, no test decides: a plan made anew or a transaction more would be counted.
    with Server(server_version, autovacuum="off") as server, administered(server):
        yield server


@pytest.fixture(scope="session")
def template(server: Server) -> str:
    return create_template(server)


@pytest.fixture
def database(server: Server, template: str) -> Iterator[str]:
    with clone(server, template) as url:
        yield url


@pytest.fixture
def empty(server: Server) -> Iterator[str]:
    """The address of a database without a schema."""
    with clone(server, "template0") as url:
        yield url


@pytest.fixture
def connect(database: str) -> Iterator[Callable[..., psycopg.Connection[Any]]]:
    """Open autocommit connections to the test's database, closed at its end; arguments go to psycopg.connect."""
    with ExitStack() as connections:

        def connect(**options: Any) -> psycopg.Connection[Any]:
            return connections.enter_context(psycopg.connect(database, **{"autocommit": True, **options}))

        yield connect


@pytest.fixture
def conn(connect: Callable[..., psycopg.Connection[Any]]) -> psycopg.Connection[Any]:
    return connect()
