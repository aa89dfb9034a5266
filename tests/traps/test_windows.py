"""A claim that looks on an old snapshot locks what another worker has claimed since; windows keep it from that."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast._drivers import run_sync
from holdfast._store import claim as window
from holdfast._store.claim import Windows, claim_jobs
from tests.kit.mutation import open_trap
from tests.kit.sessions import GATE, await_waiting, background
from tests.kit.workers import Worker, fill, number

if TYPE_CHECKING:
    from holdfast._store.claim import Claim
    from tests.kit.workers import Connect

JOBS = 4_000
SESSIONS = 12


def claim(worker: Worker, windows: Windows | None, slots: int = 10) -> Claim:
    return run_sync(worker.conn, claim_jobs(worker.id, {"default": slots}, worker.leases, windows=windows))


@pytest.mark.parametrize("guarded", [True, False], ids=["windows", "none"])
def test_a_claim_on_an_old_snapshot_locks_no_running_job(connect: Connect, guarded: bool) -> None:
    keeper, owner, late = connect(), Worker(connect()), Worker(connect())
    fill(keeper, 10)
    # Its look has its snapshot, and has not come to the first row.
    begin = "(due_times[1], due_ids[1]) AND"
    held_up = f"{begin} (worker <> {late.id} OR pg_advisory_xact_lock_shared({GATE})::text IS NOT NULL) AND"
    open_trap(keeper, "claim_jobs", (begin, held_up))

    def windows() -> Windows | None:
        return Windows() if guarded else None

    keeper.execute("SELECT pg_advisory_lock(%s)", [GATE])
    with late.conn.transaction():
        with background(lambda: claim(late, windows())) as looking:
            await_waiting(keeper, late.conn.info.backend_pid)
            meanwhile = claim(owner, windows())
            keeper.execute("SELECT pg_advisory_unlock(%s)", [GATE])
            found = looking.result(timeout=30)
        if guarded:
            assert (meanwhile.jobs, meanwhile.again) == ([], True)
            assert len(found.jobs) == 10
        else:
            # The trap: it took nothing, and keeps the rows of the one that did.
            assert len(meanwhile.jobs) == 10
            assert found.jobs == []
            with pytest.raises(psycopg.errors.LockNotAvailable):
                owner.end(meanwhile.jobs)
    assert set(owner.end(meanwhile.jobs).values()) <= {"completed"}


def test_many_that_claim_at_once_never_wait_for_each_others_finish(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window, "FRUITLESS", 1_000_000)
    conn = connect()
    fill(conn, JOBS)
    done: list[int] = []
    ended = threading.Event()

    def work(worker: Worker) -> int:
        windows, fallbacks = Windows(), 0
        while not ended.is_set():
            found = claim(worker, windows)
            if (pause := windows.learn(found)) > 0:
                ended.wait(pause)
            if not found.jobs:
                if not found.again:
                    ended.set()
                continue
            try:
                answers = worker.end(found.jobs)
            except psycopg.errors.LockNotAvailable:
                fallbacks += 1
                answers = worker.end(found.jobs, careful=True)
            done.extend(one for one, answer in answers.items() if answer == "completed")
        return fallbacks

    with ExitStack() as stack, ThreadPoolExecutor(SESSIONS) as pool:
        workers = [Worker(stack.enter_context(connect())) for _ in range(SESSIONS)]
        assert list(pool.map(work, workers)) == [0] * SESSIONS
    assert len(done) == len(set(done)) == JOBS
    assert number(conn, "SELECT count(*) FROM holdfast.job") == 0
