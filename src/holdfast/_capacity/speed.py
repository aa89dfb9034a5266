"""The speed of a server and of this machine, measured in a few seconds. No table is read or written."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg

from holdfast._drivers import run_sync
from holdfast._store.measure import COMMITS, commit_often, spend_cpu, write_wal

if TYPE_CHECKING:
    from collections.abc import Callable

SESSIONS = 16
# The WAL that the measurement writes, in bytes: as many messages of this size.
MESSAGES, MESSAGE_BYTES = 8, 8_000_000
# The speed of a core can change several times a second, so the loops alternate for a few seconds.
_TIMES = 30
_LONGEST_SECONDS = 20.0
_WORDS = {f"key{n}": [n, str(n), None, {"nested": n / 7}] for n in range(200)}


class Speed(NamedTuple):
    """The speed of a machine. Less is faster for times, more for rates."""

    server_seconds: float
    """The time of `spend_cpu` on one core of the server."""
    client_seconds: float
    """The time of a loop in Python."""
    commits: float
    """Commits per second over all sessions."""
    commit_seconds: float
    """The time of one commit with one session."""
    wal: float
    """Bytes of WAL per second with one session."""
    round_trip: float
    """The time of an empty query."""


def measure_speed(
    connect: Callable[[], psycopg.Connection[Any]], *, refused: type[Exception] = psycopg.OperationalError
) -> Speed:
    """Measure the server that `connect()` opens autocommit connections to. It takes about six seconds.

    At most 16 connections are open at once, and fewer if the server refuses more: `connect()` then raises `refused`.
    About 64 MB of WAL are written.
    """
    with ExitStack() as opened:
        sessions = [opened.enter_context(_bounded(connect()))]
        with suppress(refused):
            while len(sessions) < SESSIONS:
                sessions.append(opened.enter_context(_bounded(connect())))
        first = sessions[0]
        server, client = [], []
        for _ in range(_TIMES):
            server.append(_timed(lambda: run_sync(first, spend_cpu())))
            client.append(_timed(_spend_in_python))
        return Speed(
            server_seconds=median(server),
            client_seconds=median(client),
            commits=_commits(sessions),
            commit_seconds=_timed(lambda: commit_often(first)) / COMMITS,
            wal=_wal(first),
            round_trip=_round_trip(first),
        )


def _spend_in_python() -> None:
    """Use objects, text and calls, as a worker does."""
    for _ in range(40):
        json.loads(json.dumps(_WORDS))


def _bounded(conn: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    conn.execute(f"SET statement_timeout = {int(_LONGEST_SECONDS * 1000)}".encode())
    return conn


def _timed(run: Callable[[], object]) -> float:
    started_at = time.perf_counter()
    run()
    return time.perf_counter() - started_at


def _commits(sessions: list[psycopg.Connection[Any]]) -> float:
    with ThreadPoolExecutor(len(sessions)) as threads:
        seconds = _timed(lambda: list(threads.map(commit_often, sessions)))
    return len(sessions) * COMMITS / seconds


def _wal(conn: psycopg.Connection[Any]) -> float:
    def write() -> None:
        for _ in range(MESSAGES):
            run_sync(conn, write_wal(MESSAGE_BYTES))

    return MESSAGES * MESSAGE_BYTES / _timed(write)


def _round_trip(conn: psycopg.Connection[Any]) -> float:
    return median(_timed(lambda: conn.execute("SELECT 1")) for _ in range(100))
