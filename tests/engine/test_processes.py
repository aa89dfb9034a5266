"""The processes of a worker: one stands ready, more follow the jobs, at most one per core, and none is in the way."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast._app.app import application_of
from holdfast._engine.jobs import child, processes, slots
from holdfast._engine.once import run_tick
from tests.engine import slow_cpu
from tests.kit.fleet import fast
from tests.kit.pace import QUICK
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast import Holdfast
    from tests.kit.ledger import Ledger

CORES = 2


def descriptors() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


@pytest.fixture
def open_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let the processes import the application."""
    gate = tmp_path / "gate"
    monkeypatch.setenv(slow_cpu.GATE, str(gate))
    return gate.touch


@pytest.fixture
def app(database: str, open_gate: object, monkeypatch: pytest.MonkeyPatch) -> Holdfast:
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", database)
    monkeypatch.setattr(slots, "_cores", lambda: CORES)
    return slow_cpu.app


async def test_processes_that_start_hold_up_no_other_queue(
    app: Holdfast, ledger: Ledger, open_gate: Callable[[], None]
) -> None:
    """Fifty jobs wait for processes that import the application, and take no slot meanwhile."""
    jobs = ledger.enqueue(*(slow_cpu.pid.new(number) for number in range(50)))
    async with app.worker(concurrency=10, **QUICK):
        await until(lambda: ledger.statuses().get("processing") == CORES)
        quick = ledger.enqueue_one(slow_cpu.quick.new())
        await until(lambda: ledger.status(quick) == "completed")
        assert ledger.statuses() == {"pending": 48, "processing": CORES, "completed": 1}, "no more than can run"
        open_gate()
        await until(lambda: ledger.completed() == 51)
    found = [ledger.job(job) for job in jobs]
    assert len({job.result for job in found}) == CORES
    assert {job.attempt for job in found} == {1}


@pytest.mark.nightly
async def test_a_queue_that_is_shared_runs_what_needs_no_process(
    app: Holdfast, ledger: Ledger, open_gate: Callable[[], None]
) -> None:
    waiting = ledger.enqueue(*(slow_cpu.mixed.new() for _ in range(5)))
    async with app.worker(concurrency=10, **QUICK):
        quick = ledger.enqueue_one(slow_cpu.quick.new())
        await until(lambda: ledger.status(quick) == "completed")
        open_gate()
        await until(lambda: ledger.completed() == 6)
    assert {ledger.job(job).attempt for job in waiting} == {1}


