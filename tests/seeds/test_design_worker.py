"""Worker Design: the worker, its loop, what it acquires, and how it is woken."""

from __future__ import annotations

import asyncio
import contextvars
import time
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast, Job, Settings
from tests.engine.fleet import SOON
from tests.engine.pace import AT_ONCE, MINUTE, QUICK, ms
from tests.engine.waiting import until
from tests.seeds.statement import DESIGN, DIFFERENCES, Document
from tests.traps.workers import Worker, enqueue, job

if TYPE_CHECKING:
    from holdfast._engine.report.transition import Transition
    from tests.engine.ledger import Ledger

doc = Document(DESIGN)
SLEEPS = "SELECT count(*) FROM holdfast.sleeper WHERE until > clock_timestamp() AND %s = ANY (kinds)"


@doc.says("a worker can be given an id")
async def test_worker_id(app: Holdfast, ledger: Ledger) -> None:
    async with app.worker(id="worker-1", **QUICK) as worker:
        assert worker.id == "worker-1"
        assert ledger.value("SELECT name FROM holdfast.worker WHERE stopped_at IS NULL ORDER BY id DESC") == "worker-1"


@doc.says("without an id a worker gets one of its own, also beside another in the same process")
async def test_default_id(app: Holdfast) -> None:
    assert app.worker().id != app.worker().id


@doc.says("a started worker is a row that is new at each start, so that two never share an identity")
async def test_new_identity(app: Holdfast, ledger: Ledger) -> None:
    rows = "SELECT count(DISTINCT id), count(DISTINCT identity) FROM holdfast.worker WHERE name = 'same'"
    for _ in range(2):
        async with app.worker(id="same", **QUICK):
            pass
    assert ledger.rows(rows) == [(2, 2)]


@doc.says("starting returns when the worker runs, and stopping when it has stopped")
async def test_lifecycle(app: Holdfast) -> None:
    told: list[str] = []
    app.listeners.append(lambda transition: told.append(transition.name))
    async with app.worker(**QUICK):
        assert told == ["worker_started"]
    assert told == ["worker_started", "worker_stopping", "worker_stopped"]


@doc.says(
    "pollIntervalMs is 60000 by default; ours is the idle cap of 30000, and poll_interval sets it", differs=DIFFERENCES
)
async def test_poll_interval(app: Holdfast, ledger: Ledger) -> None:
    assert Settings.load({}).idle_max == ms(30_000)
    ran = asyncio.Event()

    @app.job("polled")
    async def act(job: Job[Any]) -> None:
        ran.set()

    async with app.worker(listen=False, poll_interval=ms(20), **MINUTE):
        ledger.enqueue(act.new())
        async with asyncio.timeout(SOON):
            await ran.wait()


@doc.says("nextJobDelayMs: a slot rests between two jobs")
async def test_next_job_delay(app: Holdfast, ledger: Ledger) -> None:
    ran: list[float] = []

    @app.job("resting", queue="rest")
    async def act(job: Job[Any]) -> None:
        ran.append(time.monotonic())

    ledger.enqueue(*[act.new() for _ in range(3)])
    async with app.worker(queues={"rest": 1}, next_job_delay={"rest": ms(100)}, **QUICK):
        await until(lambda: len(ran) == 3)
    assert all(later - earlier >= 0.099 for earlier, later in pairwise(ran))


@doc.says("a stop waits for the current job to complete")
async def test_stop_waits(app: Holdfast, ledger: Ledger) -> None:
    began, go = asyncio.Event(), asyncio.Event()

    @app.job("current")
    async def act(job: Job[Any]) -> str:
        began.set()
        await go.wait()
        return "done"

    one = ledger.enqueue_one(act.new())
    async with app.worker(**(QUICK | {"shutdown_timeout": ms(20_000)})) as worker:
        async with asyncio.timeout(SOON):
            await began.wait()
            stopping = asyncio.create_task(worker.stop())
            await until(lambda: worker.stopping)
            go.set()
            await stopping
    assert ledger.job(one)[:3] == ("completed", 1, "done")


