"""Handlers that take many jobs in one call, and end each differently."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import Continue, Fail, Holdfast, InvalidJob, Item, Job, Reschedule
from tests.engine.keyless import Keyless
from tests.kit.pace import AT_ONCE, PATIENT, QUICK, ms
from tests.kit.waiting import until

if TYPE_CHECKING:
    from nowhere import Nowhere  # type: ignore[import-not-found]

    from tests.kit.ledger import Ledger


@dataclass
class Letter:
    number: int
    to: str = "a@b.c"


async def test_jobs_are_run_many_at_a_time_in_one_slot(app: Holdfast, ledger: Ledger) -> None:
    sizes: list[int] = []
    running = 0

    @app.batch("post", size=40, queue="post")
    async def post(items: list[Item[Letter]]) -> None:
        nonlocal running
        running += 1
        assert running == 1, "one slot"
        sizes.append(len(items))
        await asyncio.sleep(0.01)
        running -= 1

    ledger.enqueue(*[post.new(Letter(number)) for number in range(200)])
    async with app.worker(queues={"post": 1}, batch_size=10, **QUICK) as worker:
        await until(lambda: worker.counts.get("job_completed") == 200)
    assert max(sizes) == 40
    assert sum(sizes) == 200
    assert len(sizes) < 20


async def test_each_ends_in_its_own_way(app: Holdfast, ledger: Ledger) -> None:
    @app.job("after")
    async def after(job: Job[None], number: int) -> str:
        return f"after {number}"

    @app.batch("post", size=10, retry=AT_ONCE)
    async def post(items: list[Item[Letter]]) -> list[str | Continue[str] | Fail | Reschedule]:
        endings: list[str | Continue[str] | Fail | Reschedule] = []
        for item in items:
            match item.args.number:
                case 1:
                    endings.append(Fail("no such address"))
                case 2 if item.job.attempt == 1:
                    endings.append(Reschedule(ms(60_000)))
                case 3:
                    endings.append(Continue(after.new(3)))
                case number:
                    endings.append(f"sent {number}")
        return endings

    jobs = ledger.enqueue(*[post.new(Letter(number)) for number in range(5)])
    async with app.worker(**QUICK) as worker:
        await until(lambda: worker.counts.get("job_completed") == 4)
    assert [ledger.job(job)[:3] for job in jobs] == [
        ("completed", 1, "sent 0"),
        ("failed", 1, None),
        ("pending", 0, None),
        ("completed", 1, None),
        ("completed", 1, "sent 4"),
    ]
    assert ledger.value("SELECT result FROM holdfast.job_history WHERE kind = 'after'") == "after 3"


async def test_one_is_put_off_to_a_moment(app: Holdfast, ledger: Ledger) -> None:
    moment = datetime(2999, 1, 1, tzinfo=UTC)

    @app.batch("post", size=2)
    async def post(items: list[Item[Letter]]) -> list[Reschedule | None]:
        return [Reschedule(moment) if item.args.number == 1 else None for item in items]

    [_, later] = ledger.enqueue(*[post.new(Letter(number)) for number in range(2)])
    async with app.worker(**QUICK) as worker:
        await until(lambda: worker.counts.get("job_rescheduled") == worker.counts.get("job_completed") == 1)
    assert ledger.value("SELECT available_at FROM holdfast.job WHERE id = %s", later) == moment


async def test_what_it_raises_ends_them_all(app: Holdfast, ledger: Ledger) -> None:
    @app.batch("post", retry=AT_ONCE)
    async def post(items: list[Item[Letter]]) -> None:
        raise ConnectionError("no server")

    jobs = ledger.enqueue(*[post.new(Letter(number)) for number in range(5)])
    async with app.worker(**QUICK) as worker:
        await until(lambda: worker.counts.get("job_failed") == 5)
    assert {ledger.job(job)[:2] for job in jobs} == {("failed", 3)}


async def test_the_wrong_number_of_endings_is_an_error(app: Holdfast, ledger: Ledger) -> None:
    @app.batch("post", retry=AT_ONCE)
    async def post(items: list[Item[Letter]]) -> list[str]:
        return ["one"]

    [job, _] = ledger.enqueue(*[post.new(Letter(number)).options(max_attempts=1) for number in range(2)])
    async with app.worker(**QUICK) as worker:
        await until(lambda: worker.counts.get("job_failed") == 2)
    assert "a batch of 2 jobs ends with a list of 2" in (ledger.job(job).error or "")


async def test_a_result_that_cannot_be_encoded_ends_that_job_alone(database: str, ledger: Ledger) -> None:
    app = Holdfast(database, codec=Keyless())

    @app.batch("post", retry=AT_ONCE)
    async def post(items: list[Item[Letter]]) -> list[str]:
        return ["secret" if item.args.number == 1 else "plain" for item in items]

    good, bad = ledger.enqueue(post.new(Letter(0)), post.new(Letter(1)))
    async with app.worker(**PATIENT):
        await until(lambda: ledger.statuses() == {"completed": 1, "failed": 1})
    assert ledger.job(good)[:3] == ("completed", 1, "plain")
    assert ledger.job(bad)[:5] == ("failed", 3, None, "LookupError", "no key for this tenant")


async def test_one_that_does_not_fit_harms_no_other(app: Holdfast, ledger: Ledger) -> None:
    seen: list[int] = []

    @app.batch("post")
    async def post(items: list[Item[Letter]]) -> None:
        seen.extend(item.args.number for item in items)

    [good] = ledger.enqueue(post.new(Letter(1)))
    ledger.do("SELECT holdfast.enqueue('post', '{\"number\": \"many\"}')")
    ledger.do("SELECT holdfast.enqueue('post', '{\"number\": 2}', expires_at => now() - interval '1 second')")
    async with app.worker(**QUICK) as worker:
        await until(lambda: worker.counts.get("job_completed") == 1 and worker.counts.get("job_cancelled") == 1)
        await until(lambda: worker.counts.get("job_released") == 1)
    assert seen == [1]
    assert ledger.status(good) == "completed"


async def test_a_plain_function_in_a_thread(app: Holdfast, ledger: Ledger) -> None:
    @app.batch("post")
    def post(items: list[Item[Letter]]) -> list[int]:
        return [item.args.number for item in items]

    jobs = ledger.enqueue(*[post.new(Letter(number)) for number in range(5)])
    async with app.worker(**QUICK) as worker:
        await until(lambda: worker.counts.get("job_completed") == 5)
    assert [ledger.job(job).result for job in jobs] == [0, 1, 2, 3, 4]


async def test_each_may_be_completed_in_one_transaction(app: Holdfast, ledger: Ledger, database: str) -> None:
    @app.batch("post")
    async def post(items: list[Item[Letter]]) -> None:
        async with await psycopg.AsyncConnection.connect(database) as conn:
            for item in items:
                await item.job.complete(conn, item.args.number)

    jobs = ledger.enqueue(*[post.new(Letter(number)) for number in range(5)])
    async with app.worker(**QUICK) as worker:
        await until(lambda: worker.counts.get("job_completed") == 5)
    assert [ledger.job(job).result for job in jobs] == [0, 1, 2, 3, 4]
    assert {ledger.job(job)[:2] for job in jobs} == {("completed", 1)}


async def test_cancelling_one_lets_the_others_go_on(app: Holdfast, ledger: Ledger) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    @app.batch("post")
    async def post(items: list[Item[Letter]]) -> None:
        begun.set()
        await items[0].job.signal.wait()
        await go.wait()

    jobs = ledger.enqueue(*[post.new(Letter(number)) for number in range(3)])
    async with app.worker(**QUICK) as worker:
        await begun.wait()
        ledger.cancel(jobs[0])
        go.set()
        await until(lambda: worker.counts.get("job_completed") == 2)
    assert [ledger.status(job) for job in jobs] == ["cancelled", "completed", "completed"]


async def test_all_are_released_at_shutdown(app: Holdfast, ledger: Ledger) -> None:
    begun = asyncio.Event()

    @app.batch("post")
    async def post(items: list[Item[Letter]]) -> None:
        begun.set()
        await asyncio.Event().wait()

    ledger.enqueue(*[post.new(Letter(number)) for number in range(3)])
    async with app.worker(**(PATIENT | {"shutdown_timeout": ms(100)})):
        await begun.wait()
    assert ledger.statuses() == {"pending": 3}
    assert ledger.wasted() == []


def test_the_arguments_are_checked(app: Holdfast) -> None:
    @app.batch("post")
    async def post(items: list[Item[Letter]]) -> None: ...

    assert post.new(Letter(7)).payload == '{"number":7,"to":"a@b.c"}'
    with pytest.raises(InvalidJob):
        post.new("seven")  # type: ignore[arg-type]


def test_a_handler_of_another_shape_is_refused(app: Holdfast) -> None:
    with pytest.raises(TypeError, match=r"one parameter, a list of items"):

        @app.batch("post")  # type: ignore[arg-type]
        async def post(job: Job[None], number: int) -> None: ...


BARE: Any = Item


@pytest.mark.parametrize("annotation", [list[Letter], list[BARE], Item[Letter], list, tuple[Item[Letter], ...], Letter])
def test_items_that_are_not_annotated_as_such_are_refused(app: Holdfast, annotation: Any) -> None:
    def post(items: Any) -> None: ...

    post.__annotations__["items"] = annotation
    with pytest.raises(TypeError, match=r"^post: a batch handler has one parameter, a list of items"):
        app.batch("post")(post)
    assert not app.kinds


def test_arguments_that_are_not_there_yet_are_looked_for_later(app: Holdfast) -> None:
    @app.batch("post")
    async def post(items: list[Item[Nowhere]]) -> None: ...

    with pytest.raises(InvalidJob, match="post: an annotation names Nowhere"):
        post.new({})
