"""Dropping days does not make jobs wait: while a worker is busy, no session waits 50 ms for a lock."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql

from holdfast import Holdfast, Job
from holdfast._archive.cleanup import drop_days
from tests.kit.pace import QUICK
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.kit.archive import History
    from tools.postgres import Server

    LockWaits = Callable[[], list[tuple[int, float]]]

LIMIT_MS = 50
_WAITED = re.compile(r"process (\d+) (?:still waiting for|acquired) .*? after ([\d.]+) ms")


@pytest.fixture
def lock_waits(server: Server, history: History) -> Iterator[LockWaits]:
    """Return the waits for locks of LIMIT_MS or more since the test began: process, and milliseconds."""
    path = server.data.parent / "log"
    for name, value in (("log_lock_waits", "on"), ("deadlock_timeout", f"{LIMIT_MS}ms")):
        history.conn.execute(sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), value))
    history.conn.execute("SELECT pg_reload_conf()")
    begun = path.stat().st_size

    def found() -> list[tuple[int, float]]:
        with path.open() as log:
            log.seek(begun)
            return [(int(pid), float(ms)) for pid, ms in _WAITED.findall(log.read())]

    yield found
    history.conn.execute("ALTER SYSTEM RESET ALL")
    history.conn.execute("SELECT pg_reload_conf()")


def verify_all(history: History, days: int, rows: int) -> None:
    """Make days that are archived, as far as the record says."""
    for days_ago in range(100, 100 + days):
        day = history.jobs_of(days_ago, rows)
        history.conn.execute(
            "INSERT INTO holdfast.archive_exports (source, starts_on, ends_on, state, started_at, lock_token, rows, "
            "verified_at, drop_eligible_at) VALUES ('job_history', %s, %s, 'verified', now(), 1, %s, now(), now())",
            [day, day, rows],
        )


@pytest.mark.parametrize("role", ["owner", "worker"])
@pytest.mark.parametrize(
    ("days", "rows"), [(6, 10_000), pytest.param(30, 200_000, marks=pytest.mark.prove)], ids=["short", "long"]
)
async def test_no_session_waits_for_a_drop(
    history: History, lock_waits: LockWaits, role: str, days: int, rows: int
) -> None:
    url = history.url
    if role == "worker":
        history.conn.execute("DROP ROLE IF EXISTS test_dropper; CREATE ROLE test_dropper LOGIN IN ROLE holdfast_worker")
        url = psycopg.conninfo.make_conninfo(history.url, user="test_dropper")
    verify_all(history, days, rows)
    app = Holdfast(history.url)

    @app.job("act")
    async def act(job: Job[Any]) -> None: ...

    done: list[str] = []
    enough = asyncio.Event()
    async with app.worker(queues={"default": 20}, **QUICK) as worker:

        async def feed() -> None:
            while not enough.is_set():
                async with await psycopg.AsyncConnection.connect(history.url, autocommit=True) as conn:
                    for _ in range(20):
                        await app.enqueue_many(conn, [act.new()] * 10)

        feeding = asyncio.create_task(feed())
        try:
            await until(lambda: worker.counts.get("job_completed", 0) > 100)
            async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:
                dropper = conn.info.backend_pid
                for _ in range(10):
                    await drop_days(conn, history.location, on_dropped=done.append, stopped=lambda: False)
                    if done.count("dropped") == days:
                        break
            busy = worker.counts.get("job_completed", 0)
            await until(lambda: worker.counts.get("job_completed", 0) > busy)
        finally:
            enough.set()
            await feeding
    assert done.count("dropped") == days
    # The drop itself may wait: for a reader to end before a day is detached.
    assert [ms for pid, ms in lock_waits() if pid != dropper] == []