@doc.says("one worker runs one job at a time; ours runs as many as its queues have slots", differs=DIFFERENCES)
async def test_concurrency(app: Holdfast, ledger: Ledger) -> None:
    barrier = asyncio.Barrier(3)

    @app.job("parallel")
    async def act(job: Job[Any]) -> None:
        await barrier.wait()

    ids = ledger.enqueue(*[act.new() for _ in range(3)])
    async with app.worker(queues={"default": 3}, **QUICK):
        await until(lambda: all(ledger.status(one) == "completed" for one in ids))


@doc.says("with one slot a worker processes its jobs one after another, earliest first")
async def test_sequential(app: Holdfast, ledger: Ledger) -> None:
    ran, running = list[int](), list[int]()

    @app.job("sequential", queue="one")
    async def act(job: Job[Any]) -> None:
        running.append(job.id)
        assert len(running) == 1
        await asyncio.sleep(0)
        ran.append(running.pop())

    ids = ledger.enqueue(*[act.new() for _ in range(8)])
    async with app.worker(queues={"one": 1}, **QUICK):
        await until(lambda: len(ran) == 8)
    assert ran == ids


@doc.says("several workers compete for jobs, and each job runs once")
async def test_compete(app: Holdfast, ledger: Ledger) -> None:
    ran: list[tuple[int, str]] = []

    @app.job("contested")
    async def act(job: Job[Any]) -> None:
        ran.append((job.id, "x"))

    ids = ledger.enqueue(*[act.new() for _ in range(60)])
    async with app.worker(id="w1", **QUICK), app.worker(id="w2", **QUICK):
        await until(lambda: len(ran) >= 60)
    assert sorted(one for one, _ in ran) == ids


@doc.says("acquiring takes the earliest pending job first")
def test_earliest(ledger: Ledger) -> None:
    ids = enqueue(ledger.conn, *[job("earliest") for _ in range(3)])
    worker = Worker(ledger.conn, "earliest")
    assert [worker.claim(1)[0].id for _ in ids] == ids


@doc.says("acquiring takes jobs of registered kinds only")
def test_registered(ledger: Ledger) -> None:
    [foreign, ours] = enqueue(ledger.conn, job("foreign"), job("ours"))
    assert [one.id for one in Worker(ledger.conn, "ours").claim()] == [ours]
    assert ledger.status(foreign) == "pending"


@doc.says("acquiring leaves jobs that are scheduled for later")
def test_scheduled(ledger: Ledger) -> None:
    enqueue(ledger.conn, job("scheduled", delay=timedelta(minutes=5)))
    assert Worker(ledger.conn, "scheduled").claim() == []


@doc.says("acquiring makes the job running, called processing, and counts the attempt, atomically", differs=DIFFERENCES)
def test_acquire(ledger: Ledger) -> None:
    [one] = enqueue(ledger.conn, job("acquired"))
    [claimed] = Worker(ledger.conn, "acquired").claim()
    assert claimed.attempt == 1
    assert ledger.job(one)[:2] == ("processing", 1)


@doc.says("acquiring answers with nothing when nothing is available")
def test_nothing(ledger: Ledger) -> None:
    assert Worker(ledger.conn, "never.enqueued").claim() == []


@doc.says("one worker handles several kinds, whichever is available first")
async def test_several_kinds(app: Holdfast, ledger: Ledger) -> None:
    ran: list[str] = []

    async def act(job: Job[Any]) -> None:
        ran.append(job.kind)

    a, b = app.job("type-a", queue="types")(act), app.job("type-b", queue="types")(act)
    ledger.enqueue(b.new(), a.new(), b.new())
    async with app.worker(queues={"types": 1}, **QUICK):
        await until(lambda: len(ran) == 3)
    assert ran == ["type-b", "type-a", "type-b"]


@doc.says("a notification wakes a worker long before it would poll")
async def test_notification(app: Holdfast, ledger: Ledger) -> None:
    ran = asyncio.Event()

    @app.job("notified")
    async def act(job: Job[Any]) -> None:
        ran.set()

    async with app.worker(**MINUTE):
        await until(lambda: ledger.value(SLEEPS, "notified"))
        ledger.enqueue(act.new())
        async with asyncio.timeout(SOON):
            await ran.wait()


@doc.says("without the notification layer polling alone is enough")
async def test_polling(app: Holdfast, ledger: Ledger) -> None:
    ran = asyncio.Event()

    @app.job("unheard")
    async def act(job: Job[Any]) -> None:
        ran.set()

    async with app.worker(listen=False, **QUICK):
        ledger.enqueue(act.new())
        async with asyncio.timeout(SOON):
            await ran.wait()


