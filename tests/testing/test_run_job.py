"""Running one job and no other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Event, Fail, Handle, Holdfast, Job, Retry, Unique, UnknownKind

if TYPE_CHECKING:
    import psycopg

    from holdfast.testing import Testing

    Conn = psycopg.AsyncConnection[Any]


async def test_a_new_job_is_enqueued_and_run(app: Holdfast, conn: Conn, kit: Testing) -> None:
    @app.job("double")
    async def double(job: Job[None], number: int) -> int:
        return number * 2

    other = await app.enqueue(conn, double.new(1).options(priority=0))
    ran = await kit.run_job(double.new(21))
    assert (ran.outcome, ran.result, ran.attempt) == ("completed", 42, 1)
    assert [(job.id, job.status) for job in await kit.enqueued(double)] == [
        (other.id, "pending"),
        (ran.id, "completed"),
    ]


@pytest.mark.parametrize("completes", [False, True])
async def test_the_result_is_of_the_declared_type(app: Holdfast, conn: Conn, kit: Testing, completes: bool) -> None:
    moment = datetime(2026, 7, 3, tzinfo=UTC)

    @app.job("when")
    async def when(job: Job[None]) -> dict[str, datetime]:
        return await job.complete(conn, {"at": moment}) if completes else {"at": moment}

    assert (await kit.run_job(when.new())).result == {"at": moment}
    await app.enqueue(conn, when.new())
    assert [ran.result for ran in await kit.drain()] == [{"at": moment}]


async def test_a_result_of_another_type_is_what_json_has_of_it(app: Holdfast, kit: Testing) -> None:
    @app.job("when")
    async def when(job: Job[None]) -> datetime:
        return "some day"  # type: ignore[return-value]

    assert (await kit.run_job(when.new())).result == "some day"


async def test_one_that_waits_runs_whether_it_is_due_or_not(app: Holdfast, conn: Conn, kit: Testing) -> None:
    seen = []

    @app.job("remind", queue="mail")
    async def remind(job: Job[None]) -> None:
        seen.append(job.id)

    job = remind.new().options(delay=timedelta(days=2), expires=timedelta(days=3))
    first, second = [await app.enqueue(conn, job) for _ in range(2)]
    assert (await kit.run_job(second)).outcome == "completed"
    assert seen == [second.id]
    jobs = await kit.enqueued(remind)
    assert [(job.id, job.status, job.queue) for job in jobs] == [
        (first.id, "pending", "mail"),
        (second.id, "completed", "mail"),
    ]
    await kit.assert_enqueued(job, times=2)


async def test_its_errors_are_raised_or_reported(app: Holdfast, conn: Conn, kit: Testing) -> None:
    @app.job("charge", retry=Retry(max_attempts=2))
    async def charge(job: Job[None]) -> None:
        raise RuntimeError("declined")

    handle = await app.enqueue(conn, charge.new())
    with pytest.raises(RuntimeError, match="declined"):
        await kit.run_job(handle)
    ran = await kit.run_job(handle, raise_errors=False)
    assert (ran.outcome, ran.attempt) == ("failed", 2), "a retry is not waited for either"
    with pytest.raises(AssertionError, match=f"job {handle.id} cannot run: it is failed"):
        await kit.run_job(handle)


async def test_what_cannot_run_says_why(app: Holdfast, conn: Conn, kit: Testing) -> None:
    @app.job("entry")
    async def entry(job: Job[None]) -> None: ...

    elsewhere = app.declare("elsewhere", dict[str, int])
    with pytest.raises(AssertionError, match="cannot run: it is not there"):
        await kit.run_job(Handle(2**40, 2**40, created=True))
    with pytest.raises(UnknownKind, match="elsewhere: this application has no handler"):
        await kit.run_job(elsewhere.new({}))
    with pytest.raises(UnknownKind, match="elsewhere"):
        await kit.run_job(await app.enqueue(conn, elsewhere.new({})))
    first, second = [await app.enqueue(conn, entry.new().options(order_key="k")) for _ in range(2)]
    with pytest.raises(AssertionError, match="an earlier one of its order key has not ended"):
        await kit.run_job(second)
    with pytest.raises(AssertionError, match=f"job {second.id} cannot run: it is blocked"):
        await kit.run_job(second)
    assert (await kit.run_job(first)).outcome == "completed"
    assert (await kit.run_job(second)).outcome == "completed"


async def test_a_unique_key_runs_the_job_that_has_it(app: Holdfast, conn: Conn, kit: Testing) -> None:
    @app.job("sum")
    async def total(job: Job[None], number: int) -> int:
        return number

    job = total.new(1).options(unique=Unique("k"))
    handle = await app.enqueue(conn, job)
    ran = await kit.run_job(total.new(2).options(unique=Unique("k")))
    assert (ran.id, ran.result) == (handle.id, 1)


async def test_a_paused_queue_does_not_keep_it(app: Holdfast, conn: Conn, kit: Testing) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> Fail | None:
        return None

    await conn.execute("INSERT INTO holdfast.queue (name, paused) VALUES ('default', true)")
    assert (await kit.run_job(act.new())).outcome == "completed"


async def test_the_handler_of_a_subscription_is_given_an_event(app: Holdfast, conn: Conn, kit: Testing) -> None:
    posted = app.event("said", dict[str, int])

    @app.on(posted, name="hear", start="beginning")
    async def listen(job: Job[None], event: Event[dict[str, int]]) -> int:
        return event.payload["n"]

    await app.publish(conn, posted.new({"n": 1}))
    assert len(await kit.drain()) == 0, "events are not read"
    event = Event(1, "said", {"n": 2}, published_at=datetime.now(UTC))
    assert (await kit.run_job(listen.new(event))).result == 2
