"""Problems that would make a user wait in vain are logged once."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from holdfast import Holdfast, Job
from holdfast._engine.jobs import run_handlers as attempt
from holdfast._engine.runner import Budget, Tick
from holdfast._engine.runners.database import open_runner_database
from holdfast._engine.runners.maintenance import Maintenance
from tests.kit.pace import QUICK, ms
from tests.kit.waiting import until

if TYPE_CHECKING:
    import pytest

    from tests.kit.ledger import Ledger


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line.getMessage() for line in caplog.records if line.levelno >= logging.WARNING]


async def test_a_worker_without_kinds_says_so(app: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    async with app.worker(id="w1", **QUICK):
        [logged] = warnings(caplog)
    assert logged.startswith("no kind is registered, so no job runs: ")
    assert logged.endswith("worker=w1")


async def test_a_queue_without_kinds_is_logged(app: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    @app.job("mail.send", queue="mail")
    async def send(job: Job[None]) -> None: ...

    async with app.worker(queues={"mail": 1, "mial": 2}, **QUICK):
        [logged] = warnings(caplog)
    assert logged.startswith("no kind names the queue mial: ")
    assert "the kinds name mail" in logged
    caplog.clear()
    async with app.worker(**QUICK):
        assert warnings(caplog) == []


async def test_a_due_kind_without_a_worker_is_logged_once(
    database: str, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    app = Holdfast(database)

    @app.job("pdf.render", queue="pdf")
    async def render(job: Job[None]) -> None: ...

    async with open_runner_database(database, name="test", seconds=30.0) as site:
        maintenance = Maintenance(site)

        async def tick() -> list[str]:
            caplog.clear()
            ledger.do("DELETE FROM holdfast.census")
            await maintenance.tick(Tick(name="maintenance", budget=Budget()))
            return warnings(caplog)

        ledger.enqueue_one(render.new())
        assert await tick() == [], "a worker may be starting"
        ledger.do("UPDATE holdfast.job SET available_at = now() - interval '2 minutes'")
        [logged] = await tick()
        assert logged.startswith("jobs are due, and no live worker takes them: kind=pdf.render database=")
        assert logged.endswith(" queue=pdf due=1")
        assert await tick() == []
        ledger.do("UPDATE holdfast.job SET available_at = now() + interval '1 hour'")
        assert await tick() == []
        ledger.do("UPDATE holdfast.job SET available_at = now() - interval '2 minutes'")
        assert len(await tick()) == 1, "it is another time"


async def test_an_invalid_payload_is_logged_once(
    app: Holdfast, ledger: Ledger, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt, "MISFIT_PAUSE", ms(10))

    @app.job("act")
    async def act(job: Job[None], pin: int) -> None: ...

    job, _ = ledger.enqueue(act.new(1), act.new(2))
    ledger.do("UPDATE holdfast.job SET payload = %s", '{"pin": "s3cret"}')
    async with app.worker(**QUICK) as worker:
        await until(lambda: worker.counts.get("job_released", 0) > 4)
    [logged] = [line for line in warnings(caplog) if "payload" in line]
    assert logged.startswith("a payload does not fit its handler: its job is given back, uncounted: job=")
    assert "kind=act" in logged
    assert "pin: " in logged
    assert "s3cret" not in logged
    assert "pin: " in (ledger.job(job).error or "")


async def test_a_worker_that_vanished_is_named(app: Holdfast, ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    ledger.enqueue_one(act.new())
    gone = ledger.value("INSERT INTO holdfast.worker (name) VALUES ('web-1:17') RETURNING id")
    ledger.do(
        "UPDATE holdfast.job SET status = 'processing', attempt = 1, locked_by = %s, lock_token = 1, "
        "locked_until = now() - interval '1 second'",
        gone,
    )
    async with app.worker(**QUICK):
        await until(lambda: any("renew the leases" in line for line in warnings(caplog)))
    [logged] = [line for line in warnings(caplog) if "renew the leases" in line]
    assert logged.startswith("a worker did not renew the leases of its jobs: lost_worker=web-1:17 jobs=1 heartbeat_at=")


async def test_two_workers_of_a_process_have_names_of_their_own(app: Holdfast) -> None:
    assert app.worker().id != app.worker().id
