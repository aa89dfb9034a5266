"""Deliveries whose job is gone are ended, and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Continue, Tick
from tenders import stranded
from tenders.app import app
from tenders.chain import Step, receipt
from tenders.ingest import ingest
from tenders.local.push import Faults
from tenders.stranded import end_stranded
from tenders.tests.phones import sign_on_one

if TYPE_CHECKING:
    import psycopg

    from holdfast.testing import Testing
    from tenders.app import State
    from tenders.local.server import LocalServer

    Connection = psycopg.AsyncConnection[Any]

# `now()` of the database cannot be moved, so the rows are.
A_DAY_LATER = "UPDATE notification_deliveries SET updated_at = updated_at - interval '25 hours'"
STATES = "SELECT status, last_error_code, completed_at IS NOT NULL FROM notification_deliveries ORDER BY id"
ENDED = ("failed", "JobMissing", True)


@pytest.fixture(autouse=True)
async def deliveries(conn: Connection, local: LocalServer, state: State) -> None:
    """Two deliveries."""
    await sign_on_one(conn, "phone")
    del local.market.tenders[2:]
    await ingest(Tick(name="ingest", state=state))


async def states(conn: Connection) -> list[Any]:
    return await (await conn.execute(STATES)).fetchall()


async def jobs(conn: Connection) -> list[int]:
    return [job for (job,) in await (await conn.execute("SELECT id FROM holdfast.job ORDER BY id")).fetchall()]


async def cycle(state: State) -> int:
    tick = Tick(name="strandedDeliveries", state=state)
    await end_stranded(tick)
    return tick.counts["failed"]


async def test_a_delivery_whose_job_was_cancelled_fails_after_a_day(state: State, conn: Connection) -> None:
    first, _ = await jobs(conn)
    assert await app.cancel(conn, first) == "cancelled"
    assert await cycle(state) == 0, "an operator has a day"
    await conn.execute(A_DAY_LATER)
    assert await cycle(state) == 1
    assert await states(conn) == [ENDED, ("pending", None, False)]
    assert await cycle(state) == 0


async def test_a_delivery_whose_chain_was_deleted_fails(state: State, conn: Connection) -> None:
    await app.delete_chains(conn, await jobs(conn))
    await conn.execute(A_DAY_LATER)
    assert await cycle(state) == 2
    assert await states(conn) == [ENDED, ENDED]


async def test_a_delivery_whose_job_is_a_dead_letter_fails(
    state: State, conn: Connection, kit: Testing, local: LocalServer
) -> None:
    await kit.drain()
    [dead, _] = await jobs(conn)
    await conn.execute("UPDATE holdfast.job SET max_attempts = 1 WHERE id = %s", [dead])
    local.push.faults = Faults(fetch={"error": 1})
    await kit.travel(minutes=1)
    drained = await kit.drain(raise_errors=False)
    assert sorted(ran.outcome for ran in drained) == ["failed", "retry"]
    await conn.execute(A_DAY_LATER)
    assert await cycle(state) == 1
    assert await states(conn) == [ENDED, ("sent", None, False)]
    # A replay that comes too late finds that the delivery has ended.
    replay = await app.retry(conn, dead)
    assert replay.handle is not None
    assert (await kit.run_job(replay.handle)).result == "failed"
    assert await states(conn) == [ENDED, ("sent", None, False)]


async def test_a_delivery_with_a_live_job_is_kept_at_each_step(
    state: State, conn: Connection, kit: Testing, local: LocalServer
) -> None:
    for faults, status in ((Faults(), "pending"), (Faults(send={"error": 1}), "retryable"), (Faults(), "sent")):
        if status != "pending":
            local.push.faults = faults
            await kit.travel(minutes=1)
            await kit.drain()
        await conn.execute(A_DAY_LATER)
        assert await cycle(state) == 0
        assert [found for found, _, _ in await states(conn)] == [status, status]


async def test_a_delivery_whose_dead_letter_was_replayed_is_kept(
    state: State, conn: Connection, kit: Testing, monkeypatch: pytest.MonkeyPatch
) -> None:
    await conn.execute("UPDATE holdfast.job SET max_attempts = 1")
    with monkeypatch.context() as patched:
        patched.setattr("tenders.deliveries.read", None)
        await kit.drain(raise_errors=False)
    dead = await (await conn.execute("SELECT id FROM holdfast.job_failed ORDER BY id")).fetchall()
    assert [(await app.retry(conn, job)).status for (job,) in dead] == ["retried"] * 2
    await conn.execute(A_DAY_LATER)
    assert await cycle(state) == 0
    await kit.drain()
    assert await states(conn) == [("sent", None, False)] * 2


async def test_a_step_that_is_not_committed_strands_nothing(state: State, conn: Connection) -> None:
    first, second = await jobs(conn)
    await conn.execute(A_DAY_LATER)
    async with conn.transaction():
        for job in (first, second):
            assert await app.complete_chain(conn, job, Continue(receipt.new(Step(1)))) == "completed"
        assert await cycle(state) == 0, "the cycle has a connection of its own"
    assert await cycle(state) == 0


async def test_deliveries_are_ended_in_batches(state: State, conn: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stranded, "BATCH", 1)
    await app.delete_chains(conn, await jobs(conn))
    await conn.execute(A_DAY_LATER)
    assert await cycle(state) == 2
