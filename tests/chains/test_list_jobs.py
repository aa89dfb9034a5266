"""Lists of jobs, on the caller's connection."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import ChainFailed, Continue, Fail, Holdfast, InvalidJob, Job
from tests.kit.pace import PATIENT

if TYPE_CHECKING:
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
    tagged = await app.enqueue(conn, ship.new(4).options(tags=["eu", "vip", "eu"]))
    made.append(tagged)
    filters: dict[str, Any] = {
        "kind": "order.other", "queue": "b", "order_key": "k", "status": "failed", "tag": "vip",
    }  # fmt: skip
    found = {
        name: [job.id for job in (await app.list_jobs(conn, **{name: value})).jobs] for name, value in filters.items()
    }
    expected = {"kind": made[3], "queue": made[1], "order_key": made[2], "status": None, "tag": tagged}
    assert found == {name: [] if handle is None else [handle.id] for name, handle in expected.items()}


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


async def test_tags_stay_with_a_job_to_its_end(app: Holdfast, conn: Connection) -> None:
    @app.job("tagged", tags=["kind"])
    async def tagged(job: Job[None], way: str) -> Continue[None] | Fail | None:
        match way:
            case "fails":
                return Fail("it fails")
            case "goes on":
                return Continue(tagged.new("ends"))
            case _:
                return None

    plain, own = tagged.new("ends"), ["own", "two"]
    jobs = [
        plain, plain.options(tags=own), plain.options(tags=[]), plain.options(tags=own, unique="u"),
        plain.options(tags=own, order_key="k"), tagged.new("fails").options(tags=own),
        tagged.new("goes on").options(tags=own), plain.options(tags=own, delay=0.01),
    ]  # fmt: skip
    handles = [await app.enqueue(conn, job) for job in jobs]
    expected = [job.envelope.tags for job in jobs]

    async def tags() -> list[tuple[str, ...] | None]:
        found = [await app.get_job(conn, handle) for handle in handles]
        return [None if info is None else info.tags for info in found]

    assert await tags() == expected
    async with app.worker(**PATIENT):
        for handle in handles:
            with suppress(ChainFailed):
                await app.wait(handle)
    assert await tags() == expected
    retried = (await app.retry(conn, handles[5])).handle
    assert retried is not None
    found = [job.id for job in (await app.list_jobs(conn, tag="own")).jobs]
    of_own = [handle.id for handle, kept in zip(handles, expected, strict=True) if "own" in kept]
    assert sorted(found) == sorted([*of_own, retried.id])
    assert {job.kind for job in (await app.list_jobs(conn, tag="kind")).jobs} == {"tagged"}


async def test_a_tag_is_found_behind_any_number_of_jobs_without_tags(
    app: Holdfast, conn: Connection, ship: Kind[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search looks at jobs with tags only, by an index that other jobs are not in."""
    monkeypatch.setattr("holdfast._store.search.LOOKS", (2, 3, 4))
    tagged = await app.enqueue(conn, ship.new(0).options(tags=["eu"]))
    await app.enqueue_many(conn, [ship.new(n) for n in range(30)])
    page = await app.list_jobs(conn, tag="eu")
    assert ([job.id for job in page.jobs], page.next) == ([tagged.id], None)


@pytest.mark.parametrize("wrong", ["eu", [""], ["x" * 101], [str(n) for n in range(9)], [7], 7])
def test_what_is_no_tag_is_refused(ship: Kind[..., Any], wrong: Any) -> None:
    with pytest.raises(InvalidJob, match=r"^tags: expected"):
        ship.new(1).options(tags=wrong)


@pytest.mark.parametrize("more", ["", ', "unique_key": "u"', ', "limits": ["l"]', ', "order_key": "k"'])
@pytest.mark.parametrize("wrong", ["[]", '[""]', "[null]", '["1","2","3","4","5","6","7","8","9"]'])
async def test_tags_from_sql_are_checked(conn: Connection, wrong: str, more: str) -> None:
    with pytest.raises(psycopg.DatabaseError, match="tags: ") as caught:
        await conn.execute("SELECT holdfast.enqueue_jobs(%s)", [f'[{{"kind": "k", "tags": {wrong}{more}}}]'])
    assert caught.value.sqlstate == "HF002"
