"""Worker Design: the worker, its loop, what it acquires, and how it is woken."""

from __future__ import annotations

import asyncio
import contextvars
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast, Job, Retry, Settings
from tests.kit.fleet import SOON
from tests.kit.pace import AT_ONCE, MINUTE, QUICK, ms
from tests.kit.statement import DESIGN, DIFFERENCES, Document
from tests.kit.waiting import serving, until
from tests.kit.workers import Worker, enqueue, job

if TYPE_CHECKING:
    from holdfast._engine.report.transition import Transition
    from tests.kit.ledger import Ledger

doc = Document(DESIGN)


@doc.states("a worker can be given an id")
async def test_worker_id(app: Holdfast, ledger: Ledger) -> None:
    async with app.worker(id="worker-1", **QUICK) as worker:
        assert worker.id == "worker-1"
        assert ledger.value("SELECT name FROM holdfast.worker WHERE stopped_at IS NULL ORDER BY id DESC") == "worker-1"


@doc.states("without an id a worker gets one of its own, also beside another in the same process")
async def test_default_id(app: Holdfast) -> None:
    assert app.worker().id != app.worker().id


@doc.states("a started worker is a row that is new at each start, so that two never share an identity")
async def test_new_identity(app: Holdfast, ledger: Ledger) -> None:
    rows = "SELECT count(DISTINCT id), count(DISTINCT identity) FROM holdfast.worker WHERE name = 'same'"
    for _ in range(2):
        async with app.worker(id="same", **QUICK):
            pass
    assert ledger.rows(rows) == [(2, 2)]


@doc.states("starting returns when the worker runs, and stopping when it has stopped")
async def test_lifecycle(app: Holdfast) -> None:
    reported: list[str] = []
    app.listeners.append(lambda transition: reported.append(transition.name))
    async with app.worker(**QUICK):
        assert reported == ["worker_started"]
    assert reported == ["worker_started", "worker_stopping", "worker_stopped"]


@doc.states("without the notification layer polling alone is enough")
@doc.states(
    "pollIntervalMs is 60000 by default; ours is the idle cap of 30000, and poll_interval sets it", differs=DIFFERENCES
)
async def test_poll_interval(app: Holdfast, ledger: Ledger) -> None:
    assert Settings.load({}).idle_max == ms(30_000)
    ran = asyncio.Event()

    @app.job("polled")
    async def act(job: Job[Any]) -> None:
        ran.set()

    async with app.worker(listen=False, poll_interval=ms(20), **MINUTE) as worker:
        await until(lambda: serving(worker).claimer.asleep)
        ledger.enqueue(act.new())
        async with asyncio.timeout(SOON):
            await ran.wait()


@doc.states("a job has no limit of attempts: max_attempts=None, where the default is three", differs=DIFFERENCES)
async def test_no_limit_of_attempts(app: Holdfast, ledger: Ledger) -> None:
    patient = Retry(max_attempts=None, base=ms(0), jitter=ms(0))

    async def act(job: Job[Any]) -> None:
        if job.attempt < 5:
            raise ValueError("once more")

    one, other = ledger.enqueue(
        app.job("patient", retry=patient)(act).new(), app.job("usual", retry=AT_ONCE)(act).new()
    )
    async with app.worker(**QUICK):
        await until(lambda: ledger.status(one) == "completed")
        await until(lambda: ledger.status(other) == "failed")
    assert (ledger.job(one).attempt, ledger.job(other).attempt) == (5, 3)


@doc.states("nextJobDelayMs: a slot rests between two jobs")
async def test_next_job_delay(app: Holdfast, ledger: Ledger) -> None:
    ran: list[float] = []

    @app.job("resting", queue="rest")
    async def act(job: Job[Any]) -> None:
        ran.append(time.monotonic())

    ledger.enqueue(*[act.new() for _ in range(3)])
    async with app.worker(queues={"rest": 1}, next_job_delay={"rest": ms(100)}, **QUICK):
        await until(lambda: len(ran) == 3)
    assert all(later - earlier >= 0.099 for earlier, later in pairwise(ran))


@doc.states("one worker runs one job at a time; ours runs as many as its queues have slots", differs=DIFFERENCES)
async def test_concurrency(app: Holdfast, ledger: Ledger) -> None:
    barrier = asyncio.Barrier(3)

    @app.job("parallel")
    async def act(job: Job[Any]) -> None:
        await barrier.wait()

    ids = ledger.enqueue(*[act.new() for _ in range(3)])
    async with app.worker(queues={"default": 3}, **QUICK):
        await until(lambda: all(ledger.status(one) == "completed" for one in ids))


@doc.states("with one slot a worker processes its jobs one after another, earliest first")
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


