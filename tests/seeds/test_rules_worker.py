"""020 - Processing and Lease Rules, sections 4 and 6: a worker's identity, its graceful end, and its death."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast, Job, Settings, SettingsError
from holdfast._drivers import run_sync
from holdfast._store.worker import beat_worker, register_worker
from tests.kit.fleet import SOON
from tests.kit.ledger import Ledger
from tests.kit.pace import AT_ONCE, BRIEF, QUICK, ms
from tests.kit.statement import DESIGN, DIFFERENCES, RULES, Document
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

design = Document(DESIGN)
doc = Document(RULES)


@doc.states("RULE-020-052: a worker that stops is logged")
@doc.states("RULE-020-032: log lines carry the worker's id")
async def test_log_correlation(app: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "holdfast"):
        async with app.worker(id="logged", **QUICK):
            pass
    lines = [record for record in caplog.records if record.getMessage().startswith("worker st")]
    assert {vars(record)["worker"] for record in lines} == {"logged"}
    assert lines[-1].getMessage().startswith("worker stopped")


@pytest.fixture
async def stopped(app: Holdfast, ledger: Ledger) -> dict[str, Any]:
    """How a worker stopped that ran one job, with others waiting behind it in its one slot."""
    began, go = asyncio.Event(), asyncio.Event()
    kind = f"stopping.{ledger.value('SELECT count(*) FROM holdfast.worker')}"

    @app.job(kind, queue=kind)
    async def act(job: Job[Any]) -> None:
        began.set()
        await go.wait()

    ids = ledger.enqueue(*[act.new() for _ in range(5)])
    name = f"worker.{kind}"
    async with app.worker(id=name, queues={kind: 1}, **(QUICK | {"shutdown_timeout": ms(20_000)})) as worker:
        async with asyncio.timeout(SOON):
            await began.wait()
            stopping = asyncio.create_task(worker.stop())
            await until(lambda: worker.stopping)
            go.set()
            await stopping
    return {
        "jobs": [ledger.job(one)[:2] for one in ids],
        "row": ledger.rows("SELECT stop_reason, stopped_at IS NOT NULL FROM holdfast.worker WHERE name = %s", name),
        "sessions": ledger.sessions,
    }


@doc.states("RULE-020-030: a graceful shutdown accepts no new batches; what was not started is given back uncounted")
def test_no_new_batches(stopped: dict[str, Any]) -> None:
    assert stopped["jobs"][1:] == [("pending", 0)] * 4


@design.states("a stop waits for the current job to complete")
@doc.states("RULE-020-030: a graceful shutdown completes what is in flight")
def test_in_flight(stopped: dict[str, Any]) -> None:
    assert stopped["jobs"][0] == ("completed", 1)


@doc.states("RULE-020-030: a graceful shutdown releases its resources")
async def test_release(stopped: dict[str, Any]) -> None:
    await until(lambda: stopped["sessions"]() == 0)


@doc.states("RULE-020-030: a graceful shutdown ends cleanly, and says so in the worker's row")
def test_exit(stopped: dict[str, Any]) -> None:
    assert stopped["row"] == [("stopped", True)]


@doc.states("RULE-020-031: a shutdown timeout beyond the lease is refused")
def test_shutdown_timeout_is_bounded() -> None:
    with pytest.raises(SettingsError, match=r"WORKER_SHUTDOWN_TIMEOUT_MS .* must be at most"):
        Settings.load({"WORKER_SHUTDOWN_TIMEOUT_MS": "60001", "OUTBOX_LEASE_DURATION_MS": "60000"})


@doc.states("RULE-020-031: what outlasts the timeout is aborted and released at once", differs=DIFFERENCES)
async def test_shutdown_timeout(app: Holdfast, ledger: Ledger) -> None:
    began, reasons = asyncio.Event(), list[Any]()

    @app.job("outlasting")
    async def act(job: Job[Any]) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            reasons.append(job.signal.reason)

    one = ledger.enqueue_one(act.new())
    async with app.worker(**(QUICK | {"shutdown_timeout": ms(10)})):
        async with asyncio.timeout(SOON):
            await began.wait()
    assert ledger.job(one)[:2] == ("pending", 0)
    assert reasons == ["shutdown"]


KILLED = """
import asyncio, os, sys
from datetime import timedelta
from holdfast import Holdfast, Job
app = Holdfast(sys.argv[1])
@app.job("killed")
async def act(job: Job) -> None:
    print("began", flush=True)
    await asyncio.Event().wait()