async def test_the_time_of_an_import_is_not_the_time_of_the_handler(
    app: Holdfast,
    ledger: Ledger,
    open_gate: Callable[[], None],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A start beyond its own limit is logged and tried again. It costs the job no attempt."""
    monkeypatch.setattr(child, "START_SECONDS", 0.7)
    job = ledger.enqueue_one(slow_cpu.pid.new(1))
    with caplog.at_level(logging.ERROR):
        async with app.worker(queues={"slow": 1}, **QUICK):
            await until(lambda: "has not imported the application within 0.7 s" in caplog.text)
            assert ledger.status(job) != "failed"
            monkeypatch.setattr(child, "START_SECONDS", 60.0)
            open_gate()
            await until(lambda: ledger.status(job) == "completed")
    assert ledger.job(job).attempt == 1


@pytest.mark.nightly
async def test_a_one_shot_tick_waits_for_a_process(
    app: Holdfast, ledger: Ledger, open_gate: Callable[[], None]
) -> None:
    open_gate()
    jobs = ledger.enqueue(*(slow_cpu.pid.new(number) for number in range(3)))
    await run_tick(application_of(app, fast(tick_runners=("outbox",), database_urls=(ledger.url,))))
    assert {ledger.status(job) for job in jobs} == {"completed"}
    await until(lambda: not multiprocessing.active_children())


def pids() -> set[int | None]:
    return {process.pid for process in multiprocessing.active_children()}


@pytest.mark.nightly
async def test_one_process_stands_ready_before_the_first_job(app: Holdfast, open_gate: Callable[[], None]) -> None:
    open_gate()
    async with app.worker(queues={"slow": 10}, **QUICK) as worker:
        await until(lambda: len(pids()) == 1)
        await until(lambda: [loop.running for loop in worker.keeper.loops if loop.role == "process"] == [True])
        [first] = pids()
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await until(lambda: first not in pids())
        await until(lambda: len(pids()) == 1)
    assert not pids()


@pytest.mark.nightly
async def test_processes_follow_the_jobs_and_end_when_they_are_idle(
    app: Holdfast, ledger: Ledger, open_gate: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "IDLE_SECONDS", 0.5)
    monkeypatch.setattr(slots, "_cores", lambda: 3)
    open_gate()
    async with app.worker(queues={"slow": 10}, **QUICK) as worker:

        def kept() -> int:
            return sum(loop.role == "process" for loop in worker.keeper.loops)

        await until(lambda: len(pids()) == 1)
        for number in range(3):
            one = ledger.enqueue_one(slow_cpu.pid.new(number))
            await until(lambda: ledger.status(one) == "completed")  # noqa: B023 - awaited in its turn
            assert kept() == 1, "one after the other needs one process"
        ledger.enqueue(*(slow_cpu.pid.new(number) for number in range(30)))
        await until(lambda: len(pids()) == 3)
        await until(lambda: ledger.completed() == 33)
        await until(lambda: len(pids()) == kept() == 1)
        last = ledger.enqueue_one(slow_cpu.pid.new(0))
        await until(lambda: ledger.status(last) == "completed")


@pytest.mark.nightly
@pytest.mark.parametrize("setting", [{"process_max_jobs": 2}, {"process_max_memory_mb": 1}], ids=["jobs", "memory"])
async def test_a_process_is_replaced_after_its_jobs_or_beyond_its_memory(
    app: Holdfast, ledger: Ledger, open_gate: Callable[[], None], setting: dict[str, Any]
) -> None:
    open_gate()
    jobs = ledger.enqueue(*(slow_cpu.pid.new(number) for number in range(6)))
    async with app.worker(queues={"slow": 1}, **setting, **QUICK):
        await until(lambda: ledger.completed() == 6)
    found = [ledger.job(job) for job in jobs]
    assert len({job.result for job in found}) == 6 // setting.get("process_max_jobs", 1)
    assert {job.attempt for job in found} == {1}


@pytest.mark.nightly
async def test_a_worker_that_serves_no_process_kind_starts_none(app: Holdfast) -> None:
    async with app.worker(queues={"other": 1}, **QUICK) as worker:
        assert not [loop for loop in worker.keeper.loops if loop.role == "process"]


@pytest.mark.nightly
async def test_killed_processes_leave_no_descriptors(
    app: Holdfast, ledger: Ledger, open_gate: Callable[[], None]
) -> None:
    open_gate()
    async with app.worker(queues={"hang": 1}, **QUICK):
        first = ledger.enqueue_one(slow_cpu.hang.new())
        await until(lambda: ledger.status(first) == "failed")
        before = descriptors()
        second = ledger.enqueue_one(slow_cpu.hang.new())
        await until(lambda: ledger.status(second) == "failed")
        # One process may be starting in place of the last.
        assert descriptors() <= before + 4
    assert ledger.job(first).attempt == ledger.job(second).attempt == 3


UNGUARDED = """
import asyncio, sys
from holdfast import Holdfast
from psycopg import AsyncConnection
app = Holdfast(sys.argv[1])
@app.job("main.cpu", executor="process", queue="main")
def cpu(n: int) -> int: return n * n
async def go():
    async with await AsyncConnection.connect(app.url) as conn: handle = await app.enqueue(conn, cpu.new(4))
    async with app.worker(): print(await app.wait(handle, timeout=60))
asyncio.run(go())
"""


async def test_a_program_without_a_guard_enqueues_nothing_more(database: str, tmp_path: Path) -> None:
    """A process imports the program's module, which would enqueue again, and start a worker with processes again."""
    (tmp_path / "program.py").write_text(UNGUARDED)
    program = await asyncio.create_subprocess_exec(
        sys.executable, str(tmp_path / "program.py"), database, stderr=asyncio.subprocess.PIPE
    )
    assert program.stderr is not None
    try:
        async with asyncio.timeout(60):
            for _ in range(CORES):
                while "app.enqueue: this module is imported" not in (
                    line := (await program.stderr.readline()).decode()
                ):
                    assert line, "the program has ended"
                assert 'put what runs under `if __name__ == "__main__":`' in line
    finally:
        program.kill()
        await program.communicate()
    with psycopg.connect(database) as conn:
        assert conn.execute("SELECT count(*) FROM holdfast.job").fetchall() == [(1,)]


@pytest.mark.nightly
async def test_a_guarded_program_runs_its_handler_in_a_process(database: str, tmp_path: Path) -> None:
    guarded = UNGUARDED.replace("asyncio.run", 'if __name__ == "__main__": asyncio.run')
    (tmp_path / "program.py").write_text(guarded)
    program = await asyncio.create_subprocess_exec(
        sys.executable, str(tmp_path / "program.py"), database, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await program.communicate()
    assert out == b"16\n"
