"""Many side by side, then one."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import ChainFailed, Continue, DuplicateJob, Fail, GroupProgress, Holdfast, InvalidJob, Job, Unique
from tests.kit.pace import PATIENT
from tests.kit.waiting import until

if TYPE_CHECKING:
    import psycopg

    from holdfast import Kind
    from tests.kit.ledger import Ledger

    Connection = psycopg.AsyncConnection[Any]


@pytest.fixture
def page(app: Holdfast) -> Kind[..., Any]:
    @app.job("page.bind")
    async def bind(job: Job[None], number: int) -> str:
        return f"page {number}"

    @app.job("page")
    async def page(job: Job[None], number: int) -> str | Continue[str] | Fail:
        if number < 0:
            return Fail("no such page")
        return Continue(bind.new(number)) if number % 2 else f"page {number}"

    return page


@pytest.fixture
def book(app: Holdfast, page: Kind[..., Any]) -> Kind[..., Any]:
    @app.job("book")
    async def book(job: Job[None], title: str) -> str:
        return ", ".join([title, *[page.result(blocker) for blocker in job.blockers]])

    return book


async def test_one_runs_when_all_the_others_have_completed(
    app: Holdfast, conn: Connection, page: Kind[..., Any], book: Kind[..., Any]
) -> None:
    handle = await app.enqueue_group(conn, [page.new(number) for number in range(5)], then=book.new("Moby-Dick"))
    chain = await app.get_chain(conn, handle)
    assert chain is not None
    assert chain.status == "blocked"
    async with app.worker(queues={"default": 3}, **PATIENT):
        assert await app.wait(handle) == "Moby-Dick, page 0, page 1, page 2, page 3, page 4"


async def test_how_far_a_group_has_come_is_one_look(
    app: Holdfast, conn: Connection, page: Kind[..., Any], book: Kind[..., Any], ledger: Ledger
) -> None:
    pages = await app.enqueue_many(conn, [page.new(0), page.new(2).options(queue="later")])
    last = await app.enqueue(conn, book.new("Emma").options(after=pages))

    async def left() -> list[int | None]:
        info, chain = await app.get_job(conn, last), await app.get_chain(conn, last)
        assert info is not None
        assert chain is not None
        return [info.blockers_left, chain.jobs[0].blockers_left]

    assert await left() == [2, 2]
    async with app.worker(queues={"default": 1}, **PATIENT):
        await app.wait(pages[0])
        assert await left() == [1, 1]
    async with app.worker(queues={"default": 1, "later": 1}, **PATIENT):
        await app.wait(last)
    assert await left() == [None, None]
    [plain] = await app.enqueue_many(conn, [page.new(0)])
    found = await app.get_job(conn, plain)
    assert found is not None
    assert found.blockers_left is None


async def test_one_that_fails_fails_the_last(
    app: Holdfast, conn: Connection, page: Kind[..., Any], book: Kind[..., Any]
) -> None:
    handle = await app.enqueue_group(conn, [page.new(0), page.new(-1)], then=book.new("Emma"))
    async with app.worker(**PATIENT):
        with pytest.raises(ChainFailed, match="blocker_failed"):
            await app.wait(handle)


async def test_the_last_job_may_run_after_failures_and_receives_them(
    app: Holdfast, conn: Connection, page: Kind[..., Any]
) -> None:
    @app.job("book")
    async def book(job: Job[None]) -> list[str]:
        return [page.result(it) if it.status == "completed" else f"{it.error_code}: {it.error}" for it in job.blockers]

    handle = await app.enqueue_group(conn, [page.new(0), page.new(-1)], then=book.new().options(if_blocker_fails="run"))
    async with app.worker(**PATIENT):
        assert await app.wait(handle) == ["page 0", "Fail: no such page"]


async def test_a_group_without_jobs_completes(app: Holdfast, conn: Connection, book: Kind[..., Any]) -> None:
    handle = await app.enqueue_group(conn, [], then=book.new("Empty"))
    async with app.worker(**PATIENT):
        assert await app.wait(handle) == "Empty"


async def test_what_the_last_comes_after_already_stays(
    app: Holdfast, conn: Connection, page: Kind[..., Any], book: Kind[..., Any]
) -> None:
    cover = await app.enqueue(conn, page.new(100))
    same = Unique("same", on_conflict="keep")
    twice = [page.new(2).options(unique=same), page.new(4).options(unique=same)]
    handle = await app.enqueue_group(conn, twice, then=book.new("Twice").options(after=[cover]))
    async with app.worker(**PATIENT):
        assert await app.wait(handle) == "Twice, page 100, page 2, page 2"


def test_on_a_sync_connection_in_ones_own_transaction(
    app: Holdfast, ledger: Ledger, page: Kind[..., Any], book: Kind[..., Any]
) -> None:
    with ledger.conn.transaction(force_rollback=True):
        app.sync.enqueue_group(ledger.conn, [page.new(0)], then=book.new("Never"))
        assert ledger.statuses() == {"pending": 1, "blocked": 1}
    assert ledger.statuses() == {}


async def test_a_kind_is_not_a_job(app: Holdfast, ledger: Ledger, conn: Connection, page: Kind[..., Any]) -> None:
    """Nothing is enqueued when the last one is not a job."""
    with pytest.raises(TypeError, match=r"call its \.new"):
        await app.enqueue_group(conn, [page.new(0)], then=page)  # type: ignore[arg-type]
    with pytest.raises(InvalidJob, match="after: at most"):
        await app.enqueue_group(conn, [], then=page.new(0).options(after=range(1, 10_002), delay=timedelta(days=1)))
    assert ledger.statuses() == {}


async def test_all_of_a_group_or_nothing(
    app: Holdfast, ledger: Ledger, conn: Connection, page: Kind[..., Any], book: Kind[..., Any]
) -> None:
    """On a connection that commits every statement too."""
    taken = book.new("Emma").options(unique=Unique("taken", on_conflict="raise"))
    await app.enqueue(conn, taken)
    with pytest.raises(DuplicateJob):
        await app.enqueue_group(conn, [page.new(0)], then=taken)
    with pytest.raises(DuplicateJob):
        app.sync.enqueue_group(ledger.conn, [page.new(0)], then=taken)
    assert ledger.statuses() == {"pending": 1}


def test_too_many_to_wait_for_are_refused_before_anything_is_sent(
    app: Holdfast, ledger: Ledger, page: Kind[..., Any], book: Kind[..., Any]
) -> None:
    with ledger.conn.transaction():
        with pytest.raises(InvalidJob, match="group: at most 100000 jobs"):
            app.sync.enqueue_group(ledger.conn, [page.new(0)] * 100_001, then=book.new("Long"))
        with pytest.raises(InvalidJob, match="group: at most 10000 jobs before one with a unique key"):
            app.sync.enqueue_group(ledger.conn, [page.new(0)] * 10_001, then=book.new("Long").options(unique="one"))
        assert ledger.statuses() == {}


async def test_progress_counts_what_is_done_failed_and_waiting(
    app: Holdfast, conn: Connection, page: Kind[..., Any], book: Kind[..., Any]
) -> None:
    pages = [*(page.new(n) for n in (0, 1, 2, -1)), page.new(3).options(queue="later")]
    last = await app.enqueue_group(conn, pages, then=book.new("Emma").options(if_blocker_fails="run"))

    async def progress() -> GroupProgress | None:
        info = await app.get_job(conn, last)
        assert info is not None
        return info.group

    async def shown() -> bool:
        return await progress() == GroupProgress(done=3, failed=1, waiting=1)

    assert await progress() == GroupProgress(done=0, failed=0, waiting=5)
    async with app.worker(queues={"default": 1}, **PATIENT):
        await until(shown)
    [listed] = (await app.list_jobs(conn, kind="book")).jobs
    assert (listed.group, listed.blockers_left) == (GroupProgress(3, 1, 1), 1)
    chain = await app.get_chain(conn, last)
    assert chain is not None
    assert chain.jobs[0].group == GroupProgress(3, 1, 1)


@pytest.mark.parametrize("each", [True, False])
async def test_a_group_may_have_jobs_that_were_there_before(
    app: Holdfast, conn: Connection, page: Kind[..., Any], book: Kind[..., Any], *, each: bool
) -> None:
    """Such a job may belong to another group, so the last job has a blocker for each; the order is that of the jobs."""
    await app.enqueue(conn, page.new(2).options(unique="two"))
    first = [page.new(n).options(unique=Unique(f"{n}")) for n in (4, 6)] if each else []
    pages = [*first, page.new(2).options(unique="two"), page.new(8)]
    last = await app.enqueue_group(conn, pages, then=book.new("Emma"))
    again = await app.enqueue_group(conn, pages, then=book.new("Again"))
    shown = [f"page {n}" for n in ((4, 6) if each else ())]
    async with app.worker(queues={"default": 3}, **PATIENT):
        assert await app.wait(last) == ", ".join(["Emma", *shown, "page 2", "page 8"])
        assert await app.wait(again) == ", ".join(["Again", *shown, "page 2", "page 8"])