async def main() -> None:
    ms = timedelta(milliseconds=1)
    async with app.worker(id="victim", lease=2000 * ms, heartbeat=300 * ms, reap_interval=300 * ms,
                          shutdown_timeout=1000 * ms):
        await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest.fixture(scope="module")
def death(database: str) -> Iterator[dict[str, Any]]:
    """The log lines, transitions and rows of a worker that was killed while it ran a job."""
    reported: list[Any] = []

    async def survive(ledger: Ledger, one: int) -> None:
        app = Holdfast(database)

        @app.job("killed", retry=AT_ONCE)
        async def act(job: Job[Any]) -> None: ...

        app.listeners.append(reported.append)
        async with app.worker(**BRIEF):
            await until(lambda: ledger.status(one) == "completed")

    with Ledger(database) as ledger:
        ledger.do("SELECT holdfast.enqueue('killed')")
        one = ledger.value("SELECT max(id) FROM holdfast.job WHERE kind = 'killed'")
        with subprocess.Popen(  # noqa: S603 - a worker of the test's own
            [sys.executable, "-c", KILLED, database], stdout=subprocess.PIPE, env=dict(os.environ)
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"began\n"
            process.send_signal(signal.SIGKILL)
            process.wait()
        asyncio.run(survive(ledger, one))
        yield {
            "job": ledger.job(one),
            "told": [transition.name for transition in reported if transition.job == one],
            "attempts": ledger.attempts(one),
            "row": ledger.rows("SELECT stopped_at, stop_reason FROM holdfast.worker WHERE name = 'victim'"),
        }


@doc.states("RULE-020-052: a worker that was killed triggers the reaper's recovery, and its job runs again")
def test_death_is_recovered(death: dict[str, Any]) -> None:
    assert death["job"][:2] == ("completed", 2)


@doc.states("RULE-020-052: the death is on record: the attempt was lost, and the worker's row has no end")
def test_death_is_recorded(death: dict[str, Any]) -> None:
    assert death["attempts"][0] == (1, "lost")
    [(stopped_at, reason)] = death["row"]
    assert stopped_at is None
    assert reason in {None, "lost"}


@doc.states("RULE-020-052: the death is reported to who watches: job_reaped")
def test_death_is_reported(death: dict[str, Any]) -> None:
    assert "job_reaped" in death["told"]


@doc.states(
    "RULE-020-052: a worker that died while it held nothing is logged and reported by the next pass of a reaper"
)
async def test_idle_death_is_reported(app: Holdfast, ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    reported: list[Any] = []
    app.listeners.append(reported.append)
    dead = register_worker("idle", queues=["default"], kinds=[], settings={"processing_timeout_ms": 60_000})
    one = run_sync(ledger.conn, dead)
    async with app.worker(id="first", **QUICK), app.worker(id="second", **QUICK):
        ledger.do("UPDATE holdfast.worker SET heartbeat_at = now() - interval '61 s' WHERE id = %s", one)
        await until(
            lambda: [each.details["lost_worker"] for each in reported if each.name == "worker_lost"] == ["idle"]
        )
        assert any("a worker died" in record.getMessage() for record in caplog.records)
        since = ledger.value("SELECT clock_timestamp()")
        both = "SELECT min(reaped_at) > %s FROM holdfast.worker WHERE name IN ('first', 'second')"
        await until(lambda: ledger.value(both, since))
    assert [each.name for each in reported].count("worker_lost") == 1, "once, by one worker"
    run_sync(ledger.conn, beat_worker(one, {}))
    assert ledger.rows("SELECT stopped_at, stop_reason FROM holdfast.worker WHERE id = %s", one) == [(None, None)]
