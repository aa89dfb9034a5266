"""Worker Design: leases, how a lost one is noticed, the abort signal, and the reaper."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import AbortReason, AbortSignal, Holdfast, Job, LeaseLost, Retry, SettingsError
from holdfast._model.settings import Settings
from tests.kit.fleet import SOON
from tests.kit.pace import AT_ONCE, QUICK, ms
from tests.kit.statement import DESIGN, DIFFERENCES, MODES, Document
from tests.kit.waiting import until
from tests.kit.workers import Worker, enqueue, expire_leases, job

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast._engine.report.transition import Transition
    from tests.kit.ledger import Ledger

modes = Document(MODES)
doc = Document(DESIGN)
LEASE = "SELECT locked_by, locked_until IS NOT NULL, lock_token IS NOT NULL FROM holdfast.job WHERE id = %s"
ATTENTIVE: dict[str, Any] = QUICK | {"heartbeat": ms(600)}


@doc.states("a renewal moves the end of the lease")
def test_renew(ledger: Ledger) -> None:
    [one] = enqueue(ledger.conn, job("renewed"))
    worker = Worker(ledger.conn, "renewed")
    held = worker.claim()
    until = "SELECT locked_until FROM holdfast.job WHERE id = %s"
    before = ledger.value(until, one)
    assert worker.renew(held) == {}
    assert ledger.value(until, one) > before


@doc.states("leases last 60 s by default")
def test_default_lease() -> None:
    assert Settings.load({}).lease == ms(60_000)


@doc.states("leases are renewed every 30 s, below half of the lease; ours below a third: 15 s", differs=DIFFERENCES)
def test_renew_interval() -> None:
    assert Settings.load({}).heartbeat == ms(15_000)
    with pytest.raises(SettingsError, match="below a third"):
        Settings.load({"OUTBOX_LEASE_DURATION_MS": "60000", "OUTBOX_LEASE_HEARTBEAT_MS": "20000"})


def complete(app: Holdfast, ledger: Ledger, job: int) -> None:
    app.sync.complete_chain(ledger.conn, job, "outside")


def delete(app: Holdfast, ledger: Ledger, job: int) -> None:
    app.sync.delete_chains(ledger.conn, [job])


def take(_: Holdfast, ledger: Ledger, job: int) -> None:
    ledger.do("UPDATE holdfast.job SET locked_until = clock_timestamp() - interval '1 second' WHERE id = %s", job)
    Worker(ledger.conn, ledger.value("SELECT kind FROM holdfast.job WHERE id = %s", job)).reap()


def cancel(_: Holdfast, ledger: Ledger, job: int) -> None:
    ledger.cancel(job)


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        doc.case("the signal's reason is taken_by_another_worker after a takeover", take, "taken_by_another_worker"),
        doc.case("the signal's reason is already_completed after an outside completion", complete, "already_completed"),
        doc.case("the signal's reason is not_found when the job was deleted", delete, "not_found"),
        doc.case("there are more reasons than four: cancelled", cancel, "cancelled", differs=DIFFERENCES),
    ],
)
@pytest.mark.parametrize("listen", [True, False], ids=["notified", "by the heartbeat"])
async def test_reasons(
    app: Holdfast, ledger: Ledger, act: Callable[[Holdfast, Ledger, int], None], reason: str, listen: bool
) -> None:
    began = asyncio.Event()
    reasons: list[AbortReason | None] = []

    @app.job(f"signalled.{reason}.{listen}", retry=AT_ONCE)
    async def handler(job: Job[Any]) -> None:
        if began.is_set():
            return
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            assert job.signal.aborted
            reasons.append(job.signal.reason)

    async with app.worker(listen=listen, **ATTENTIVE):
        one = ledger.enqueue_one(handler.new())
        async with asyncio.timeout(SOON):
            await began.wait()
        act(app, ledger, one)
        await until(lambda: reasons)
    assert reasons == [AbortReason(reason)]


@doc.states("the abort signal is typed: its reasons are a closed list of words")
def test_typed() -> None:
    named = {"taken_by_another_worker", "error", "not_found", "already_completed"}
    assert {each.value for each in AbortReason} == named | {"timeout", "cancelled", "shutdown"}
    signal = AbortSignal()
    assert signal.abort(AbortReason.error)
    assert type(signal.reason) is AbortReason


@doc.states("staged processing: what a handler writes with its completion is undone when the lease was lost")
async def test_staged(app: Holdfast, ledger: Ledger) -> None:
    ledger.do("CREATE TABLE written (job bigint)")
    lost: list[str] = []

    @app.job("staged", retry=Retry(2, base=timedelta(hours=1)))
    async def handler(job: Job[Any]) -> str:
        async with await psycopg.AsyncConnection.connect(ledger.url) as conn:
            await conn.execute("INSERT INTO written VALUES (%s)", [job.id])
            ledger.do("UPDATE holdfast.job SET locked_until = '2020-01-01' WHERE id = %s", job.id)
            Worker(ledger.conn, "staged").reap()
            try:
                return await job.complete(conn, "done")
            except LeaseLost as error:
                lost.append(error.reason)
                raise

    async with app.worker(listen=False, **QUICK):
        ledger.enqueue_one(handler.new())
        await until(lambda: lost)
    assert lost[0] == "taken_by_another_worker"
    assert ledger.value("SELECT count(*) FROM written") == 0


@pytest.fixture
def abandoned(ledger: Ledger) -> int:
    """A job of the kind `abandoned` whose lease has expired."""
    [one] = enqueue(ledger.conn, job("abandoned"))
    expire_leases(ledger.conn, Worker(ledger.conn, "abandoned").claim())
    return one


@doc.states("the reaper of a worker reclaims only kinds that it has registered")
def test_reap_by_kind(ledger: Ledger, abandoned: int) -> None:
    assert Worker(ledger.conn, "another").reap() == []
    assert ledger.status(abandoned) == "processing"
    assert [each.id for each in Worker(ledger.conn, "abandoned").reap()] == [abandoned]


@doc.states("one job per pass; ours takes a bounded batch, oldest first", differs=DIFFERENCES)
def test_bounded_pass(ledger: Ledger) -> None:
    ids = enqueue(ledger.conn, *[job("batch") for _ in range(5)])
    worker = Worker(ledger.conn, "batch")
    for age, held in enumerate(worker.claim()):
        expire_leases(ledger.conn, [held], seconds=100 - age)
    assert [each.id for each in worker.reap(limit=2)] == ids[:2]
    assert [each.id for each in worker.reap(limit=500)] == ids[2:]


@modes.states("a job whose worker crashed is reclaimed by another when the lease has expired")
@doc.states("reaping is part of every worker, tells job_reaped, and the job runs again")
async def test_integrated(app: Holdfast, ledger: Ledger, abandoned: int) -> None:
    reported: list[Transition] = []

    @app.job("abandoned", retry=AT_ONCE)
    async def handler(job: Job[Any]) -> None: ...

    app.listeners.append(reported.append)
    async with app.worker(tick_runners=("outbox",), **QUICK):
        await until(lambda: ledger.status(abandoned) == "completed")
        await until(lambda: [each for each in reported if each.name == "job_reaped"])
    [reaped] = [each for each in reported if each.name == "job_reaped"]
    assert (reaped.job, reaped.kind) == (abandoned, "abandoned")


@doc.states("the reaper notifies the original worker that it lost the job")
def test_ownership_lost_is_notified(ledger: Ledger) -> None:
    enqueue(ledger.conn, job("informed"))
    holder = Worker(ledger.conn, "informed")
    held = holder.claim()
    with psycopg.connect(ledger.url, autocommit=True) as listener:
        listener.execute(f"LISTEN holdfast_{holder.id}".encode())
        expire_leases(ledger.conn, held)
        Worker(ledger.conn, "informed").reap()
        assert len(list(listener.notifies(timeout=SOON, stop_after=1))) == 1
