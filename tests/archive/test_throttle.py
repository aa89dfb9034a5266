"""An export in the background rests while the server works for others."""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast._archive import throttle as module
from holdfast._archive.throttle import LONGEST, TIMES, ExportThrottle
from holdfast._store.archive import EXPORTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Connect = Callable[..., psycopg.Connection[Any]]


class Clock:
    """A clock of which each row group takes a tenth of a second, and a rest no time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.rested: list[float] = []

    def monotonic(self) -> float:
        self.now += 0.05
        return self.now

    def sleep(self, seconds: float) -> None:
        self.rested.append(seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


@contextmanager
def working(connect: Connect, **options: str) -> Iterator[None]:
    """Run a statement in another session until the end of the block."""
    conn = connect(**options)

    def work() -> None:
        with suppress(psycopg.errors.QueryCanceled):
            conn.execute("SELECT pg_sleep(60)")

    thread = threading.Thread(target=work)
    thread.start()
    watch = connect()
    while watch.execute("SELECT state FROM pg_stat_activity WHERE pid = %s", [conn.info.backend_pid]).fetchone() != (
        "active",
    ):
        assert thread.is_alive()
    watch.close()
    try:
        yield
    finally:
        conn.cancel()
        thread.join()


def test_an_export_alone_does_not_rest(connect: Connect, clock: Clock) -> None:
    throttle = ExportThrottle(connect())
    for _ in range(30):
        throttle.wait()
    assert clock.rested == []


def test_it_rests_while_the_server_works_for_another(connect: Connect, clock: Clock) -> None:
    throttle = ExportThrottle(connect())
    with working(connect):
        for _ in range(10):
            throttle.wait()
    assert 8 <= len(clock.rested) < 10
    assert clock.rested[-1] == pytest.approx(TIMES * 0.1, rel=0.6)
    for _ in range(20):
        throttle.wait()
    before = len(clock.rested)
    for _ in range(20):
        throttle.wait()
    assert len(clock.rested) == before


def test_one_statement_does_not_make_it_rest(connect: Connect, clock: Clock) -> None:
    throttle = ExportThrottle(connect())
    with working(connect):
        throttle.wait()
    throttle.wait()
    assert clock.rested == []


def test_another_export_does_not_make_it_rest(connect: Connect, clock: Clock) -> None:
    throttle = ExportThrottle(connect())
    with working(connect, application_name=EXPORTS):
        for _ in range(10):
            throttle.wait()
    assert clock.rested == []


def test_a_rest_has_an_end(connect: Connect, clock: Clock) -> None:
    throttle = ExportThrottle(connect())
    with working(connect):
        for _ in range(4):
            clock.now += 60
            throttle.wait()
    assert clock.rested[-1] == LONGEST
