"""One worker, several databases: served in turn, and none harmed by another."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast, Job
from tests.databases import clone
from tests.engine.ledger import Ledger
from tests.engine.pace import PATIENT, QUICK
from tests.engine.trouble import Line, closed
from tests.engine.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast import NewJob
    from tools.postgres import Server


# Real outages in real time: with `make prove`, until they stand any load beside them.
pytestmark = pytest.mark.prove


@pytest.fixture
def ledgers(server: Server, template: str) -> Iterator[list[Ledger]]:
    with ExitStack() as stack:
        urls = [stack.enter_context(clone(server, template)) for _ in range(2)]
        yield [stack.enter_context(Ledger(url)) for url in urls]


def make_app(ran: list[str] | None = None) -> tuple[Holdfast, Callable[..., NewJob[None]]]:
    """Return an application of one kind, and how to make a job of it."""
    app = Holdfast()

    @app.job("act")
    async def act(job: Job[None], where: str, seconds: float = 0.002) -> None:
        if ran is not None:
            ran.append(where)
        await asyncio.sleep(seconds)

    return app, act.new


async def test_they_are_served_fairly(ledgers: list[Ledger]) -> None:
    ran: list[str] = []
    app, new = make_app(ran)
    one, two = ledgers
    one.enqueue(*[new("one") for _ in range(2_000)])
    two.enqueue(*[new("two") for _ in range(200)])
    async with app.worker(database_urls=(one.url, two.url), queues={"default": 4}, **QUICK) as worker:
        await until(lambda: worker.counts.get("job_completed") == 2_200, 30)
        await until(lambda: one.sessions() == two.sessions() == 4, 3)
    assert one.statuses() == {"completed": 2_000}
    assert two.statuses() == {"completed": 200}
    last = len(ran) - 1 - ran[::-1].index("two")
    assert last < 900, "the small one need not wait for the large one"


async def test_no_more_is_held_for_two_databases_than_for_one(ledgers: list[Ledger]) -> None:
    app, new = make_app()
    for ledger in ledgers:
        ledger.enqueue(*[new("x", 30.0) for _ in range(50)])
    async with app.worker(
        database_urls=tuple(ledger.url for ledger in ledgers), queues={"default": 4}, **QUICK
    ) as worker:
        await until(lambda: worker._dispatcher.slots._running_total == 4)
        await asyncio.sleep(0.3)  # to show what does not happen meanwhile
        held = sum(ledger.statuses().get("processing", 0) for ledger in ledgers)
        assert held <= 4 + 4, "concurrency, and what two claims at once may bring too many"


async def test_one_that_is_down_at_the_start(ledgers: list[Ledger]) -> None:
    ran: list[str] = []
    app, new = make_app(ran)
    up, down = ledgers
    async with Line(down.url) as line:
        url = line.url
        await line.refuse()
        jobs = [up.enqueue_one(new("up")), down.enqueue_one(new("down"))]
        async with app.worker(database_urls=(url, up.url), queues={"default": 4}, **PATIENT):
            await until(lambda: up.status(jobs[0]) == "completed", 3)
            assert ran == ["up"]
            await line.open()
            await until(lambda: down.status(jobs[1]) == "completed", 3)
    assert [ledger.value("SELECT stop_reason FROM holdfast.worker") for ledger in ledgers] == ["stopped", "stopped"]


async def test_one_that_does_not_answer_at_the_start(ledgers: list[Ledger]) -> None:
    """It accepts connections and says nothing."""
    app, new = make_app()
    up = ledgers[0]
    with closing(socket.create_server(("127.0.0.1", 0))) as deaf:
        silent = f"postgresql://postgres@127.0.0.1:{deaf.getsockname()[1]}/none"
        job = up.enqueue_one(new("up"))
        begun = time.monotonic()
        async with app.worker(database_urls=(silent, up.url), queues={"default": 4}, **PATIENT):
            await until(lambda: up.status(job) == "completed", 10)
            assert time.monotonic() - begun < 2


async def test_one_that_goes_down_later(ledgers: list[Ledger], server: Server) -> None:
    ran: list[str] = []
    app, new = make_app(ran)
    up, down = ledgers
    async with app.worker(database_urls=(up.url, down.url), queues={"default": 4}, **QUICK):
        job = down.enqueue_one(new("down"))
        await until(lambda: down.status(job) == "completed")
        held = down.enqueue(*[new("down", 20.0) for _ in range(4)])
        await until(lambda: down.statuses().get("processing") == 4)
        down.do('UPDATE holdfast.job SET payload = \'{"where": "down", "seconds": 0}\'')
        with closed(server, down):
            down.terminate_sessions()
            up.enqueue(*[new("up") for _ in range(100)])
            await until(lambda: up.completed() == 100, 5)
        await until(lambda: all(down.status(job) == "completed" for job in held), 5)
    assert up.wasted() == []
    assert [down.job(job).attempt for job in held] == [1] * 4


async def test_a_stop_while_one_is_down(ledgers: list[Ledger]) -> None:
    app, new = make_app()
    up, down = ledgers
    async with Line(down.url) as line:
        url = line.url
        await line.refuse()
        async with app.worker(database_urls=(url, up.url), queues={"default": 4}, **QUICK):
            job = up.enqueue_one(new("up"))
            await until(lambda: up.status(job) == "completed")
            begun = time.monotonic()
        assert time.monotonic() - begun < 2
    assert up.value("SELECT stop_reason FROM holdfast.worker") == "stopped"
