"""PROTOCOL, section 8: unique keys are locked in one order by all sessions, so that there is no deadlock."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast._model.unique import Unique
from tests.kit.mutation import open_trap
from tests.kit.sessions import GATE, add_gate, await_waiting
from tests.kit.workers import enqueue, job, number

if TYPE_CHECKING:
    from tests.kit.workers import Connect

KEYS = 300


@pytest.mark.parametrize("window", [None, timedelta(days=31)], ids=["live", "window"])
def test_two_transactions_with_the_same_keys_in_opposite_order(connect: Connect, window: timedelta | None) -> None:
    keeper, conns = connect(), [connect(), connect()]
    jobs = [job(unique=Unique(f"{n:04}", window=window)) for n in range(KEYS)]

    def deadlocks(round_: int) -> int:
        """Let both go at the same moment; return how many of them were chosen to die."""
        keeper.execute("SELECT pg_advisory_lock(%s)", [GATE])
        both = [[new.options(queue=f"q{round_}") for new in way] for way in (jobs, jobs[::-1])]
        with ThreadPoolExecutor(2) as pool:
            calls = [pool.submit(enqueue, conn, *batch) for conn, batch in zip(conns, both, strict=True)]
            try:
                for conn in conns:
                    await_waiting(keeper, conn.info.backend_pid)
            finally:
                keeper.execute("SELECT pg_advisory_unlock(%s)", [GATE])
            errors = [call.exception(timeout=60) for call in calls]
        for error in errors:
            if error is not None and not isinstance(error, psycopg.errors.DeadlockDetected):
                raise error
        assert number(keeper, "SELECT count(*) FROM holdfast.job") == KEYS
        keeper.execute("TRUNCATE holdfast.job, holdfast.unique_window")
        return sum(error is not None for error in errors)

    add_gate(keeper, table="job" if window is None else "unique_window")
    assert sum(deadlocks(n) for n in range(5)) == 0
    if window is None:
        open_trap(keeper, "enqueue_unique_jobs", ("ORDER BY unique_key, kind, ordinality\n", "ORDER BY ordinality\n"))
    else:
        open_trap(keeper, "enqueue_unique_jobs", ("IS NOT NULL ORDER BY 1, 2, 3, 4\n", "IS NOT NULL\n"))
    assert any(deadlocks(n) for n in range(100))
