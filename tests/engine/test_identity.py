"""A worker knows its own row: after a restore from a backup its id may be another's."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, cast

from holdfast import AbortReason, Holdfast, Job, Settings
from holdfast._drivers import run_sync
from holdfast._engine.jobs import claim as module
from holdfast._engine.jobs.claim import Claimer
from holdfast._engine.jobs.demand import Demand
from holdfast._engine.jobs.slots import Slots
from holdfast._engine.link import Link, Links
from holdfast._engine.own_row import OwnRow
from holdfast._engine.report.transition import Transitions
from holdfast._engine.session import Control, Session
from holdfast._model.work import Lease
from holdfast._store.chain import read_blockers
from holdfast._store.worker import register_worker
from tests.kit.pace import AT_ONCE, QUICK, ms
from tests.kit.waiting import serving, until

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from holdfast._engine.jobs.intake import Intake
    from holdfast._store.claim import ClaimedJob
    from holdfast._store.statement import Statement
    from tests.kit.ledger import Ledger

# Its own heartbeat, and no lease that ends within a test.
BEATING: dict[str, Any] = QUICK | {"heartbeat": ms(200)}


def give_away(ledger: Ledger, worker: int) -> None:
    """Let the id be that of another worker, as when a backup was restored that did not have it yet."""
    ledger.do("DELETE FROM holdfast.worker WHERE id = %s", worker)
    ledger.do("INSERT INTO holdfast.worker (id, name) OVERRIDING SYSTEM VALUE VALUES (%s, 'another')", worker)


async def test_a_worker_whose_row_is_anothers_registers_anew_and_lets_go(
    ledger: Ledger, app: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    reasons: list[AbortReason | None] = []

    @app.job("wait", retry=AT_ONCE)
    async def wait(job: Job[Any], seconds: float) -> None:
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            reasons.append(job.signal.reason)
            raise

    long = ledger.enqueue_one(wait.new(60))
    with caplog.at_level(logging.ERROR, "holdfast.registration"):
        async with app.worker(id="one", **BEATING) as worker:
            pipeline = worker.pipelines[0]
            await until(lambda: ledger.status(long) == "processing")
            old = pipeline.worker
            give_away(ledger, old)
            await until(lambda: pipeline.worker != old)
            await until(lambda: reasons == [AbortReason.not_found])
            later = ledger.enqueue_one(wait.new(0))
            await until(lambda: ledger.status(later) == "completed")
            assert ledger.job(later).worker == pipeline.worker
    assert ledger.job(long)[:2] == ("processing", 1), "it is another's, and only the end of its lease takes it away"
    assert dict(ledger.rows("SELECT name, stop_reason FROM holdfast.worker")) == {"another": None, "one": "stopped"}
    assert "registering anew" in caplog.text


async def test_a_blip_releases_nothing_of_another(ledger: Ledger, app: Holdfast) -> None:
    @app.job("wait", retry=AT_ONCE)
    async def wait(_: Job[Any]) -> None: ...

    async with app.worker(id="one", **BEATING) as worker:
        old = worker.pipelines[0].worker
        give_away(ledger, old)
        job = ledger.enqueue_one(wait.new().options(queue="elsewhere"))
        ledger.do(
            "UPDATE holdfast.job SET status = 'processing', attempt = 1, locked_by = %s, lock_token = 4711,"
            " locked_until = now() + interval '1 hour' WHERE id = %s",
            old,
            job,
        )
        ledger.terminate_sessions()
        await until(lambda: worker.pipelines[0].worker != old)
    assert ledger.job(job)[:2] == ("processing", 1)
    assert ledger.attempts(job) == []


async def test_a_worker_whose_row_is_gone_is_seen_again(ledger: Ledger, app: Holdfast) -> None:
    """It is woken under its new id, too."""

    @app.job("work", retry=AT_ONCE)
    async def work(_: Job[Any]) -> None: ...

    async with app.worker(id="one", **BEATING | {"idle_min": ms(60_000), "idle_max": ms(60_000)}) as worker:
        ledger.do("DELETE FROM holdfast.worker")
        await until(lambda: ledger.rows("SELECT name FROM holdfast.worker") == [("one",)])
        await until(worker.pipelines[0].session.listening.is_set)
        job = ledger.enqueue_one(work.new())
        await until(lambda: ledger.status(job) == "completed", 15)


async def test_a_beat_under_the_old_id_that_is_answered_late_changes_nothing(ledger: Ledger, app: Holdfast) -> None:
    gate = asyncio.Event()

    @app.job("wait", retry=AT_ONCE)
    async def wait(_: Job[Any]) -> None:
        await gate.wait()

    async with app.worker(id="one", **BEATING) as worker:
        pipeline = worker.pipelines[0]
        old = pipeline.worker
        give_away(ledger, old)
        await until(lambda: pipeline.worker != old)
        new = pipeline.worker
        job = ledger.enqueue_one(wait.new())
        await until(lambda: ledger.status(job) == "processing" and pipeline.held)
        serving(worker).answers.disowned(old)
        gate.set()
        await until(lambda: ledger.status(job) == "completed")
        assert pipeline.worker == new
        assert ledger.job(job)[:2] == ("completed", 1)
        assert ledger.job(job).worker == new
    assert ledger.value("SELECT count(*) FROM holdfast.worker WHERE name = 'one'") == 1


class Claiming:
    """A claimer by itself, with two ids to claim under."""

    def __init__(self, ledger: Ledger, link: Link) -> None:
        self.link = link
        self.old, self.new = (
            run_sync(ledger.conn, register_worker("one", queues=["default"], kinds=["act"])) for _ in range(2)
        )
        self.row = OwnRow(self.old)
        self.held: list[int] = []
        links = Links(ledger.url, name="", timeout=30)
        links.claim = link
        session = Session(links, self.row, control=Control({"act": Lease(60)}))
        demand = Demand(Slots(10, {"default": 10}, batch=10), session.control)
        # It is the intake, too.
        self.claimer = Claimer(session, Settings.load({}), demand, cast("Intake", self), Transitions("one", ()))

    def hold(self, jobs: Sequence[ClaimedJob], _: object) -> None:
        self.held += [job.id for job in jobs]

    async def register_anew(self) -> None:
        """As a pipeline does: on the link of the claims, and the new id is taken at once."""
        await self.link.run(register_worker("one", queues=["default"], kinds=["act"]))
        self.row.id = self.new


async def test_a_claim_that_waits_for_the_registration_is_made_under_the_new_id(ledger: Ledger, app: Holdfast) -> None:
    @app.job("act")
    async def act(_: Job[Any]) -> None: ...

    job = ledger.enqueue_one(act.new())
    async with Link(ledger.url, timeout=30) as link:
        claiming, began, gate = Claiming(ledger, link), asyncio.Event(), asyncio.Event()

        async def hold_up(_: object) -> None:
            began.set()
            await gate.wait()

        held_up = asyncio.create_task(link.run_with(hold_up))
        await began.wait()
        renaming = asyncio.create_task(claiming.register_anew())
        claim = asyncio.create_task(claiming.claimer.claim({"default": 10}))
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(held_up, renaming, claim)
        assert claiming.held == [job]
        assert ledger.job(job).worker == claiming.new


async def test_a_claim_under_the_old_id_is_left_alone_once_there_is_a_new_one(
    ledger: Ledger, app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.job("act")
    async def act(_: Job[Any]) -> None: ...

    async with Link(ledger.url, timeout=30) as link:
        claiming = Claiming(ledger, link)

        def renamed_meanwhile(jobs: Sequence[int]) -> Statement[Any]:
            claiming.row.id = claiming.new
            return read_blockers(jobs)

        monkeypatch.setattr(module, "read_blockers", renamed_meanwhile)
        job = ledger.enqueue_one(act.new())
        ledger.do("UPDATE holdfast.job SET blockers_left = 0 WHERE id = %s", job)
        assert await claiming.claimer.claim({"default": 10})
        assert claiming.held == []
        assert ledger.job(job).worker == claiming.old
