"""Runs pytest for one statement after another, each time in a fork that has imported all but the checkout.

Reads lines of JSON, the text of a statement and the file of its test, and writes the status of each run and its output.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import tempfile
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import psycopg
import pytest

from tools import postgres

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OPTIONS = [
    *("-q", "-x", "--assert=plain", "--timeout=240", "-o", "timeout_func_only=false"),
    *("-p", "no:cacheprovider", "-p", "no:randomly"),
]
SECONDS = 900
PATIENCE = 12.0
# The settings of the server of most tests: see tests/conftest.py.
USUAL = {"autovacuum": "off"}


class Chosen:
    """A plugin that leaves the tests of one statement, or without a name those of all."""

    def __init__(self, statement: str) -> None:
        self._statement = statement

    def pytest_configure(self) -> None:
        """Wait for less time: a mutation prevents what is waited for, however late."""
        from tests.kit import fleet, waiting

        waiting.until.__defaults__ = (PATIENCE,)
        fleet.SOON = PATIENCE

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [
            item
            for item in items
            if any(self._statement in {mark.args[1], ""} for mark in item.iter_markers("statement"))
        ]


@contextmanager
def lent(server: postgres.Server) -> Iterator[postgres.Server]:
    """Lend a server that runs, without the databases of the last run."""
    with psycopg.connect(server.url(), autocommit=True) as conn:
        own = "SELECT datname FROM pg_database WHERE NOT datistemplate AND datname <> 'postgres'"
        for (left,) in conn.execute(own).fetchall():
            conn.execute(f"DROP DATABASE {left} WITH (FORCE)".encode())
    yield server


def forked(function: Callable[[], int]) -> tuple[int, str]:
    """Call the function in a fork, and return its status and what was printed."""
    with tempfile.TemporaryFile("w+") as output:
        pid = os.fork()
        if pid == 0:
            _end_with(function, output.fileno())
        poll = select.poll()
        poll.register(os.pidfd_open(pid), select.POLLIN)
        if not poll.poll(SECONDS * 1000):
            os.kill(pid, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        output.seek(0)
        return status, output.read()


def _end_with(function: Callable[[], int], output: int) -> NoReturn:
    status = -1
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        status = function()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _others() -> int:
    """Print the modules that the tests import from elsewhere."""
    before = os.dup(1)
    os.dup2(2, 1)
    pytest.main(["--co", *OPTIONS, "tests/seeds"])
    here = str(Path.cwd())
    files = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
    sys.stdout.flush()
    os.write(before, json.dumps([name for name, file in files.items() if file and not file.startswith(here)]).encode())
    return 0


def main() -> None:
    _, text = forked(_others)
    for name in json.loads(text[text.rindex('["') :]):
        with suppress(Exception):
            import_module(name)
    made = postgres.Server
    with made(int(os.environ.get("HOLDFAST_TEST_POSTGRES", "15")), **USUAL) as server:
        vars(postgres)["Server"] = lambda *given, **settings: (
            lent(server) if settings == USUAL else made(*given, **settings)
        )
        for line in sys.stdin:
            statement, file = json.loads(line)
            run = partial(pytest.main, [*OPTIONS, file], [Chosen(statement)])
            sys.stdout.write(json.dumps(forked(run)) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
