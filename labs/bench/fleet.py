"""Worker processes by the real command, and what they and the server spend on a load."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from labs.bench.cpu import cpu_seconds, server_seconds
from labs.bench.wal import position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import psycopg

LONGEST_SECONDS = 240.0


class Spent(NamedTuple):
    """The difference of two readings of all counters."""

    seconds: float
    server: float
    """CPU seconds of all processes of the server."""
    clients: float
    """CPU seconds of the worker processes."""
    wal: float
    commits: float
    jobs: float


class Meter:
    """Reads the counters of a server and of processes."""

    def __init__(self, conn: psycopg.Connection[Any], server: int, processes: list[int]) -> None:
        self._conn, self._server, self._processes = conn, server, processes

    def read(self) -> Spent:
        self._conn.execute("SELECT pg_stat_force_next_flush()")
        row = self._conn.execute(
            "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
        assert row is not None
        return Spent(
            time.perf_counter(),
            server_seconds(self._server),
            sum(map(cpu_seconds, self._processes)),
            position(self._conn),
            row[0],
            completed(self._conn),
        )

    @contextmanager
    def spent(self) -> Iterator[list[Spent]]:
        """Yield a list that has the difference at the end of the block."""
        found: list[Spent] = []
        before = self.read()
        yield found
        after = self.read()
        found.append(Spent(*(b - a for a, b in zip(before, after, strict=True))))


@contextmanager
def workers(
    url: str, processes: int, *, application: str = "labs.bench.application:app", **settings: object
) -> Iterator[list[int]]:
    """Yield the ids of as many processes, each started by its own command, as separate machines would start them."""
    with ExitStack() as stack:
        yield [stack.enter_context(command(application, _env([url], settings))) for _ in range(processes)]


@contextmanager
def supervised(urls: Sequence[str], processes: int, **settings: object) -> Iterator[int]:
    """Run one command with as many processes, for these databases, and yield the id of the one that started them."""
    with command("labs.bench.application:app", _env(urls, settings), "--processes", str(processes)) as pid:
        yield pid


@contextmanager
def command(application: str, env: dict[str, str], *options: str) -> Iterator[int]:
    """Run `holdfast worker` with these variables and no other address of a database, and yield its process id.

    Like an installation it has its modules as bytecode.
    """
    left_out = "DATABASE_URL", "PYTHONDONTWRITEBYTECODE"
    inherited = {name: value for name, value in os.environ.items() if not name.endswith(left_out)}
    arguments = [sys.executable, "-m", "holdfast", "worker", application, "--log-level", "error", *options]
    started = subprocess.Popen(arguments, env=inherited | env, stdout=subprocess.DEVNULL)
    try:
        yield started.pid
    finally:
        started.terminate()
        try:
            started.wait(90)
        finally:
            started.kill()
            started.wait()


def _env(urls: Sequence[str], settings: Mapping[str, object]) -> dict[str, str]:
    named = {f"HOLDFAST_{name.upper()}": str(value) for name, value in settings.items()}
    return {"HOLDFAST_DATABASE_URL": " ".join(urls)} | named


def wait_until(condition: Callable[[], bool], what: str, *, every: float = 0.05) -> None:
    until = time.monotonic() + LONGEST_SECONDS
    while not condition():
        assert time.monotonic() < until, f"this took too long: {what}"
        time.sleep(every)


def live(conn: psycopg.Connection[Any]) -> int:
    """Return how many workers have registered and not stopped."""
    return number(conn, "SELECT count(*) FROM holdfast.worker WHERE stopped_at IS NULL")


def kept(conn: psycopg.Connection[Any]) -> int:
    """Return how many jobs have ended and are in the history."""
    return number(conn, "SELECT count(*) FROM holdfast.job_history")


def completed(conn: psycopg.Connection[Any]) -> int:
    """Return how many jobs have ended, without counting their rows."""
    return number(
        conn,
        "SELECT coalesce(sum(n_tup_ins), 0) FROM pg_stat_user_tables"
        " WHERE schemaname = 'holdfast' AND relname ~ '^job_(history|failed)_'",
    )


def number(conn: psycopg.Connection[Any], query: str, *params: object) -> int:
    """Return the one value of a query."""
    row = conn.execute(query.encode(), params).fetchone()
    assert row is not None
    return int(row[0])
