"""Time is moved in the database, never slept."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast, Job, Retry, Unique

if TYPE_CHECKING:
    import psycopg

    from holdfast.testing import Testing

    Conn = psycopg.AsyncConnection[Any]

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


async def test_a_delay_passes(app: Holdfast, conn: Conn, kit: Testing) -> None:
    @app.job("remind")
    async def remind(job: Job[None]) -> None: ...

    handle = await app.enqueue(conn, remind.new().options(delay=HOUR))
    await kit.travel(HOUR - MINUTE)
    assert not len(await kit.drain())
    await kit.travel(MINUTE)
    assert (await kit.drain()).completed == [handle.id]
    await kit.assert_enqueued(remind.new().options(delay=HOUR))


async def test_retries_come_one_after_the_other(app: Holdfast, conn: Conn, kit: Testing) -> None:
    attempts = []

    @app.job("call", retry=Retry(max_attempts=3))
    async def call(job: Job[None]) -> None:
        attempts.append(job.attempt)
        raise ConnectionError

    await app.enqueue(conn, call.new())
    for expected in ("retry", "retry", "failed"):
        (ran,) = await kit.drain(raise_errors=False)
        assert ran.outcome == expected
        await kit.travel(10 * MINUTE)
    assert attempts == [1, 2, 3]


async def test_what_expires_while_time_passes_is_cancelled(app: Holdfast, conn: Conn, kit: Testing) -> None:
    @app.job("offer")
    async def offer(job: Job[None]) -> None: ...

    early, late = [
        await app.enqueue(conn, offer.new().options(delay=MINUTE, expires=expires)) for expires in (2 * MINUTE, HOUR)
    ]
    await kit.travel(2 * MINUTE)
    drained = await kit.drain()
    assert (drained.cancelled, drained.completed) == ([early.id], [late.id])


async def test_a_unique_key_lives_as_long_as_its_job(app: Holdfast, conn: Conn, kit: Testing) -> None:
    @app.job("report")
    async def report(job: Job[None]) -> None: ...

    job = report.new().options(unique=Unique("daily"))
    assert (await app.enqueue(conn, job)).created
    await kit.travel(HOUR)
    assert not (await app.enqueue(conn, job)).created
    await kit.drain()
    assert (await app.enqueue(conn, job)).created


async def test_a_unique_window_ends_when_it_is_over_and_not_before(app: Holdfast, conn: Conn, kit: Testing) -> None:
    """However its time is cut into pieces, and whatever passed before the window began."""

    @app.job("digest")
    async def digest(job: Job[None]) -> None: ...

    await kit.travel(timedelta(days=9))
    job = digest.new().options(unique=Unique("ada", window=timedelta(days=30)))
    first = await app.enqueue(conn, job)
    await kit.drain()
    row = await (
        await conn.execute("SELECT extract(epoch FROM ends_at - clock_timestamp())::float FROM holdfast.unique_window")
    ).fetchone()
    assert row is not None
    left = timedelta(seconds=row[0])
    for _ in range(3):
        await kit.travel(left / 4)
        again = await app.enqueue(conn, job)
        assert (again.created, again.id) == (False, first.id)
    await kit.travel(left / 4 + MINUTE)
    assert (await app.enqueue(conn, job)).created
    assert not (await app.enqueue(conn, job)).created


async def test_time_does_not_go_back(kit: Testing) -> None:
    with pytest.raises(ValueError, match="span: expected seconds or a timedelta, from 0 to"):
        await kit.travel(-MINUTE)


async def test_many_jobs_move_in_several_statements(
    app: Holdfast, conn: Conn, kit: Testing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast._store.testing.MOST", 3)

    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    await app.enqueue_many(conn, [act.new().options(delay=HOUR)] * 10)
    await kit.travel(HOUR)
    assert len(await kit.drain()) == 10


async def test_time_travels_in_words(app: Holdfast, conn: Conn, kit: Testing) -> None:
    @app.job("later")
    async def later() -> None: ...

    await app.enqueue(conn, later.new().options(delay=timedelta(days=1, hours=2, minutes=3, seconds=4)))
    await kit.travel(days=1, hours=2, minutes=3, seconds=3)
    assert not len(await kit.drain())
    await kit.travel(1)
    assert len(await kit.drain()) == 1
    with pytest.raises(ValueError, match="days: expected seconds or a timedelta, from 0 to"):
        await kit.travel(days=-1)
