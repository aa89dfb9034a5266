"""Worker Design: leases, how a lost one is noticed, the abort signal, and the reaper."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import AbortReason, Holdfast, Job, LeaseLost, Retry, SettingsError
from holdfast._model.settings import Settings
from tests.engine.fleet import SOON
from tests.engine.pace import ALERT, AT_ONCE, QUICK, ms
from tests.engine.waiting import until
from tests.seeds.statement import DESIGN, DIFFERENCES, Document
from tests.traps.workers import Worker, enqueue, expire_leases, job

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast._engine.report.transition import Transition
    from tests.engine.ledger import Ledger

doc = Document(DESIGN)
LEASE = "SELECT locked_by, locked_until IS NOT NULL, lock_token IS NOT NULL FROM holdfast.job WHERE id = %s"
ATTENTIVE: dict[str, Any] = QUICK | {"heartbeat": ms(200)}


@doc.says("a job gets its lease with the first prepare; ours has it from the claim on", differs=DIFFERENCES)
def test_lease_with_the_claim(ledger: Ledger) -> None:
    [one] = enqueue(ledger.conn, job("leased"))
    assert ledger.rows(LEASE, one) == [(None, False, False)]
    worker = Worker(ledger.conn, "leased")
    worker.claim()
    assert ledger.rows(LEASE, one) == [(worker.id, True, True)]


@doc.says("a renewal moves the end of the lease")
def test_renew(ledger: Ledger) -> None:
    [one] = enqueue(ledger.conn, job("renewed"))
    worker = Worker(ledger.conn, "renewed")
    held = worker.claim()
    until = "SELECT locked_until FROM holdfast.job WHERE id = %s"
    before = ledger.value(until, one)
    assert worker.renew(held) == {}
    assert ledger.value(until, one) > before


@doc.says("completing clears the lease and makes the job completed")
def test_complete(ledger: Ledger) -> None:
    [one] = enqueue(ledger.conn, job("cleared"))
    worker = Worker(ledger.conn, "cleared")
    worker.end(worker.claim())
    assert ledger.status(one) == "completed"
    assert ledger.rows(LEASE, one) == [], "a job that has ended is no live row, and has no lease"


@doc.says("leases last 60 s by default")
def test_default_lease() -> None:
    assert Settings.load({}).lease == ms(60_000)


@doc.says("leases are renewed every 30 s, below half of the lease; ours below a third: 15 s", differs=DIFFERENCES)
def test_renew_interval() -> None:
    assert Settings.load({}).heartbeat == ms(15_000)
    with pytest.raises(SettingsError, match="below a third"):
        Settings.load({"OUTBOX_LEASE_DURATION_MS": "60000", "OUTBOX_LEASE_HEARTBEAT_MS": "20000"})


@doc.says("ownership: while a lease holds, only its worker can finish the job")
def test_ownership(ledger: Ledger) -> None:
    enqueue(ledger.conn, job("owned"))
    owner, other = Worker(ledger.conn, "owned"), Worker(ledger.conn, "owned")
    held = owner.claim()
    assert [answer.name for answer in other.end(held).values()] != ["completed"]
    assert [answer.name for answer in owner.end(held).values()] == ["completed"]


@doc.says("detection: a worker whose lease was taken is told so when it renews")
def test_renewal_failure(ledger: Ledger) -> None:
    [one] = enqueue(ledger.conn, job("taken"))
    first, second = Worker(ledger.conn, "taken"), Worker(ledger.conn, "taken")
    held = first.claim()
    expire_leases(ledger.conn, held)
    second.reap()
    assert second.claim()
    assert first.renew(held)[one].name == "taken_by_another_worker"


@doc.says("each database operation verifies that the job is still this worker's")
def test_guards(ledger: Ledger) -> None:
    [one] = enqueue(ledger.conn, job("guarded"))
    first, second = Worker(ledger.conn, "guarded"), Worker(ledger.conn, "guarded")
    held = first.claim()
    expire_leases(ledger.conn, held)
    second.reap()
    again = second.claim()
    first.end(held)
    assert ledger.job(one)[:2] == ("processing", 2), "the old holder's ending changed nothing"
    second.end(again)
    assert ledger.status(one) == "completed"


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


@doc.says("the signal's reason is error when the database fails the lease operations")
async def test_error(app: Holdfast, ledger: Ledger) -> None:
    began = asyncio.Event()
    reasons: list[Any] = []

    @app.job("unreachable")
    async def handler(job: Job[Any]) -> None:
        if reasons:
            return
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            reasons.append(job.signal.reason)

    async with app.worker(listen=False, **ALERT):
        one = ledger.enqueue_one(handler.new())
        async with asyncio.timeout(SOON):
            await began.wait()
        with ledger.conn.transaction():
            ledger.do("LOCK TABLE holdfast.worker IN ACCESS EXCLUSIVE MODE")
            await until(lambda: reasons)
        await until(lambda: ledger.status(one) == "completed")
    assert reasons == [AbortReason.error]


@doc.says("the abort signal is typed: its reasons are a closed list of words")
def test_typed() -> None:
    assert {"taken_by_another_worker", "error", "not_found", "already_completed"} <= {
        each.value for each in AbortReason
    }


@doc.says("staged processing: what a handler writes with its completion is undone when the lease was lost")
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


@doc.says("the reaper sends a job with an expired lease back to pending and clears leasedBy and leasedUntil")
def test_reap(ledger: Ledger, abandoned: int) -> None:
    [reaped] = Worker(ledger.conn, "abandoned").reap()
    assert reaped.id == abandoned
    assert ledger.status(abandoned) == "pending"
    assert ledger.rows(LEASE, abandoned) == [(None, False, False)]


@doc.says("the reaper of a worker reclaims only kinds that it has registered")
def test_reap_by_kind(ledger: Ledger, abandoned: int) -> None:
    assert Worker(ledger.conn, "another").reap() == []
    assert ledger.status(abandoned) == "processing"
    assert [each.id for each in Worker(ledger.conn, "abandoned").reap()] == [abandoned]


@doc.says("one job per pass; ours takes a bounded batch, oldest first", differs=DIFFERENCES)
def test_bounded_pass(ledger: Ledger) -> None:
    ids = enqueue(ledger.conn, *[job("batch") for _ in range(5)])
    worker = Worker(ledger.conn, "batch")
    for age, held in enumerate(worker.claim()):
        expire_leases(ledger.conn, [held], seconds=100 - age)
    assert [each.id for each in worker.reap(limit=2)] == ids[:2]
    assert [each.id for each in worker.reap(limit=500)] == ids[2:]


@doc.says("reaping is part of every worker, tells job_reaped, and the job runs again")
async def test_integrated(app: Holdfast, ledger: Ledger, abandoned: int) -> None:
    told: list[Transition] = []

    @app.job("abandoned", retry=AT_ONCE)
    async def handler(job: Job[Any]) -> None: ...

    app.listeners.append(told.append)
    async with app.worker(tick_runners=("outbox",), **QUICK):
        await until(lambda: ledger.status(abandoned) == "completed")
        await until(lambda: [each for each in told if each.name == "job_reaped"])
    [reaped] = [each for each in told if each.name == "job_reaped"]
    assert (reaped.job, reaped.kind) == (abandoned, "abandoned")


@doc.says("the reaper notifies the original worker that it lost the job")
def test_ownership_lost_is_notified(ledger: Ledger) -> None:
    enqueue(ledger.conn, job("informed"))
    holder = Worker(ledger.conn, "informed")
    held = holder.claim()
    with psycopg.connect(ledger.url, autocommit=True) as listener:
        listener.execute(f"LISTEN holdfast_{holder.id}".encode())
        expire_leases(ledger.conn, held)
        Worker(ledger.conn, "informed").reap()
        assert len(list(listener.notifies(timeout=SOON, stop_after=1))) == 1
