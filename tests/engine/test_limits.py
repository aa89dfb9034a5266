"""Limits with real workers: declared when they register, kept by all of them together, and followed while they run."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from holdfast import Databases, Event, Holdfast, Job, Limit
from holdfast._app.app import application_of
from holdfast._drivers import run_sync
from holdfast._engine.once import run_tick
from holdfast._store.event import publish_events
from holdfast._store.limit import list_limits
from tests.kit.databases import clone
from tests.kit.fleet import MS, fast
from tests.kit.ledger import Ledger
from tests.kit.limits import mend
from tests.kit.waiting import until

if TYPE_CHECKING:
    from holdfast._store.limit import LimitLine
    from tests.kit.workers import Connect
    from tools.postgres import Server


def lines(connect: Connect) -> dict[str, LimitLine]:
    return {line.name: line for line in run_sync(connect(), list_limits())}


async def test_two_workers_keep_one_limit(app: Holdfast, ledger: Ledger, connect: Connect) -> None:
    running: dict[int, set[int]] = {}
    most: dict[int, int] = {}

    @app.job("render", limits=[Limit(concurrency=2, by="customer")])
    async def render(job: Job[None], customer: int) -> None:
        mine = running.setdefault(customer, set())
        mine.add(job.id)
        most[customer] = max(most.get(customer, 0), len(mine))
        await asyncio.sleep(0.01)
        mine.discard(job.id)

    ledger.enqueue(*[render.new(n % 3) for n in range(30)])
    async with app.worker(), app.worker():
        await until(lambda: ledger.completed() == 30)
        (line,) = lines(connect).values()
    assert most == dict.fromkeys(range(3), 2)
    assert (line.name, line.concurrency, line.parameters) == ("render/customer", 2, ["customer"])
    assert mend(connect()) == 0


async def test_the_jobs_of_events_keep_a_limit(app: Holdfast, connect: Connect) -> None:
    sold = app.event("shop.sold", dict)
    app.limit("partner", concurrency=1)
    running: set[int] = set()
    at_once: list[int] = []

    @app.on(sold, name="book", start="beginning", limits=["partner"])
    async def book(job: Job[None], event: Event[dict[str, int]]) -> None:
        running.add(job.id)
        at_once.append(len(running))
        await asyncio.sleep(0.001)
        running.discard(job.id)

    conn = connect()
    run_sync(conn, publish_events([sold.new({"n": n}) for n in range(8)]))
    async with app.worker(poll_interval=0.05), app.worker(poll_interval=0.05):
        await until(lambda: len(at_once) == 8)
    assert max(at_once) == 1
    assert mend(connect()) == 0


async def test_two_workers_let_tenants_take_turns(app: Holdfast, ledger: Ledger) -> None:
    """Ten jobs beside a backlog of five hundred start in the first rounds, and one wakes an idle worker."""
    order: list[str] = []

    @app.job("row", tenant="account")
    async def row(job: Job[None], account: str) -> None:
        order.append(account)

    ledger.enqueue(*[row.new("big") for _ in range(500)], *[row.new(f"t{n % 5}") for n in range(10)])
    async with app.worker(concurrency=4), app.worker(concurrency=4, poll_interval=60):
        await until(lambda: ledger.completed() == 510)
        ledger.enqueue(row.new("late"))
        await until(lambda: ledger.completed() == 511)
    assert max(place for place, account in enumerate(order[:510]) if account != "big") < 400
    assert order[-1] == "late"


async def test_jobs_wake_an_idle_worker_one_after_the_other(app: Holdfast, ledger: Ledger) -> None:
    """An ending promotes the next job and wakes a worker for it, which need not poll."""

    @app.job("act", limits=[Limit(concurrency=1)])
    async def act(job: Job[None]) -> None: ...

    async with app.worker(poll_interval=60):
        ledger.enqueue(*[act.new() for _ in range(20)])
        since = time.monotonic()
        await until(lambda: ledger.completed() == 20)
        assert time.monotonic() - since < 20


async def test_a_worker_wakes_for_the_next_token(app: Holdfast, ledger: Ledger) -> None:
    starts: list[float] = []

    @app.job("act", limits=[Limit(rate="20/s", burst=2)])
    async def act(job: Job[None]) -> None:
        starts.append(time.monotonic())

    async with app.worker(poll_interval=60):
        ledger.enqueue(*[act.new() for _ in range(12)])
        await until(lambda: ledger.completed() == 12)
    # The claims keep to the rate exactly; a start comes a moment after its claim.
    assert starts[-1] - starts[0] > 10 / 20 - 0.1
    assert starts[-1] - starts[0] < 20


async def test_a_worker_whose_code_allows_more_lets_jobs_go_on(database: str, ledger: Ledger, connect: Connect) -> None:
    first, second = Holdfast(database), Holdfast(database)
    release = asyncio.Event()

    @first.job("act", limits=[Limit(concurrency=1)])
    async def narrow(job: Job[None]) -> None:
        await release.wait()

    @second.job("act", limits=[Limit(concurrency=3)])
    async def wide(job: Job[None]) -> None:
        await release.wait()

    async with first.worker():
        ledger.enqueue(*[narrow.new() for _ in range(4)])
        await until(lambda: ledger.statuses().get("blocked") == 3)
        async with second.worker():
            await until(lambda: ledger.statuses().get("processing") == 3)
            assert lines(connect)["act"].concurrency == 3
            release.set()
            await until(lambda: ledger.completed() == 4)


async def test_a_limit_holds_in_each_of_several_databases(server: Server, template: str) -> None:
    with clone(server, template) as first, clone(server, template) as second, Ledger(first) as eu, Ledger(second) as us:
        ledgers = [eu, us]
        app = Holdfast(Databases({"eu": first, "us": second}))
        release = asyncio.Event()

        @app.job("act", limits=[Limit(concurrency=1)])
        async def act(job: Job[None]) -> None:
            await release.wait()

        for ledger in ledgers:
            ledger.enqueue(*[act.new() for _ in range(3)])
        async with app.worker():
            await until(lambda: [ledger.statuses() for ledger in ledgers] == [{"processing": 1, "blocked": 2}] * 2)
            release.set()
            await until(lambda: [ledger.completed() for ledger in ledgers] == [3, 3])


async def test_an_application_without_limits_declares_none(app: Holdfast, ledger: Ledger, connect: Connect) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    async with app.worker():
        ledger.enqueue(act.new())
        await until(lambda: ledger.completed() == 1)
    assert lines(connect) == {}


async def test_a_one_shot_tick_keeps_to_a_limit_and_runs_all(app: Holdfast, ledger: Ledger) -> None:
    running: set[int] = set()
    most: list[int] = []

    @app.job("act", limits=[Limit(concurrency=2)])
    async def act(job: Job[None]) -> None:
        running.add(job.id)
        most.append(len(running))
        await asyncio.sleep(0.005)
        running.discard(job.id)

    ledger.enqueue(*[act.new() for _ in range(9)])
    await run_tick(application_of(app, fast(tick_runners=("outbox",), lease=10_000 * MS, heartbeat=1_000 * MS)))
    assert ledger.completed() == 9
    assert max(most) == 2
