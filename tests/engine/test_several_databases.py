"""One worker, several databases: served in turn, and none harmed by another."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import AsyncExitStack, ExitStack, closing
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast, Job
from holdfast._engine import served
from tests.kit.databases import clone
from tests.kit.ledger import Ledger
from tests.kit.pace import ALERT, PATIENT, QUICK, ms
from tests.kit.trouble import Line, closed, read_only
from tests.kit.waiting import Stopwatch, after, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast import NewJob
    from tools.postgres import Server


@pytest.fixture
def ledgers(server: Server, template: str) -> Iterator[list[Ledger]]:
    with ExitStack() as stack:
        urls = [stack.enter_context(clone(server, template)) for _ in range(2)]
        yield [stack.enter_context(Ledger(url)) for url in urls]


def make_app(
    ran: list[str] | None = None, aborted: list[int] | None = None
) -> tuple[Holdfast, Callable[..., NewJob[None]]]:
    """Return an application of one kind, and how to make a job of it."""
    app = Holdfast()

    @app.job("act")
    async def act(job: Job[None], where: str, seconds: float = 0.002) -> None:
        if ran is not None:
            ran.append(where)
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            if aborted is not None:
                aborted.append(job.id)
            raise

    return app, act.new


async def test_they_are_served_fairly(ledgers: list[Ledger]) -> None:
    ran: list[str] = []
    both_are_served = asyncio.Event()
    app = Holdfast()

    @app.job("act")
    async def act(job: Job[None], where: str) -> None:
        ran.append(where)
        await both_are_served.wait()
        await asyncio.sleep(0.002)

    one, two = ledgers
    one.enqueue(*[act.new("one") for _ in range(1_000)])
    two.enqueue(*[act.new("two") for _ in range(100)])
    async with app.worker(database_urls=(one.url, two.url), queues={"default": 4}, **QUICK) as worker:
        await until(lambda: all(pipeline.worker for pipeline in worker.pipelines))
        both_are_served.set()
        await until(lambda: worker.counts.get("job_completed") == 1_100)
        await until(lambda: one.sessions() == two.sessions() == 4)
    assert one.statuses() == {"completed": 1_000}
    assert two.statuses() == {"completed": 100}
    last = len(ran) - 1 - ran[::-1].index("two")
    assert last < 500, "the small one need not wait for the large one"


async def test_no_more_is_held_for_two_databases_than_for_one(ledgers: list[Ledger]) -> None:
    app, new = make_app()
    for ledger in ledgers:
        ledger.enqueue(*[new("x", 60.0) for _ in range(50)])
    urls = tuple(ledger.url for ledger in ledgers)
    options = QUICK | {"shutdown_timeout": ms(0)}
    async with app.worker(database_urls=urls, queues={"default": 4}, **options) as worker:
        await until(lambda: worker._dispatcher.slots._running_total == 4)
        await after(0.3)
        held = sum(ledger.statuses().get("processing", 0) for ledger in ledgers)
        assert held <= 4 + 4, "concurrency, and what two claims at once may bring too many"


async def test_one_that_is_down_at_the_start(ledgers: list[Ledger]) -> None:
    ran: list[str] = []
    app, new = make_app(ran)
    up, down = ledgers
    async with Line(down.url) as line:
        url = line.url
        line.refuse()
        jobs = [up.enqueue_one(new("up")), down.enqueue_one(new("down"))]
        async with app.worker(database_urls=(url, up.url), queues={"default": 4}, **PATIENT):
            await until(lambda: up.status(jobs[0]) == "completed")
            assert ran == ["up"]
            line.open()
            await until(lambda: down.status(jobs[1]) == "completed")
    assert [ledger.value("SELECT stop_reason FROM holdfast.worker") for ledger in ledgers] == ["stopped", "stopped"]


async def test_one_that_only_reads_at_the_start(ledgers: list[Ledger], server: Server) -> None:
    app, new = make_app()
    up, down = ledgers
    jobs = [up.enqueue_one(new("up")), down.enqueue_one(new("down"))]
    async with AsyncExitStack() as stack:
        with read_only(server, down.url):
            await stack.enter_async_context(app.worker(database_urls=(up.url, down.url), **PATIENT))
            await until(lambda: up.status(jobs[0]) == "completed")
        await until(lambda: down.status(jobs[1]) == "completed")


async def test_one_that_does_not_answer_at_the_start(ledgers: list[Ledger]) -> None:
    """It accepts connections and says nothing."""
    app, new = make_app()
    up = ledgers[0]
    with closing(socket.create_server(("127.0.0.1", 0))) as mute:
        silent = f"postgresql://postgres@127.0.0.1:{mute.getsockname()[1]}/none"
        job = up.enqueue_one(new("up"))
        async with (
            Stopwatch() as watch,
            app.worker(database_urls=(silent, up.url), queues={"default": 4}, **PATIENT),
        ):
            await until(lambda: up.status(job) == "completed")
            assert watch.seconds < 10
            watch.restart()
        assert watch.seconds < 10


async def test_one_that_goes_down_later(ledgers: list[Ledger], server: Server) -> None:
    ran: list[str] = []
    aborted: list[int] = []
    app, new = make_app(ran, aborted)
    up, down = ledgers
    async with app.worker(database_urls=(up.url, down.url), queues={"default": 4}, **ALERT):
        job = down.enqueue_one(new("down"))
        await until(lambda: down.status(job) == "completed")
        held = down.enqueue(*[new("down", 60.0) for _ in range(4)])
        await until(lambda: len(ran) == 5)
        down.do('UPDATE holdfast.job SET payload = \'{"where": "down", "seconds": 0}\'')
        with closed(server, down):
            down.terminate_sessions()
            up.enqueue(*[new("up") for _ in range(100)])
            await until(lambda: up.completed() == 100)
            assert sorted(aborted) == held
        await until(lambda: all(down.status(job) == "completed" for job in held))
    assert up.wasted() == []
    assert [down.job(job).attempt for job in held] == [1] * 4


@pytest.mark.parametrize("trouble", ["freeze", "refuse"])
async def test_one_that_does_not_answer_lends_its_slots_to_the_others(ledgers: list[Ledger], trouble: str) -> None:
    """Long before its jobs are aborted: that takes two heartbeats of fifteen seconds."""
    ran: list[str] = []
    app, new = make_app(ran)
    up, down = ledgers
    async with Line(down.url) as line:
        options = PATIENT | {"shutdown_timeout": ms(0), "reap_interval": ms(20_000)}
        async with app.worker(database_urls=(line.url, up.url), queues={"default": 4}, **options) as worker:
            slots = worker._dispatcher.slots
            down.enqueue(*[new("down", 3_600.0) for _ in range(4)])
            await until(lambda: slots._running_total == 4)
            getattr(line, trouble)()
            up.enqueue(*[new("up") for _ in range(50)])
            await until(lambda: up.completed() == 50, 14)
            assert len(worker.pipelines[0].held) == 4, "they run on"
            line.thaw() if trouble == "freeze" else line.open()
            await until(lambda: slots._running_total == 4)
        assert slots._running_total == 0
    assert up.wasted() == []


async def test_a_slot_that_was_lent_is_free_once_when_its_job_ends(ledgers: list[Ledger]) -> None:
    gates = [asyncio.Event() for _ in range(4)]
    app = Holdfast()

    @app.job("act")
    async def act(job: Job[None], gate: int) -> None:
        await gates[gate].wait()

    up, down = ledgers
    async with (
        Line(down.url) as line,
        app.worker(database_urls=(line.url, up.url), queues={"default": 4}, **PATIENT) as worker,
    ):
        slots = worker._dispatcher.slots
        jobs = down.enqueue(*[act.new(gate) for gate in range(4)])
        await until(lambda: slots._running_total == 4)
        line.freeze()
        await until(lambda: slots._running_total == 0)
        for gate in gates[:2]:
            gate.set()
        line.thaw()
        await until(lambda: slots._running_total == 2)
        for gate in gates[2:]:
            gate.set()
        await until(lambda: all(down.status(job) == "completed" for job in jobs))
        assert slots._running_total == 0
        assert slots._running["default"] == 0


async def test_a_stop_while_one_is_down(ledgers: list[Ledger]) -> None:
    app, new = make_app()
    up, down = ledgers
    async with Line(down.url) as line:
        url = line.url
        line.refuse()
        async with Stopwatch() as watch, app.worker(database_urls=(url, up.url), queues={"default": 4}, **QUICK):
            job = up.enqueue_one(new("up"))
            await until(lambda: up.status(job) == "completed")
            watch.restart()
        assert watch.seconds < 10
    assert up.value("SELECT stop_reason FROM holdfast.worker") == "stopped"


@pytest.mark.parametrize("when", ["once the stop has begun", "just before the stop"])
async def test_one_that_answers_while_the_worker_stops(ledgers: list[Ledger], when: str) -> None:
    """It is left alone: nothing is claimed there to be given back."""
    started, gate = asyncio.Event(), asyncio.Event()
    app = Holdfast()

    @app.job("act")
    async def act(job: Job[None]) -> None:
        started.set()
        await gate.wait()

    up, down = ledgers
    up.enqueue(act.new())
    down.enqueue(*[act.new() for _ in range(20)])
    blocked = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = %s"
    name = down.value("SELECT current_database()")
    async with Line(down.url) as line:
        url = line.url
        line.refuse()
        async with app.worker(database_urls=(up.url, url), **PATIENT) as worker:
            await started.wait()
            if when == "just before the stop":
                with down.conn.transaction():
                    down.do("LOCK TABLE holdfast.worker IN SHARE MODE")
                    line.open()
                    await until(lambda: up.value(blocked, name) == 1)
                    stopping = asyncio.create_task(worker.stop())
                    await until(lambda: worker.stopping)
                    await until(lambda: up.value(blocked, name) == 0)
            else:
                stopping = asyncio.create_task(worker.stop())
                await until(lambda: worker.stopping)
                line.open()
            await after(1.5)  # it is tried again at least once a second
            assert not stopping.done()
            gate.set()
            await stopping
    assert up.statuses() == {"completed": 1}
    assert down.statuses() == {"pending": 20}
    assert down.value("SELECT count(*) FROM holdfast.worker WHERE stopped_at IS NULL") == 0
    assert worker.pipelines[1].session.counts["claimed"] == 0


async def test_a_start_that_is_called_off_leaves_nothing(
    ledgers: list[Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One database is served already, and the other has not answered."""
    monkeypatch.setattr(served, "START_SECONDS", 60.0)
    ran: list[str] = []
    app, new = make_app(ran)
    up = ledgers[0]
    tasks, threads = asyncio.all_tasks(), set(threading.enumerate())
    with closing(socket.create_server(("127.0.0.1", 0))) as mute:
        silent = f"postgresql://postgres@127.0.0.1:{mute.getsockname()[1]}/none"
        job = up.enqueue_one(new("up", 60.0))
        starting = asyncio.create_task(app.worker(database_urls=(silent, up.url), **PATIENT).__aenter__())
        await until(lambda: ran)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
    assert up.job(job)[:2] == ("pending", 0)
    assert up.value("SELECT stop_reason FROM holdfast.worker") == "stopped, with jobs aborted"
    await until(lambda: up.sessions() == 0)
    assert asyncio.all_tasks() == tasks
    assert not {t for t in set(threading.enumerate()) - threads if not t.name.startswith("asyncio_")}


async def test_one_that_freezes_while_its_suspects_run_apart(ledgers: list[Ledger]) -> None:
    """Nothing else runs beside suspects. The others wait for their end, and not for an answer that does not come."""
    gate, running = asyncio.Event(), asyncio.Event()
    app = Holdfast()

    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    @app.job("wait")
    async def wait(job: Job[None]) -> None:
        running.set()
        await gate.wait()

    up, down = ledgers
    async with (
        Line(down.url) as line,
        app.worker(database_urls=(up.url, line.url), queues={"default": 4}, **PATIENT) as worker,
    ):
        up.enqueue(wait.new())
        await running.wait()
        down.enqueue(act.new())
        with down.conn.transaction():
            suspect = down.enqueue_one(act.new())
            down.do("UPDATE holdfast.job SET suspect = 0 WHERE id = %s", suspect)
        await until(lambda: worker._dispatcher.slots.closed)
        line.freeze()
        gate.set()
        jobs = up.enqueue(*[act.new() for _ in range(10)])
        await until(lambda: all(up.status(job) == "completed" for job in jobs), 20)
        line.thaw()
        await until(lambda: down.status(suspect) == "completed")