@pytest.fixture
def story() -> list[Any]:
    return []


@doc.says("middlewares wrap each attempt in order: first in, last out")
async def test_middleware_order(app: Holdfast, ledger: Ledger, story: list[Any]) -> None:
    def middleware(name: str) -> Any:
        async def around(job: Job[Any], worker: str, proceed: Any) -> object:
            story.append(f"{name} before")
            result = await proceed()
            story.append(f"{name} after")
            return result

        return around

    @app.job("wrapped")
    async def act(job: Job[Any]) -> None:
        story.append("job")

    app.middlewares += [middleware("1"), middleware("2"), middleware("3")]
    one = ledger.enqueue_one(act.new())
    async with app.worker(**QUICK):
        await until(lambda: ledger.status(one) == "completed")
    assert story == ["1 before", "2 before", "3 before", "job", "3 after", "2 after", "1 after"]


@doc.says("a middleware gets the running job and the worker's id")
async def test_middleware_context(app: Holdfast, ledger: Ledger, story: list[Any]) -> None:
    async def around(job: Job[Any], worker: str, proceed: Any) -> object:
        story.append((job.id, job.kind, job.attempt, worker))
        return await proceed()

    @app.job("context")
    async def act(job: Job[Any]) -> None: ...

    app.middlewares.append(around)
    one = ledger.enqueue_one(act.new())
    async with app.worker(id="w7", **QUICK):
        await until(lambda: ledger.status(one) == "completed")
    assert story == [(one, "context", 1, "w7")]


@doc.says("a middleware's context reaches the handler: contextual logging")
async def test_middleware_variables(app: Holdfast, ledger: Ledger, story: list[Any]) -> None:
    current: contextvars.ContextVar[int] = contextvars.ContextVar("current")

    async def around(job: Job[Any], worker: str, proceed: Any) -> object:
        current.set(job.id)
        return await proceed()

    @app.job("variables")
    async def act(job: Job[Any]) -> None:
        story.append(current.get())

    app.middlewares.append(around)
    one = ledger.enqueue_one(act.new())
    async with app.worker(**QUICK):
        await until(lambda: ledger.status(one) == "completed")
    assert story == [one]


@doc.says("a middleware returns the result, and sees the error, of what it wraps: tracing")
async def test_middleware_result(app: Holdfast, ledger: Ledger, story: list[Any]) -> None:
    async def around(job: Job[Any], worker: str, proceed: Any) -> object:
        try:
            result = await proceed()
        except ValueError as error:
            story.append(str(error))
            raise
        story.append(result)
        return result

    @app.job("traced")
    async def act(job: Job[Any]) -> str:
        if job.attempt == 1:
            raise ValueError("first")
        return "second"

    app.middlewares.append(around)
    one = ledger.enqueue_one(act.new())
    async with app.worker(**QUICK, retry=AT_ONCE):
        await until(lambda: ledger.status(one) == "completed")
    assert story == ["first", "second"]


@doc.says("every state transition of a job is told as a structured event")
async def test_transitions(app: Holdfast, ledger: Ledger) -> None:
    told: list[Transition] = []

    @app.job("told")
    async def act(job: Job[Any]) -> None:
        if job.attempt == 1:
            raise ValueError("no")

    app.listeners.append(told.append)
    async with app.worker(**QUICK, retry=AT_ONCE):
        one = app.sync.enqueue(ledger.conn, act.new()).id
        await until(lambda: "job_completed" in {each.name for each in told if each.job == one})
    names = {each.name for each in told if each.job == one}
    assert names == {"job_enqueued", "job_claimed", "job_retried", "job_completed"}
    assert {each.kind for each in told if each.job == one} == {"told"}


@doc.says("cancelling a waiting job is a transition that is told, too")
async def test_cancelling_is_reported(app: Holdfast, ledger: Ledger) -> None:
    told: list[Transition] = []

    @app.job("called.off")
    async def act(job: Job[Any]) -> None: ...

    app.listeners.append(told.append)
    one = app.sync.enqueue(ledger.conn, act.new()).id
    app.sync.cancel(ledger.conn, one)
    assert [each.name for each in told if each.job == one] == ["job_enqueued", "job_cancelled"]
