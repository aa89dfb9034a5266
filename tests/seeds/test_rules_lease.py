"""020 - Processing and Lease Rules, sections 1 and 2: leases, fencing and heartbeats."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import AbortReason, Holdfast, Job, Lease, Settings, SettingsError
from tests.kit.fleet import SOON
from tests.kit.pace import ALERT, AT_ONCE, QUICK, ms
from tests.kit.statement import DESIGN, DIFFERENCES, MODES, RULES, Document
from tests.kit.waiting import Stopwatch, until
from tests.kit.workers import CANCELLED, COMPLETED, FAILED, RELEASED, RETRIED, Worker, enqueue, job

if TYPE_CHECKING:
    from holdfast._model.outcome import Outcome
    from tests.kit.ledger import Ledger

modes = Document(MODES)
design = Document(DESIGN)
doc = Document(RULES)


@pytest.mark.parametrize(
    ("lease", "seconds"),
    [
        doc.case(
            "RULE-020-002: 30 s, by name; the default is the first document's 60 s", "standard", 30, differs=DIFFERENCES
        ),
        doc.case("RULE-020-002: 60 s for heavy processing", "heavy", 60),
        doc.case("RULE-020-002: 60 to 120 s for calls of external services", "external", 120),
    ],
)
async def test_lease_by_workload(app: Holdfast, ledger: Ledger, lease: str, seconds: int) -> None:
    go = asyncio.Event()
    chosen: Lease = getattr(Lease, lease)

    @app.job(f"lease.{lease}", lease=chosen)
    async def act(job: Job[Any]) -> None:
        await go.wait()

    assert Settings.load({}).lease == timedelta(seconds=60)
    one = ledger.enqueue_one(act.new())
    left = "SELECT extract(epoch FROM locked_until - clock_timestamp()) FROM holdfast.job WHERE id = %s"
    async with app.worker(**QUICK):
        await until(lambda: ledger.status(one) == "processing")
        assert seconds - 20 < ledger.value(left, one) <= seconds
        go.set()
        await until(lambda: ledger.status(one) == "completed")


@doc.states("RULE-020-002: the lease is configurable at run time, per queue, while workers run")
async def test_lease_at_run_time(app: Holdfast, ledger: Ledger) -> None:
    @app.job("adjusted", queue="adjusted")
    async def act(job: Job[Any]) -> None:
        await job.signal.wait()

    left = "SELECT extract(epoch FROM locked_until - clock_timestamp()) FROM holdfast.job WHERE id = %s"
    async with app.worker(**(QUICK | {"heartbeat": ms(100), "shutdown_timeout": ms(0)})):
        one = ledger.enqueue_one(act.new())
        await until(lambda: ledger.status(one) == "processing")
        ledger.do("INSERT INTO holdfast.queue (name, lease_ms) VALUES ('adjusted', 600000)")
        await until(lambda: ledger.value(left, one) > 500)


@pytest.mark.parametrize(
    "outcome",
    [
        doc.case("RULE-020-003: a completion without the token is rejected", COMPLETED),
        doc.case("RULE-020-003: a failure without the token is rejected", FAILED),
        doc.case("RULE-020-003: a retry without the token is rejected", RETRIED),
        doc.case("RULE-020-003: a release without the token is rejected", RELEASED),
        doc.case("RULE-020-003: a cancellation without the token is rejected", CANCELLED),
    ],
)
def test_fencing(ledger: Ledger, outcome: Outcome) -> None:
    kind = f"fenced.{type(outcome).__name__}"
    [one] = enqueue(ledger.conn, job(kind))
    worker = Worker(ledger.conn, kind)
    [held] = worker.claim()
    worker.end([held._replace(token=held.token - 1)], outcome)
    assert ledger.job(one)[:2] == ("processing", 1)
    worker.end([held], outcome)
    assert ledger.status(one) != "processing"


@modes.states("the worker's heartbeat extends the lease while the handler runs")
@doc.states("RULE-020-010: a job that runs for longer than its lease is renewed, and stays with its worker")
async def test_active_heartbeat(app: Holdfast, ledger: Ledger) -> None:
    go = asyncio.Event()

    @app.job("longer", retry=AT_ONCE)
    async def act(job: Job[Any]) -> int:
        await go.wait()
        return job.attempt

    one = ledger.enqueue_one(act.new())
    lease: Any = QUICK | {"lease": ms(3_000), "heartbeat": ms(300)}
    async with app.worker(**lease):
        await until(lambda: ledger.status(one) == "processing")
        first = ledger.value("SELECT locked_until FROM holdfast.job WHERE id = %s", one)
        await until(lambda: ledger.value("SELECT clock_timestamp() > %s + interval '2 seconds'", first))
        go.set()
        await until(lambda: ledger.status(one) == "completed")
    assert ledger.job(one).result == 1


@pytest.mark.parametrize(
    ("heartbeat", "accepted"),
    [
        doc.case("RULE-020-011: a heartbeat below a third of the lease is accepted: 9999 ms of 30 s", "9999", True),
        doc.case("RULE-020-011: a heartbeat of a third of the lease is refused: 10 s of 30 s", "10000", False),
        doc.case("RULE-020-011: a longer heartbeat is refused: 15 s of 30 s", "15000", False),
    ],
)
def test_heartbeat_interval(heartbeat: str, accepted: bool) -> None:
    environ = {"OUTBOX_LEASE_DURATION_MS": "30000", "OUTBOX_LEASE_HEARTBEAT_MS": heartbeat}
    if accepted:
        assert Settings.load(environ).heartbeat == ms(int(heartbeat))
    else:
        with pytest.raises(SettingsError, match="below a third"):
            Settings.load(environ)


@pytest.fixture
async def cut_off(app: Holdfast, ledger: Ledger) -> list[Any]:
    """A handler whose worker's heartbeats got no answer: its signal's reason, its row then, and how long it ran."""
    began, seen = asyncio.Event(), list[Any]()

    @app.job("cut.off")
    async def act(job: Job[Any]) -> str:
        if seen:
            return "again"
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append(job.signal.reason)
        return "completed all the same"

    async with app.worker(listen=False, **ALERT):
        one = ledger.enqueue_one(act.new())
        async with asyncio.timeout(SOON):
            await began.wait()
        with ledger.conn.transaction():
            ledger.do("LOCK TABLE holdfast.worker IN ACCESS EXCLUSIVE MODE")
            async with Stopwatch() as watch:
                await until(lambda: seen)
        await until(lambda: ledger.status(one) == "completed")
    return [*seen, ledger.job(one), watch.seconds]


@design.states("the signal's reason is error when the database fails the lease operations")
@doc.states("RULE-020-012: when heartbeats fail, the worker stops processing at once")
def test_heartbeat_failure(cut_off: list[Any]) -> None:
    assert cut_off[0] is AbortReason.error
    assert cut_off[2] < 3, "a few heartbeats, and no tenth of the lease"


@doc.states("RULE-020-012: what ran while heartbeats failed is not completed, but runs again")
def test_no_completion(cut_off: list[Any]) -> None:
    assert cut_off[1].result == "again"


@doc.states("RULE-020-003: the token is handed to the handler, for fencing elsewhere")
@doc.states("RULE-020-050: nothing runs without a lease: in the handler, the row has one")
@modes.states("the claim's transaction is over before the handler runs")
async def test_the_row_while_its_handler_runs(app: Holdfast, ledger: Ledger) -> None:
    rows: list[Any] = []
    transactions: list[int] = []
    row = "SELECT status::text, lock_token = %s, locked_until > clock_timestamp() FROM holdfast.job WHERE id = %s"

    @app.job("inside")
    async def act(job: Job[Any]) -> None:
        rows.extend(ledger.rows(row, job.token, job.id))  # another connection sees the claim: it is committed
        transactions.append(
            ledger.value("SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%%'")
        )

    ids = ledger.enqueue(*[act.new() for _ in range(5)])
    async with app.worker(tick_runners=("outbox",), **QUICK):
        await until(lambda: all(ledger.status(one) == "completed" for one in ids))
    assert rows == [("processing", True, True)] * 5
    assert transactions[0] == 0


@doc.states("RULE-020-051: a job that exceeds three leases is aborted")
async def test_no_infinite_processing(app: Holdfast, ledger: Ledger) -> None:
    reasons: list[Any] = []
    ran: list[float] = []

    @app.job("infinite", lease=Lease(1.5), retry=AT_ONCE)
    async def act(job: Job[Any]) -> None:
        ran.append(time.monotonic())
        if reasons:
            return
        try:
            await asyncio.Event().wait()
        finally:
            reasons.append(job.signal.reason)

    one = ledger.enqueue_one(act.new())
    async with app.worker(**(QUICK | {"heartbeat": ms(200)})):
        await until(lambda: ledger.status(one) == "completed")
    assert reasons == [AbortReason.timeout]
    assert ran[1] - ran[0] > 4.4, "three leases"
