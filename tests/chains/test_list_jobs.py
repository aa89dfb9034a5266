"""Lists of jobs, on the caller's connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Fail, Holdfast, Job
from tests.kit.pace import PATIENT

if TYPE_CHECKING:
    import psycopg

    from holdfast import Kind

    Connection = psycopg.AsyncConnection[Any]


@pytest.fixture
def ship(app: Holdfast) -> Kind[..., Any]:
    @app.job("order.ship")
    async def ship(job: Job[None], order: int) -> str | Fail:
        return f"shipped {order}" if order else Fail("no such order", code="unknown")

    return ship


async def test_it_shows_what_waits_and_what_has_ended(app: Holdfast, conn: Connection, ship: Kind[..., Any]) -> None:
    handles = await app.enqueue_many(conn, [ship.new(1).options(headers={"shop": "eu"}), ship.new(0)])
    late = await app.enqueue(conn, ship.new(2).options(queue="later", order_key="two", after=handles[:1]))
    async with app.worker(id="w1", **PATIENT):
        await app.wait(handles[0])
        with pytest.raises(Exception, match="no such order"):
            await app.wait(handles[1])
        [waits, failed, done] = (await app.list_jobs(conn)).jobs
    assert [waits.id, failed.id, done.id] == [late.id, handles[1].id, handles[0].id]
    assert (waits.status, waits.arguments, waits.order_key) == ("pending", {"order": 2}, "two")
    assert (waits.started_at, waits.worker, waits.blockers_left) == (None, None, 0)
    assert (failed.status, failed.error_code) == ("failed", "unknown")
    assert (done.result, done.worker, done.headers, done.arguments) == ("shipped 1", "w1", {"shop": "eu"}, {"order": 1})
    assert done.started_at is not None
    assert done.finished_at is not None
    assert done.created_at <= done.started_at <= done.finished_at


async def test_each_filter_leaves_out_the_others(app: Holdfast, conn: Connection, ship: Kind[..., Any]) -> None:
    other = app.declare("order.other", dict[str, int])
    made = await app.enqueue_many(
        conn, [ship.new(1), ship.new(2).options(queue="b"), ship.new(3).options(order_key="k"), other.new({})]
    )
    filters: dict[str, Any] = {"kind": "order.other", "queue": "b", "order_key": "k", "status": "failed"}
    found = {
        name: [job.id for job in (await app.list_jobs(conn, **{name: value})).jobs] for name, value in filters.items()
    }
    assert found == {"kind": [made[3].id], "queue": [made[1].id], "order_key": [made[2].id], "status": []}


async def test_pages_follow_one_another(app: Holdfast, conn: Connection, ship: Kind[..., Any]) -> None:
    handles = await app.enqueue_many(conn, [ship.new(n) for n in range(7)])
    found, before = [], None
    for _ in range(3):
        page = await app.list_jobs(conn, limit=3, before=before)
        found += [job.id for job in page.jobs]
        before = page.next
    assert found == [handle.id for handle in reversed(handles)]
    assert before is None


@pytest.mark.parametrize("outer", ["0", "5s", "1min"])
async def test_the_callers_settings_are_as_before(
    app: Holdfast, conn: Connection, ship: Kind[..., Any], outer: str
) -> None:
    await app.enqueue(conn, ship.new(1))

    async def settings() -> tuple[Any, ...]:
        shown = await conn.execute(
            "SELECT current_setting('statement_timeout'), current_setting('enable_seqscan'),"
            " current_setting('enable_bitmapscan'), current_setting('search_path')"
        )
        row: tuple[Any, ...] = await shown.fetchone() or ()
        return row

    async with conn.transaction():
        await conn.execute(f"SET LOCAL statement_timeout = '{outer}'".encode())
        before = await settings()
        assert len((await app.list_jobs(conn)).jobs) == 1
        assert await settings() == before


async def test_a_search_ends_where_the_database_takes_too_long(
    app: Holdfast, conn: Connection, ship: Kind[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast._store.search.LOOKS", (2, 3, 100))
    monkeypatch.setattr("holdfast._app.verbs._SEARCH_SECONDS", -1.0)
    handles = await app.enqueue_many(conn, [ship.new(n).options(queue="a" if n else "b") for n in range(6)])
    page = await app.list_jobs(conn, queue="b")
    assert (page.jobs, page.next) == ((), handles[4].id)
    monkeypatch.setattr("holdfast._app.verbs._SEARCH_SECONDS", 60.0)
    page = await app.list_jobs(conn, queue="b", before=page.next)
    assert ([job.id for job in page.jobs], page.next) == ([handles[0].id], None)


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"limit": 201}, {"status": "done"}])
async def test_what_cannot_be_asked_is_refused(app: Holdfast, conn: Connection, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"^{next(iter(wrong))}: expected"):
        await app.list_jobs(conn, **wrong)
