"""020 - Processing and Lease Rules, sections 1 and 2: leases, fencing and heartbeats."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import AbortReason, Holdfast, Job, Lease, Settings, SettingsError
from tests.engine.fleet import SOON
from tests.engine.pace import ALERT, AT_ONCE, QUICK, ms
from tests.engine.waiting import until
from tests.seeds.statement import DIFFERENCES, RULES, Document
from tests.traps.workers import CANCELLED, COMPLETED, FAILED, RELEASED, RETRIED, Worker, enqueue, expire_leases, job

if TYPE_CHECKING:
    from holdfast._model.job import Outcome
    from tests.engine.ledger import Ledger

doc = Document(RULES)


@doc.says("RULE-020-001: every claim sets locked_until, a bounded time ahead")
def test_lease_is_mandatory(ledger: Ledger) -> None:
    ids = enqueue(ledger.conn, *[job("bounded") for _ in range(3)])
    Worker(ledger.conn, "bounded").claim()
    left = "SELECT locked_until - clock_timestamp() FROM holdfast.job WHERE id = ANY (%s)"
    assert all(timedelta(seconds=30) < lease <= timedelta(seconds=60) for (lease,) in ledger.rows(left, ids))


@doc.says("RULE-020-001: a claim sets status, locked_until and lock_token in one statement")
def test_claim_row(ledger: Ledger) -> None:
    [one] = enqueue(ledger.conn, job("row"))
    [claimed] = Worker(ledger.conn, "row").claim()
    row = "SELECT status::text, locked_until IS NOT NULL, lock_token FROM holdfast.job WHERE id = %s"
    assert ledger.rows(row, one) == [("processing", True, claimed.token)]


@doc.says("RULE-020-001: a claim takes the oldest first, and at most a batch")
def test_claim_order(ledger: Ledger) -> None:
    ids = enqueue(ledger.conn, *[job("oldest") for _ in range(10)])
    assert [each.id for each in Worker(ledger.conn, "oldest").claim(4)] == ids[:4]


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


@doc.says("RULE-020-002: the lease is configurable at run time, per queue, while workers run")
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


@doc.says("RULE-020-003: every claim has a token, larger at every claim")
def test_token(ledger: Ledger) -> None:
    enqueue(ledger.conn, job("token"), job("token"))
    worker, other = Worker(ledger.conn, "token"), Worker(ledger.conn, "token")
    [first], [second] = worker.claim(1), other.claim(1)
    assert second.token > first.token


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


@doc.says("RULE-020-003: a token is not enough: the worker must be the one that claimed")
def test_fencing_by_worker(ledger: Ledger) -> None:
    [one] = enqueue(ledger.conn, job("fenced.worker"))
    held = Worker(ledger.conn, "fenced.worker").claim()
    Worker(ledger.conn, "fenced.worker").end(held)
    assert ledger.status(one) == "processing"


@doc.says("RULE-020-003: the token is handed to the handler, for fencing elsewhere")
async def test_token_for_handlers(app: Holdfast, ledger: Ledger) -> None:
    tokens: list[tuple[int, int]] = []

    @app.job("tokens")
    async def act(job: Job[Any]) -> None:
        tokens.append((job.token, ledger.value("SELECT lock_token FROM holdfast.job WHERE id = %s", job.id)))

    one = ledger.enqueue_one(act.new())
    async with app.worker(**QUICK):
        await until(lambda: ledger.status(one) == "completed")
    [(given, stored)] = tokens
    assert given == stored


@doc.says("RULE-020-010: a job that runs for longer than its lease is renewed, and stays with its worker")
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
        await until(lambda: ledger.value("SELECT clock_timestamp() > %s", first))
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
    """A handler whose worker's heartbeats got no answer for a while: its signal's reason, the row then, and now."""
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
            await until(lambda: seen)
        await until(lambda: ledger.status(one) == "completed")
    seen.append(ledger.job(one))
    return seen


@doc.says("RULE-020-012: when heartbeats fail, the worker stops processing at once")
def test_heartbeat_failure(cut_off: list[Any]) -> None:
    assert cut_off[0] is AbortReason.error


@doc.says("RULE-020-012: what ran while heartbeats failed is not completed, but runs again")
def test_no_completion(cut_off: list[Any]) -> None:
    assert cut_off[1].result == "again"


@doc.says("RULE-020-012: what a worker cannot release is recovered by the reaper of another")
def test_recovered(ledger: Ledger) -> None:
    [one] = enqueue(ledger.conn, job("orphan"))
    expire_leases(ledger.conn, Worker(ledger.conn, "orphan").claim())
    assert [each.id for each in Worker(ledger.conn, "orphan").reap()] == [one]


@doc.says("RULE-020-050: nothing runs without a lease: in the handler, the row has one")
async def test_no_processing_without_lease(app: Holdfast, ledger: Ledger) -> None:
    leases: list[Any] = []

    @app.job("with.lease")
    async def act(job: Job[Any]) -> None:
        leases.append(ledger.value("SELECT locked_until > clock_timestamp() FROM holdfast.job WHERE id = %s", job.id))

    ids = ledger.enqueue(*[act.new() for _ in range(5)])
    async with app.worker(**QUICK):
        await until(lambda: all(ledger.status(one) == "completed" for one in ids))
    assert leases == [True] * 5


@doc.says("RULE-020-051: a job that exceeds three leases is aborted")
async def test_no_infinite_processing(app: Holdfast, ledger: Ledger) -> None:
    reasons: list[Any] = []

    @app.job("infinite", lease=Lease(1.5), retry=AT_ONCE)
    async def act(job: Job[Any]) -> None:
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


@doc.says("RULE-020-051: the limit can be given per kind")
async def test_max_runtime(app: Holdfast, ledger: Ledger) -> None:
    reasons: list[Any] = []

    @app.job("max.runtime", max_runtime=ms(300), retry=AT_ONCE)
    async def act(job: Job[Any]) -> None:
        if reasons:
            return
        try:
            await asyncio.Event().wait()
        finally:
            reasons.append(job.signal.reason)

    one = ledger.enqueue_one(act.new())
    async with app.worker(**(QUICK | {"heartbeat": ms(100)})):
        await until(lambda: ledger.status(one) == "completed")
    assert reasons == [AbortReason.timeout]
