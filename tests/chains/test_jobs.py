"""One job by its id or handle: read, retried, rescheduled and cancelled by an application, with real workers about."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import (
    ChainFailed,
    Continue,
    Fail,
    Holdfast,
    HoldfastError,
    InvalidJob,
    Item,
    Job,
    JobInfo,
    OrderKey,
    Progress,
    RetryResult,
    Unique,
)
from tests.kit.pace import PATIENT
from tests.kit.waiting import until

if TYPE_CHECKING:
    import psycopg

    from holdfast import Handle, Kind
    from tests.kit.ledger import Ledger

    Connection = psycopg.AsyncConnection[Any]

DAY = timedelta(days=1)


async def found(app: Holdfast, conn: Connection, job: Handle[Any] | int) -> JobInfo[Any]:
    info = await app.get_job(conn, job)
    assert info is not None
    return info


@pytest.fixture
def share(app: Holdfast) -> Kind[[Job[None], int], float]:
    """Divide an amount among no one, one or more people; none is an error that is not retried."""

    @app.job("share")
    def share(job: Job[None], people: int) -> float:
        if not people:
            raise Fail("nobody to share with", code="nobody")
        return 100 / people

    return share


async def test_a_waiting_job(app: Holdfast, conn: Connection, share: Kind[[Job[None], int], float]) -> None:
    at = datetime(2040, 1, 1, tzinfo=UTC)
    new = share.new(3).options(queue="slow", priority=2, at=at, unique=Unique("u"), order_key=OrderKey("o"))
    handle = await app.enqueue(conn, new.options(max_attempts=None))
    info = await found(app, conn, handle)
    assert (info.id, info.chain_id, info.kind, info.queue) == (handle.id, handle.id, "share", "slow")
    assert (info.status, info.ended, info.priority, info.attempt, info.max_attempts) == ("pending", False, 2, 0, None)
    assert (info.available_at, info.finished_at) == (at, None)
    assert abs(datetime.now(UTC) - info.created_at) < DAY
    assert (info.unique_key, info.order_key, info.progress, info.cancel_requested) == ("u", "o", None, False)
    assert (info.error_code, info.error, info.next_id, info.replay_of) == (None, None, None, None)
    with pytest.raises(HoldfastError, match=f"job {handle.id} has not ended: it is pending"):
        _ = info.result
    blocked = await app.enqueue(conn, share.new(1).options(after=[handle]))
    assert (await found(app, conn, blocked)).status == "blocked"


async def test_a_running_job(app: Holdfast, conn: Connection) -> None:
    started, may_end = asyncio.Event(), asyncio.Event()

    @app.job("count")
    async def count(job: Job[None]) -> None:
        job.progress(0.5, "half")
        started.set()
        await may_end.wait()

    handle = await app.enqueue(conn, count.new())
    async with app.worker(**PATIENT):
        await started.wait()
        await until(lambda: _progress(app, conn, handle))
        info = await found(app, conn, handle)
        assert (info.status, info.attempt, info.progress) == ("processing", 1, Progress(0.5, "half"))
        assert await app.reschedule(conn, handle, delay=DAY) == "processing"
        assert await app.cancel(conn, handle) == "requested"
        info = await found(app, conn, handle)
        assert info.cancel_requested or info.status == "cancelled"
        with pytest.raises(ChainFailed, match="cancelled"):
            await app.wait(handle)
    info = await found(app, conn, handle)
    assert (info.status, info.ended) == ("cancelled", True)
    with pytest.raises(ChainFailed) as caught:
        _ = info.result
    assert caught.value.status == "cancelled"


async def _progress(app: Holdfast, conn: Connection, handle: Handle[Any]) -> bool:
    info = await app.get_job(conn, handle)
    return info is not None and info.progress is not None


async def test_ended_jobs_and_typed_results(
    app: Holdfast, conn: Connection, share: Kind[[Job[None], int], float]
) -> None:
    @app.job("go.on")
    async def go_on(job: Job[None]) -> Continue[float]:
        return Continue(share.new(5))

    good, bad, first = await app.enqueue_many(conn, [share.new(4), share.new(0), go_on.new()])
    async with app.worker(**PATIENT):
        assert await app.wait(share.handle(good.id)) == 25
        assert await app.wait(go_on.handle(first.id)) == 20
        with pytest.raises(ChainFailed, match="nobody to share with"):
            await app.wait(bad)
    info = await app.get_job(conn, share.handle(good.id))
    assert info is not None
    assert (info.status, info.attempt, info.ended, info.result) == ("completed", 1, True, 25.0)
    assert (await found(app, conn, good.id)).result == 25
    info = await found(app, conn, bad)
    assert (info.status, info.error_code, info.error) == ("failed", "nobody", "nobody to share with")
    with pytest.raises(ChainFailed, match="nobody to share with"):
        _ = info.result
    info = await found(app, conn, first)
    assert info.next_id is not None
    with pytest.raises(HoldfastError, match=f"job {first.id} continued its chain {first.id} with job {info.next_id}"):
        _ = info.result
    following = await found(app, conn, info.next_id)
    assert (following.chain_id, following.result) == (first.id, 20)


async def test_a_handle_from_an_id(app: Holdfast, share: Kind[[Job[None], int], float]) -> None:
    @app.batch("each")
    async def each(items: list[Item[dict[str, int]]]) -> list[int]:
        return [1 for _ in items]

    declared = app.declare("elsewhere", dict)
    handle = share.handle(7)
    assert (handle.id, handle.chain_id, handle.created) == (7, 7, False)
    assert handle.decode is not None
    assert handle.decode("2.5") == 2.5
    typed = each.handle(8).decode
    assert typed is not None
    assert typed("3") == 3
    assert declared.handle(9).decode is None


@pytest.mark.parametrize("job", [0, -1, 10**9, 2**70])
async def test_a_job_that_does_not_exist(app: Holdfast, conn: Connection, job: int) -> None:
    assert await app.get_job(conn, job) is None
    assert await app.cancel(conn, job) == "not_found"
    assert await app.reschedule(conn, job, delay=DAY) == "not_found"
    assert await app.retry(conn, job) == RetryResult("not_failed", None)


async def test_a_failed_job_is_retried_once(
    app: Holdfast, conn: Connection, share: Kind[[Job[None], int], float], ledger: Ledger
) -> None:
    bad, good = await app.enqueue_many(conn, [share.new(0), share.new(1)])
    reported: list[Any] = []
    app.listeners.append(reported.append)
    async with app.worker(**PATIENT):
        await app.wait(good)
        with pytest.raises(ChainFailed):
            await app.wait(bad)
    reported.clear()
    assert await app.retry(conn, good) == RetryResult("not_failed", None)
    async with conn.transaction():
        retried = await app.retry(conn, bad)
        assert retried.handle is not None
        new = retried.handle
        assert (retried.status, new.chain_id, new.created, new.decode) == ("retried", bad.id, True, bad.decode)
        # The transaction goes on: the answer is a value, not an error of the database.
        again = await app.retry(conn, bad)
        assert (again.status, again.handle) == ("already_retried", replace(new, created=False))
        by_id = await app.retry(conn, bad.id)
        assert by_id == again
    assert [(one.name, one.job, one.kind, one.details["cause"], one.details["source"]) for one in reported] == [
        ("job_enqueued", new.id, "share", "replay", bad.id)
    ]
    assert (await found(app, conn, new)).replay_of == bad.id
    forced = await app.retry(conn, bad, again=True)
    assert forced.status == "retried"
    assert ledger.value("SELECT count(*) FROM holdfast.job WHERE replay_of = %s", bad.id) == 2


async def test_a_retry_continues_the_chain_of_its_job(app: Holdfast, conn: Connection) -> None:
    broken = True

    @app.job("pay")
    async def pay(job: Job[None]) -> str:
        if broken:
            raise Fail("declined")
        return "paid"

    @app.job("order")
    async def order(job: Job[None]) -> Continue[str]:
        return Continue(pay.new())

    handle = await app.enqueue(conn, order.new())
    async with app.worker(**PATIENT):
        with pytest.raises(ChainFailed, match="declined"):
            await app.wait(handle)
        broken = False
        chain = await app.get_chain(conn, handle)
        assert chain is not None
        retried = await app.retry(conn, chain.jobs[-1].id)
        assert retried.handle is not None
        assert retried.handle.chain_id == handle.id
        assert await app.wait(retried.handle) == "paid"
        # The retry has completed, and is still the answer.
        again = await app.retry(conn, chain.jobs[-1].id)
        assert again.status == "already_retried"
        assert again.handle is not None
        assert (again.handle.id, again.handle.chain_id) == (retried.handle.id, handle.id)


async def test_a_retry_does_not_repeat_a_unique_key(
    app: Holdfast, conn: Connection, share: Kind[[Job[None], int], float]
) -> None:
    bad = await app.enqueue(conn, share.new(0).options(unique=Unique("u")))
    async with app.worker(**PATIENT):
        with pytest.raises(ChainFailed):
            await app.wait(bad)
    other = await app.enqueue(conn, share.new(1).options(unique=Unique("u")))
    async with conn.transaction():
        retried = await app.retry(conn, bad)
        assert (retried.status, retried.handle and retried.handle.id) == ("duplicate", other.id)
        assert await app.cancel(conn, other) == "cancelled"
        assert (await app.retry(conn, bad)).status == "retried"


async def test_a_waiting_job_is_rescheduled(
    app: Holdfast, conn: Connection, share: Kind[[Job[None], int], float]
) -> None:
    handle = await app.enqueue(conn, share.new(1).options(delay=DAY))
    at = datetime(2041, 1, 1, tzinfo=UTC)
    assert await app.reschedule(conn, handle, at=at) == "rescheduled"
    assert (await found(app, conn, handle)).available_at == at
    assert await app.reschedule(conn, handle.id, delay=3600) == "rescheduled"
    due = (await found(app, conn, handle)).available_at - datetime.now(UTC)
    assert timedelta(minutes=55) < due < timedelta(minutes=65)
    blocked = await app.enqueue(conn, share.new(1).options(after=[handle]))
    assert await app.reschedule(conn, blocked, at=at) == "blocked"
    async with app.worker(**PATIENT):
        assert await app.reschedule(conn, handle, at=datetime(2020, 1, 1, tzinfo=UTC)) == "rescheduled"
        assert await app.wait(handle) == 100
    assert await app.reschedule(conn, handle, at=at) == "not_found"


@pytest.mark.parametrize(
    ("given", "output"),
    [
        ({}, "expected one of at and delay"),
        ({"at": datetime(2040, 1, 1, tzinfo=UTC), "delay": DAY}, "expected one of at and delay"),
        ({"delay": timedelta(days=-1)}, "delay"),
        ({"at": datetime(2040, 1, 1)}, "time zone"),  # noqa: DTZ001 - what is tested
    ],
)
async def test_a_wrong_time_is_refused(app: Holdfast, conn: Connection, given: dict[str, Any], output: str) -> None:
    with pytest.raises(InvalidJob, match=output):
        await app.reschedule(conn, 1, **given)


async def test_a_paused_queue_is_not_claimed_from(
    app: Holdfast, conn: Connection, share: Kind[[Job[None], int], float]
) -> None:
    assert await app.resume_queue(conn, "default") is False
    assert await app.pause_queue(conn, "default") is True
    assert await app.pause_queue(conn, "default") is False
    handle = await app.enqueue(conn, share.new(1))
    other = await app.enqueue(conn, share.new(2).options(queue="other"))
    async with app.worker(queues={"default": 1, "other": 1}, **PATIENT):
        assert await app.wait(other) == 50
        assert (await found(app, conn, handle)).status == "pending"
        assert await app.resume_queue(conn, "default") is True
        assert await app.wait(handle) == 100
    assert await app.resume_queue(conn, "default") is False


async def test_a_job_shows_its_worker_and_its_headers(app: Holdfast, conn: Any) -> None:
    gate = asyncio.Event()

    @app.job("act")
    async def act(job: Job[None]) -> str:
        await gate.wait()
        return "done"

    handle = await app.enqueue(conn, act.new().options(headers={"tenant": "a"}))

    async def shown() -> list[object]:
        info, chain = await app.get_job(conn, handle), await app.get_chain(conn, handle)
        assert info is not None
        assert chain is not None
        assert (info.worker, info.headers) == (chain.jobs[0].worker, chain.jobs[0].headers)
        return [info.status, info.worker, info.headers]

    assert await shown() == ["pending", None, {"tenant": "a"}]
    async with app.worker(id="w1", **PATIENT) as worker:
        await until(lambda: worker.counts.get("claimed") == 1)
        assert await shown() == ["processing", "w1", {"tenant": "a"}]
        gate.set()
        await app.wait(handle)
    assert await shown() == ["completed", "w1", {"tenant": "a"}]
