"""Stories that gather the results of other jobs: without a slot meanwhile, and with the failures of those jobs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import ChainFailed, Fail, GroupProgress, Holdfast, InvalidJob, Job, Limit, OrderKey, Retry, Step
from holdfast._drivers import run_sync
from holdfast._engine.jobs.journal import NEVER
from holdfast._model.outcome import Completed, Rescheduled
from holdfast._ops.service import Service
from holdfast._store.lease import Held
from holdfast._store.step import gather_jobs
from tests.kit.access import PATIENT
from tests.kit.pace import AT_ONCE, QUICK, ms
from tests.kit.waiting import until
from tests.kit.workers import FAILED, Worker, enqueue, job, statuses

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast._store.claim import ClaimedJob
    from holdfast._store.step import Gathered
    from tests.kit.ledger import Found, Ledger

    Connection = psycopg.Connection[Any]

ONCE = Retry(max_attempts=1)
LEFT = (
    "SELECT (SELECT count(*) FROM holdfast.step) + (SELECT count(*) FROM holdfast.message)"
    " + (SELECT count(*) FROM holdfast.blocker) + (SELECT count(*) FROM holdfast.job)"
)


@dataclass
class Label:
    box: int


class Shop:
    """A story that prints labels in other jobs, of which some fail."""

    def __init__(self, app: Holdfast) -> None:
        self.runs: list[int] = []
        self.printed: list[int] = []
        self.broken: set[int] = set()

        @app.job("label", retry=ONCE)
        async def label(box: int) -> Label:
            self.printed.append(box)
            if box in self.broken:
                raise Fail(f"box {box} is broken", code="broken")
            return Label(box)

        @app.job("fulfil", retry=Retry(max_attempts=2, base=ms(0), jitter=ms(0)))
        async def fulfil(job: Job[None], boxes: list[int]) -> list[int]:
            self.runs.append(job.attempt)
            labels = await job.gather("labels", *[label.new(box) for box in boxes])
            return [label.box for label in labels]

        self.label = label
        self.fulfil = fulfil


async def ended(app: Holdfast, ledger: Ledger, *jobs: int, **settings: Any) -> Found:
    """Run a worker until the jobs have ended; return the first."""
    async with app.worker(**QUICK | settings):
        await until(lambda: all(ledger.status(job) in {"completed", "failed", "cancelled"} for job in jobs), 20)
    return ledger.job(jobs[0])


async def test_a_story_gathers_typed_results_without_a_slot(app: Holdfast, ledger: Ledger) -> None:
    """There is one slot, so its children run only when the story has given it back."""
    shop = Shop(app)
    story = ledger.enqueue_one(shop.fulfil.new([3, 1, 2]))
    assert (await ended(app, ledger, story, queues={"default": 1}))[:3] == ("completed", 1, [3, 1, 2])
    assert shop.runs == [1, 1]
    assert sorted(shop.printed) == [1, 2, 3]
    [(journal,)] = ledger.rows("SELECT steps FROM holdfast.job_history WHERE kind = 'fulfil'")
    assert [(entry["name"], entry["state"]) for entry in journal] == [("labels", "gathered")]
    assert ledger.value(LEFT) == 0


async def test_a_plain_handler_gathers_and_none_is_nothing(app: Holdfast, ledger: Ledger) -> None:
    shop = Shop(app)

    @app.job("now", retry=ONCE)
    def now(job: Job[None]) -> tuple[list[Label], list[Label]]:
        return job.sync.gather("labels", shop.label.new(1), shop.label.new(2)), job.sync.gather(Step("none", key=1))

    story = ledger.enqueue_one(now.new())
    assert (await ended(app, ledger, story)).result == [[{"box": 1}, {"box": 2}], []]


async def test_a_failed_child_gives_its_error_to_the_handler(app: Holdfast, ledger: Ledger) -> None:
    """It sees the same error in every attempt, also when the child has completed meanwhile."""
    shop = Shop(app)
    shop.broken = {2}
    seen: list[ChainFailed] = []

    @app.job("careful", retry=AT_ONCE)
    async def careful(job: Job[None]) -> str:
        try:
            await job.gather("labels", *[shop.label.new(box) for box in range(4)])
        except ChainFailed as exc:
            seen.append(exc)
            await job.step("mail", mail)
            if len(seen) == 1:
                shop.broken = set()
                ledger.do("SELECT holdfast.replay_job(%s)", exc.chain_id)
                raise ConnectionError("in the branch") from None
        return "one is broken"

    async def mail() -> None: ...

    story = ledger.enqueue_one(careful.new())
    assert (await ended(app, ledger, story)).result == "one is broken"
    assert set(shop.printed) == {0, 1, 2, 3}
    assert [(str(exc), exc.status, exc.error_code) for exc in seen] == [
        (f"chain {seen[0].chain_id} failed (broken: box 2 is broken)", "failed", "broken")
    ] * 2


async def test_a_story_that_failed_of_a_child_continues_once_both_were_retried(app: Holdfast, ledger: Ledger) -> None:
    shop = Shop(app)
    shop.broken = {2}
    story = ledger.enqueue_one(shop.fulfil.new([1, 2]))
    found = await ended(app, ledger, story)
    assert found[:2] == ("failed", 2)
    assert "box 2 is broken" in str(found.error)
    assert shop.printed.count(2) == 1  # another attempt of the story runs no child again
    [(child,)] = ledger.rows("SELECT id FROM holdfast.job_failed WHERE kind = 'label'")
    [(again,)] = ledger.rows("SELECT holdfast.replay_job(%s)", story)
    assert (await ended(app, ledger, again)).status == "failed"
    shop.broken = set()
    ledger.do("SELECT holdfast.replay_job(%s)", child)
    [(again,)] = ledger.rows("SELECT holdfast.replay_job(%s, again => true)", again)
    assert (await ended(app, ledger, again)).result == [1, 2]
    assert sorted(shop.printed) == [1, 2, 2]
    assert ledger.value(LEFT) == 0


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("SELECT holdfast.cancel_job(%s)", "cancelled"),
        ("SELECT holdfast.delete_job(%s)", "deleted"),
        ("SELECT holdfast.complete_chain(%s, '{\"box\": 9}')", None),
        ("SELECT holdfast.complete_chain(%s, '\"nothing\"')", "InvalidStep"),
    ],
)
async def test_a_child_that_ends_from_outside(app: Holdfast, ledger: Ledger, end: str, code: str | None) -> None:
    shop = Shop(app)

    @app.job("later", retry=ONCE)
    async def later(job: Job[None]) -> int:
        return (await job.gather("labels", shop.label.new(1).options(delay=3600)))[0].box

    story = ledger.enqueue_one(later.new())
    async with app.worker(**QUICK):
        await until(lambda: ledger.status(story) == "blocked")
        assert ledger.rows("SELECT locked_by, lock_token, attempt FROM holdfast.job WHERE id = %s", story) == [
            (None, None, 0)
        ]
        ledger.do(end, ledger.value("SELECT id FROM holdfast.job WHERE kind = 'label'"))
        await until(lambda: ledger.status(story) in {"completed", "failed"})
    found = ledger.job(story)
    assert (found.result == 9) if code is None else (code in f"{found.error}" or found.status == "failed")
    assert ledger.value(LEFT) == 0


@pytest.mark.parametrize("end", ["cancel_job(%s)", "delete_job(%s)", "delete_chains(ARRAY[%s])"])
async def test_children_go_on_when_their_story_ends(app: Holdfast, ledger: Ledger, end: str) -> None:
    shop, go = Shop(app), asyncio.Event()

    @app.job("slow")
    async def slow() -> None:
        await go.wait()

    @app.job("fulfil slowly")
    async def slowly(job: Job[None]) -> None:
        await job.gather("slow", slow.new())

    assert shop.fulfil is not None
    story = ledger.enqueue_one(slowly.new())
    async with app.worker(**QUICK):
        await until(lambda: ledger.status(story) == "blocked")
        ledger.do(f"SELECT holdfast.{end}", story)
        assert ledger.rows("SELECT FROM holdfast.job WHERE id = %s", story) == []
        go.set()
        await until(lambda: ledger.value("SELECT count(*) FROM holdfast.job_history WHERE kind = 'slow'") == 1)
    assert ledger.value(LEFT) == 0


async def test_a_gather_beside_a_sleep_and_a_message(app: Holdfast, ledger: Ledger, database: str) -> None:
    """Whatever comes first continues the story, and the rest is waited for again."""
    shop = Shop(app)
    approval = app.message("approval", str)
    order: list[str] = []

    @app.job("both", retry=ONCE)
    async def both(job: Job[None]) -> list[str]:
        async def gathers() -> str:
            (label,) = await job.gather("labels", shop.label.new(1).options(delay=3600))
            order.append("gathered")
            return str(label.box)

        async def receives() -> str:
            answer = await job.receive(approval)
            order.append("received")
            return answer

        async def sleeps() -> str:
            await job.sleep("nap", ms(300))
            order.append("slept")
            return "slept"

        return [*await asyncio.gather(gathers(), receives(), sleeps())]

    story = ledger.enqueue_one(both.new())
    async with app.worker(**QUICK):
        await until(lambda: ledger.status(story) == "blocked" and "slept" in order)
        with psycopg.connect(database) as conn:
            app.sync.send(conn, story, approval, "ada")
        await until(lambda: "received" in order and ledger.status(story) == "blocked")
        ledger.do("UPDATE holdfast.job SET available_at = now(), later = NULL WHERE kind = 'label'")
        ledger.do("SELECT holdfast.wake_sleepers('{default}', '{label}')")
        await until(lambda: ledger.status(story) == "completed")
    assert ledger.job(story).result == ["1", "ada", "slept"]


async def test_a_job_shows_how_far_the_jobs_have_come_that_it_gathers(
    app: Holdfast, ledger: Ledger, database: str
) -> None:
    shop = Shop(app)

    @app.job("parcels", retry=ONCE)
    async def parcels(job: Job[None]) -> None:
        await job.gather("labels", *[shop.label.new(box).options(delay=3600 * box) for box in range(2)])
        await job.sleep("nap", ms(3_600_000))

    story = ledger.enqueue_one(parcels.new())
    due = "SELECT holdfast.reschedule_job(id, now()) FROM holdfast.job WHERE kind = 'label'"
    async with (
        app.worker(**QUICK),
        Service(database, timeout=PATIENT) as service,
        await psycopg.AsyncConnection.connect(database, autocommit=True) as conn,
    ):

        async def shown() -> GroupProgress | None:
            info, page = await app.get_job(conn, story), (await service.job(story)).group
            assert info is not None
            assert info.group == (page and (page.done, page.failed, page.waiting))
            return info.group

        await until(lambda: ledger.status(story) == "blocked" and shop.printed == [0])
        await until(lambda: ledger.value("SELECT count(*) FROM holdfast.job") == 2)
        assert await shown() == GroupProgress(done=1, failed=0, waiting=1)
        ledger.do(due)
        await until(lambda: ledger.value("SELECT count(*) FROM holdfast.step WHERE state = 'sleep'") == 1)
        assert await shown() is None, "it waits for none any more"


async def test_a_child_that_would_wait_for_its_story_is_refused(app: Holdfast, ledger: Ledger) -> None:
    shop = Shop(app)

    @app.job("loop", retry=ONCE, unique="one")
    async def loop(job: Job[None], how: str) -> None:
        child: Any = {
            "itself": loop.new("x"),
            "after it": shop.label.new(1).options(after=[job.chain_id]),
            "its order key": shop.label.new(1).options(order_key="k"),
        }[how]
        await job.gather("loop", child)

    for how in ("itself", "after it", "its order key"):
        story = ledger.enqueue_one(loop.new(how).options(order_key=OrderKey("k")))
        found = await ended(app, ledger, story)
        assert found.status == "failed"
        assert "would wait for itself" in str(found.error), how
    assert ledger.value(LEFT) == 0
    assert shop.printed == []


async def test_a_suspended_story_frees_its_places_in_limits(app: Holdfast, ledger: Ledger) -> None:
    """Otherwise a story and its children would wait for each other."""
    limit = Limit(concurrency=1)
    printed: list[int] = []

    @app.job("limited", limits=[limit])
    async def limited(box: int) -> int:
        printed.append(box)
        return box

    @app.job("story", limits=[limit])
    async def story(job: Job[None]) -> list[int]:
        await job.sleep("nap", ms(100))
        return await job.gather("labels", *[limited.new(box) for box in range(3)])

    made = ledger.enqueue(story.new(), story.new())
    assert (await ended(app, ledger, *made)).result == [0, 1, 2]
    assert len(printed) == 6


async def test_a_story_that_continues_counts_as_another_start_of_a_rate(app: Holdfast, ledger: Ledger) -> None:
    @app.job("rated", limits=[Limit(rate="2/h", burst=2)], retry=ONCE)
    async def rated(job: Job[None]) -> None:
        await job.sleep("nap", ms(50))

    assert (await ended(app, ledger, ledger.enqueue_one(rated.new()))).status == "completed"
    assert ledger.value("SELECT round(extract(epoch FROM full_at - now()) / 1800) FROM holdfast.limit_rate") == 2


async def test_other_code_that_gathers_another_number_is_refused(app: Holdfast, ledger: Ledger) -> None:
    shop = Shop(app)
    boxes = [1, 2]

    @app.job("changing", retry=ONCE)
    async def changing(job: Job[None]) -> None:
        given, boxes[:] = boxes[:], [1]
        await job.gather("labels", *[shop.label.new(box) for box in given])

    found = await ended(app, ledger, ledger.enqueue_one(changing.new()))
    assert "gathers 1 jobs, and was recorded with 2" in str(found.error)


async def test_what_a_gather_refuses(app: Holdfast, ledger: Ledger, database: str) -> None:
    shop = Shop(app)

    async def nothing(conn: psycopg.AsyncConnection[Any]) -> None:
        await conn.execute("SELECT 1")

    @app.job("refused", retry=ONCE)
    async def refused(job: Job[None], how: str) -> None:
        if how == "options":
            await job.gather(Step("labels", timeout=3), shop.label.new(1))
        elif how == "a handle":
            await job.gather("labels", shop.label)  # type: ignore[arg-type]
        else:
            async with await psycopg.AsyncConnection.connect(database) as conn:
                await job.step_on(conn, "book", nothing)
                await job.gather("labels", shop.label.new(1))

    for how, why in (("options", "a gather has no"), ("a handle", "call its .new"), ("transaction", "let it commit")):
        assert why in str((await ended(app, ledger, ledger.enqueue_one(refused.new(how)))).error)
    assert ledger.rows("SELECT FROM holdfast.job") == []


# In SQL: every order of the end of a child and the suspension of its story.


@pytest.fixture
def worker(conn: Connection) -> Worker:
    return Worker(conn, "k", "child")


def gather(worker: Worker, claimed: ClaimedJob, *jobs: Any) -> Gathered:
    held = Held(claimed.id, claimed.token)
    return run_sync(worker.conn, gather_jobs(worker.id, held, ("labels", None), jobs, beside=False))


def state(conn: Connection, story: int) -> Any:
    columns = "status::text, available_at <= clock_timestamp(), later, blockers_left"
    return conn.execute(f"SELECT {columns} FROM holdfast.job WHERE id = %s".encode(), [story]).fetchone()


@pytest.mark.parametrize("first", ["the child", "the story"])
def test_no_end_of_a_child_is_slept_through(conn: Connection, worker: Worker, first: str) -> None:
    (story,) = enqueue(conn, job())
    (claimed,) = worker.claim()
    assert gather(worker, claimed, job("child"), job("child")).answer == "wait"
    assert gather(worker, claimed, job("child"), job("child")).answer == "wait"  # its answer was lost: no more children
    assert conn.execute("SELECT count(*) FROM holdfast.job WHERE kind = 'child'").fetchone() == (2,)
    one, two = worker.claim()
    worker.end([one], Completed("1"))
    assert state(conn, story)[0] == "processing"
    if first == "the child":
        worker.end([two], FAILED)
        assert state(conn, story)[0] == "processing"
        assert gather(worker, claimed).answer == "got"  # a look that comes in between has no effect on this
        return
    worker.end([claimed], Rescheduled(NEVER))
    assert state(conn, story) == ("blocked", True, None, 1)
    worker.end([two], FAILED)
    assert state(conn, story) == ("pending", True, None, 0)
    (again,) = worker.claim()
    found = gather(worker, again)
    assert [(child.status, child.result) for child in found.children] == [("completed", "1"), ("failed", None)]


def test_a_story_whose_children_end_before_it_is_suspended_is_roused_once(conn: Connection, worker: Worker) -> None:
    (story,) = enqueue(conn, job())
    (claimed,) = worker.claim()
    gather(worker, claimed, job("child"))
    worker.end(worker.claim(), Completed("1"))
    worker.end([claimed], Rescheduled(NEVER))
    assert state(conn, story) == ("pending", True, None, -1)
    # Changed code that never asks for them would otherwise run again and again.
    (claimed,) = worker.claim()
    worker.end([claimed], Rescheduled(NEVER))
    assert state(conn, story) == ("pending", False, True, -1)


def test_a_story_that_runs_is_cancelled_where_it_runs(conn: Connection, worker: Worker) -> None:
    (story,) = enqueue(conn, job())
    (claimed,) = worker.claim()
    gather(worker, claimed, job("child"))
    assert conn.execute("SELECT holdfast.cancel_job(%s)", [story]).fetchone() == ("requested",)
    assert state(conn, story)[0] == "processing"
    worker.end([claimed], Rescheduled(NEVER))
    assert statuses(conn)[story] == "cancelled"


def test_a_worker_that_lost_the_story_enqueues_nothing(
    conn: Connection, worker: Worker, connect: Callable[..., Connection]
) -> None:
    (story,) = enqueue(conn, job())
    (claimed,) = worker.claim()
    other = connect(autocommit=False)
    other.execute("SELECT FROM holdfast.job WHERE id = %s FOR UPDATE", [story])
    assert gather(worker, claimed, job("child")).answer == "busy"
    other.rollback()
    enqueue(other, job("u", unique="u"))
    assert gather(worker, claimed, job("u", unique="u")).answer == "busy"  # it waits for no other transaction
    other.rollback()
    conn.execute("UPDATE holdfast.job SET lock_token = lock_token + 1")
    assert gather(worker, claimed, job("child")).answer == "taken_by_another_worker"
    conn.execute("UPDATE holdfast.job SET lock_token = lock_token - 1")
    with pytest.raises(InvalidJob):
        gather(worker, claimed, job("child"), job("child", after=[999_999]))
    assert conn.execute("SELECT count(*) FROM holdfast.job").fetchone() == (1,)