@doc.states("several workers compete for jobs, and each job runs once")
async def test_compete(app: Holdfast, ledger: Ledger) -> None:
    ran: list[tuple[str, int]] = []

    async def middleware(job: Job[Any], worker: str, proceed: Any) -> object:
        ran.append((worker, job.id))
        await until(lambda: len({worker for worker, _ in ran}) == 2)
        return await proceed()

    app.middlewares.append(middleware)

    @app.job("contested", queue="contested")
    async def act(job: Job[Any]) -> None: ...

    ids = ledger.enqueue(*[act.new() for _ in range(60)])
    slots: Any = {"queues": {"contested": 1}, **QUICK}
    async with app.worker(id="w1", **slots), app.worker(id="w2", **slots):
        await until(lambda: all(ledger.status(one) == "completed" for one in ids))
    assert sorted(one for _, one in ran) == ids, "each once"
    assert {worker for worker, _ in ran} == {"w1", "w2"}


@doc.states("acquiring takes jobs of registered kinds only")
def test_registered(ledger: Ledger) -> None:
    [foreign, ours] = enqueue(ledger.conn, job("foreign"), job("ours"))
    assert [one.id for one in Worker(ledger.conn, "ours").claim()] == [ours]
    assert ledger.status(foreign) == "pending"


@doc.states("one worker handles several kinds, whichever is available first")
async def test_several_kinds(app: Holdfast, ledger: Ledger) -> None:
    ran: list[str] = []

    async def act(job: Job[Any]) -> None:
        ran.append(job.kind)

    a, b = app.job("type-a", queue="types")(act), app.job("type-b", queue="types")(act)
    ledger.enqueue(b.new(), a.new(), b.new())
    async with app.worker(queues={"types": 1}, **QUICK):
        await until(lambda: len(ran) == 3)
    assert ran == ["type-b", "type-a", "type-b"]


@pytest.fixture
def story() -> list[Any]:
    return []


@doc.states("each worker has its processors and middlewares: kinds= and middlewares=")
async def test_parts_of_a_worker(app: Holdfast, ledger: Ledger) -> None:
    ran: list[str] = []

    def middleware(name: str) -> Any:
        async def around(held: Job[Any], worker: str, call: Any) -> object:
            ran.append(f"{name} {held.kind} {worker}")
            return await call()

        return around

    @app.job("charge", queue="shared")
    async def charge(job: Job[Any]) -> None: ...

    @app.job("ship", queue="shared")
    async def ship(job: Job[Any]) -> None: ...

    app.middlewares.append(middleware("all"))
    one, other = ledger.enqueue(charge.new(), ship.new())
    async with app.worker(id="charges", kinds=["charge"], middlewares=[middleware("own")], **QUICK):
        await until(lambda: ledger.status(one) == "completed")
        assert ledger.value("SELECT kinds FROM holdfast.worker WHERE name = 'charges'") == ["charge"]
    assert ledger.job(other)[:2] == ("pending", 0)
    async with app.worker(id="ships", kinds=["ship"], **QUICK):
        await until(lambda: ledger.status(other) == "completed")
    assert ran == ["all charge charges", "own charge charges", "all ship ships"]
    for wrong in ("ship", [], ["ship", "shop"]):
        with pytest.raises(ValueError, match=r"^kinds: "):
            app.worker(kinds=wrong)


@doc.states("a middleware gets the running job and the worker's id")
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


@doc.states("a middleware's context reaches the handler: contextual logging")
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


@doc.states("a middleware returns the result, and sees the error, of what it wraps: tracing")
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


@doc.states("every state transition of a job is told as a structured event")
async def test_transitions(app: Holdfast, ledger: Ledger) -> None:
    reported: list[Transition] = []

    @app.job("told")
    async def act(job: Job[Any]) -> None:
        if job.attempt == 1:
            raise ValueError("no")

    app.listeners.append(reported.append)
    async with app.worker(**QUICK, retry=AT_ONCE):
        one = app.sync.enqueue(ledger.conn, act.new()).id
        await until(lambda: "job_completed" in {each.name for each in reported if each.job == one})
    names = {each.name for each in reported if each.job == one}
    assert names == {"job_enqueued", "job_claimed", "job_retried", "job_completed"}
    assert {each.kind for each in reported if each.job == one} == {"told"}


@doc.states("cancelling a waiting job is a transition that is told, too")
async def test_cancelling_is_reported(app: Holdfast, ledger: Ledger) -> None:
    reported: list[Transition] = []

    @app.job("called.off")
    async def act(job: Job[Any]) -> None: ...

    app.listeners.append(reported.append)
    one = app.sync.enqueue(ledger.conn, act.new()).id
    app.sync.cancel(ledger.conn, one)
    assert [each.name for each in reported if each.job == one] == ["job_enqueued", "job_cancelled"]
