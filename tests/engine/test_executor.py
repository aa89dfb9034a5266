"""Plain handlers: in threads, and in processes of their own."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import AbortReason, Holdfast, Job
from holdfast._engine import pipeline
from holdfast._engine.jobs.child import Child
from tests.engine import cpu
from tests.kit.pace import QUICK, ms
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.kit.ledger import Ledger


@pytest.fixture
def app(database: str, monkeypatch: pytest.MonkeyPatch) -> Holdfast:
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", database)
    return cpu.app


def no_children() -> bool:
    return not multiprocessing.active_children()


async def test_a_process_runs_handlers_and_is_kept(app: Holdfast, ledger: Ledger) -> None:
    async with app.worker(queues={"default": 1}, **QUICK):
        jobs = []
        for text in ("a", "é\n'"):
            jobs.append(ledger.enqueue_one(cpu.where.new(text)))
            await until(lambda: ledger.status(jobs[-1]) == "completed")
        found = [ledger.job(job).result for job in jobs]
        assert [(one["text"], one["job"], one["attempt"]) for one in found] == [("a", jobs[0], 1), ("é\n'", jobs[1], 1)]
        assert found[0]["pid"] == found[1]["pid"] != os.getpid()
    await until(no_children)


async def test_what_a_process_raises(app: Holdfast, ledger: Ledger) -> None:
    failed, odd, unfit = ledger.enqueue(cpu.fail.new("why"), cpu.odd.new(), cpu.unfit.new())
    async with app.worker(queues={"default": 3}, **QUICK):
        await until(lambda: ledger.statuses() == {"failed": 3})
    assert ledger.job(failed)[1:5] == (1, None, "Fail", "why")
    assert ledger.job(odd)[1:5] == (3, None, "Untravelled", "1 and 2")
    assert ledger.job(unfit).attempt == 1
    assert "the result cannot be stored" in (ledger.job(unfit).error or "")
    await until(no_children)


async def test_a_process_that_ends_is_an_outcome(app: Holdfast, ledger: Ledger) -> None:
    left, died = ledger.enqueue(cpu.leave.new(7), cpu.die.new())
    async with app.worker(queues={"default": 2}, **QUICK):
        await until(lambda: ledger.statuses() == {"completed": 2})
    assert (ledger.job(left).result, ledger.job(died).result) == (2, 2)
    errors = dict(ledger.rows("SELECT job_id, error FROM holdfast.attempt WHERE outcome = 'retry'"))
    assert "exit code 7" in errors[left]
    assert "exit code -9" in errors[died]


async def test_an_error_of_the_system_that_a_process_raises_is_its_own(
    app: Holdfast, ledger: Ledger, tmp_path: Path
) -> None:
    job = ledger.enqueue_one(cpu.missing.new(str(tmp_path / "nothing")))
    async with app.worker(queues={"default": 1}, **QUICK):
        await until(lambda: ledger.statuses() == {"failed": 1})
    assert ledger.job(job).error_code == "FileNotFoundError"


async def test_a_middleware_that_gives_up_ends_the_process(
    app: Holdfast, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = tmp_path / "pid"

    async def hurry(job: Job[Any], _worker: str, proceed: Callable[[], Awaitable[object]]) -> object:
        proceeding = asyncio.ensure_future(proceed())
        if job.kind == "cpu.hurried" and job.attempt == 1:
            await until(lambda: started.exists() and started.read_text())
            proceeding.cancel()
        return await proceeding

    monkeypatch.setattr(app, "middlewares", [hurry])
    hurried = ledger.enqueue_one(cpu.hurried.new(str(started)))
    async with app.worker(queues={"default": 2}, **QUICK):
        await until(lambda: ledger.status(hurried) == "completed")
        [after] = ledger.enqueue(cpu.where.new("after"))
        await until(lambda: ledger.status(after) == "completed")
    assert ledger.job(hurried).result == "in time"
    assert (ledger.job(after).result["text"], ledger.job(after).attempt) == ("after", 1)
    assert ledger.job(after).result["pid"] != int(started.read_text())


async def test_a_kept_process_that_has_died_is_replaced(app: Holdfast, ledger: Ledger) -> None:
    async with app.worker(queues={"default": 1}, **QUICK):
        job = ledger.enqueue_one(cpu.where.new("a"))
        await until(lambda: ledger.status(job) == "completed")
        os.kill(ledger.job(job).result["pid"], signal.SIGKILL)
        job = ledger.enqueue_one(cpu.where.new("b"))
        await until(lambda: ledger.status(job) == "completed")
        assert ledger.job(job).attempt == 1, "nothing was wrong with the job"


async def test_a_process_that_ends_before_the_handler_begins_costs_no_attempt(app: Holdfast, ledger: Ledger) -> None:
    async with app.worker(queues={"default": 1}, **QUICK):
        job = ledger.enqueue_one(cpu.where.new("a"))
        await until(lambda: ledger.status(job) == "completed")
        os.kill(ledger.job(job).result["pid"], signal.SIGSTOP)
        given = ledger.enqueue_one(cpu.where.new("b"))
        await until(lambda: ledger.status(given) == "processing")
        os.kill(ledger.job(job).result["pid"], signal.SIGKILL)
        await until(lambda: ledger.status(given) == "completed")
        assert ledger.job(given).attempt == 1
        assert ledger.job(given).result["pid"] != ledger.job(job).result["pid"]


async def test_a_process_is_killed_when_its_job_is_called_off(app: Holdfast, ledger: Ledger, tmp_path: Path) -> None:
    async with app.worker(**QUICK):
        job = ledger.enqueue_one(cpu.long.new(str(tmp_path / "pid")))
        await until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        assert ledger.cancel(job) == "requested"
        await until(lambda: ledger.status(job) == "cancelled")
        pid = int((tmp_path / "pid").read_text())
        await until(lambda: pid not in {child.pid for child in multiprocessing.active_children()})


async def test_a_process_is_killed_at_shutdown_and_its_job_released(
    app: Holdfast, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "ABORT_GRACE", 5.0)  # a machine that stands still is not what is tested
    async with app.worker(**QUICK):
        job = ledger.enqueue_one(cpu.long.new(str(tmp_path / "pid")))
        await until((tmp_path / "pid").exists)
    assert ledger.job(job)[:2] == ("pending", 0)
    await until(no_children)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_to_the_group_does_not_end_a_process(
    app: Holdfast, ledger: Ledger, tmp_path: Path, number: signal.Signals
) -> None:
    """A terminal and systemd signal every process: the worker gives running jobs their time, and so do these."""
    started, go = tmp_path / "pid", tmp_path / "go"
    worker = app.worker(queues={"default": 1}, **QUICK | {"shutdown_timeout": ms(30_000)})
    async with worker:
        job = ledger.enqueue_one(cpu.patient.new(str(started), str(go)))
        await until(lambda: started.exists() and started.read_text())
        stopping = asyncio.create_task(worker.stop())
        for _ in range(2):
            os.kill(int(started.read_text()), number)
        await until(lambda: worker.stopping)
        go.touch()
        await stopping
    assert ledger.job(job)[:3] == ("completed", 1, 1)


async def test_a_signal_does_not_end_a_process_that_is_only_starting(tmp_path: Path) -> None:
    child = Child()
    starting = asyncio.create_task(asyncio.to_thread(child.start))
    try:
        await until(lambda: child.pid is not None)
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(child.pid or 0, number)
        # It takes a call, so it has come to where it reacts to signals, or does not.
        await starting
        child._send("tests.engine.cpu", "leave", True, 1, "", {}, (), {}, None)
        tag, error = await asyncio.to_thread(child._receive)
        assert (tag, type(error)) == ("raised", KeyError)
    finally:
        child.stop()


async def test_a_program_that_a_handler_starts_reacts_to_signals(app: Holdfast, ledger: Ledger) -> None:
    async with app.worker(queues={"default": 1}, **QUICK):
        job = ledger.enqueue_one(cpu.parent.new())
        await until(lambda: ledger.status(job) == "completed")
    assert ledger.job(job).result == -signal.SIGTERM


async def test_a_process_ends_when_its_worker_is_killed(tmp_path: Path) -> None:
    """Nothing else would end it: it does not react to SIGTERM."""
    script = "import sys, time\nfrom holdfast._engine.jobs.child import Child\nchild = Child()\nchild.start()\n"
    script += "print(child.pid)\nsys.stdout.flush()\ntime.sleep(60)\n"
    (tmp_path / "worker.py").write_text(f"if __name__ == '__main__':\n    {script.replace(chr(10), chr(10) + '    ')}")
    worker = await asyncio.create_subprocess_exec(
        sys.executable, str(tmp_path / "worker.py"), stdout=asyncio.subprocess.PIPE
    )
    assert worker.stdout is not None
    pid = int(await worker.stdout.readline())
    worker.kill()
    await worker.communicate()

    def gone() -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"

    await until(gone)


async def test_a_thread_sees_the_signal(app: Holdfast, ledger: Ledger, database: str) -> None:
    app = Holdfast(database)
    running, reasons = threading.Event(), []

    @app.job("act")
    def act(job: Job[None]) -> str:
        running.set()
        assert job.signal.wait_in_thread(10)
        reasons.append(job.signal.reason)
        return "in vain"

    async with app.worker(**QUICK):
        job = ledger.enqueue_one(act.new())
        await until(running.is_set)
        ledger.cancel(job)
        await until(lambda: ledger.status(job) == "cancelled")
    assert reasons == [AbortReason.cancelled]


async def test_a_thread_sees_the_signal_while_the_loop_is_blocked(ledger: Ledger, database: str) -> None:
    app = Holdfast(database)
    running, seen, reasons = threading.Event(), threading.Event(), []

    @app.job("act")
    def act(job: Job[None]) -> None:
        running.set()
        job.signal.wait_in_thread(30)
        reasons.append(job.signal.reason)
        seen.set()

    @app.job("block", queue="block")
    async def block(job: Job[None]) -> bool:
        return seen.wait(20)

    async with app.worker(queues={"default": 1, "block": 1}, **QUICK):
        job = ledger.enqueue_one(act.new())
        await until(running.is_set)
        blocks = ledger.enqueue_one(block.new())
        ledger.cancel(job)
        await until(lambda: ledger.status(blocks) == "completed")
    assert ledger.job(blocks).result is True, "the heartbeat's thread tells it"
    assert reasons == [AbortReason.cancelled]


STUCK = """
import asyncio, sys, threading
from datetime import timedelta
from holdfast import Holdfast
from psycopg import AsyncConnection
app = Holdfast(sys.argv[1])
running = threading.Event()
@app.job("stuck")
def stuck() -> None:
    running.set()
    threading.Event().wait()
async def go():
    async with app.worker(shutdown_timeout=timedelta(milliseconds=100)):
        async with await AsyncConnection.connect(app.url) as conn: await app.enqueue(conn, stuck.new())
        while not running.is_set(): await asyncio.sleep(0.01)
asyncio.run(go())
print("returned")
"""


async def test_a_thread_that_never_ends_does_not_keep_a_program(database: str) -> None:
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", STUCK, database, stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(60):
            out, _ = await program.communicate()
    finally:
        if program.returncode is None:
            program.kill()
    assert (out, program.returncode) == (b"returned\n", 0)
