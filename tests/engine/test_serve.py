"""Databases that are added and removed while a worker runs: nothing is lost, and no other database notices."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections import Counter
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import Cron, Databases, Every, Holdfast, HoldfastError, Job, Retry, Tick
from holdfast._engine import pipeline
from holdfast._engine import worker as workers
from holdfast._model import databases_file
from holdfast._store.schema import migrate
from holdfast._telemetry.metrics import DATABASE_ENDED, DATABASE_SERVED
from holdfast.telemetry import instrument
from tests.kit.databases import clone
from tests.kit.ledger import Ledger
from tests.kit.pace import PATIENT, QUICK, ms
from tests.kit.trouble import Line
from tests.kit.waiting import Stopwatch, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast._engine.worker import Worker
    from tools.postgres import Server

SLOTS = {"default": 4}


@pytest.fixture
def ledgers(server: Server, template: str) -> Iterator[list[Ledger]]:
    with ExitStack() as stack:
        urls = [stack.enter_context(clone(server, template)) for _ in range(3)]
        yield [stack.enter_context(Ledger(url)) for url in urls]


def named(*ledgers: Ledger | str) -> Databases:
    """Return databases `a`, `b`, …"""
    urls = [place if isinstance(place, str) else place.url for place in ledgers]
    return Databases(dict(zip("abcdef", urls, strict=False)))


class Shop:
    """An application with a job that counts its runs, and one that waits until it is let go."""

    def __init__(self, databases: Databases) -> None:
        self.app = Holdfast(databases)
        self.ran: Counter[tuple[str, int]] = Counter()
        self.waiting = 0
        self.gate = asyncio.Event()

        @self.app.job("act")
        async def act(job: Job[None]) -> None:
            self.ran[job.database, job.id] += 1
            await asyncio.sleep(0.001)

        @self.app.job("wait")
        async def wait(job: Job[None]) -> None:
            self.waiting += 1
            await self.gate.wait()

        self.act, self.wait = act, wait


def stops(ledger: Ledger) -> list[str | None]:
    return [row[0] for row in ledger.rows("SELECT stop_reason FROM holdfast.worker ORDER BY id")]


def all_done(ledger: Ledger, jobs: int) -> bool:
    return ledger.statuses() == {"completed": jobs}


async def test_one_is_added(ledgers: list[Ledger]) -> None:
    one, two, _ = ledgers
    shop = Shop(named(one))
    for ledger in (one, two):
        ledger.enqueue(*[shop.act.new() for _ in range(20)])
    async with shop.app.worker(queues=SLOTS, **QUICK) as worker:
        await until(lambda: all_done(one, 20))
        assert two.statuses() == {"pending": 20}
        served_before = worker.pipelines[0]
        assert not any(kept.role == "lending" for kept in worker.loops)
        await worker.serve(named(one, two))
        await until(lambda: all_done(two, 20))
        assert worker.pipelines[0] is served_before
        assert [vitals.database for vitals in worker.vitals] == ["a", "b"]
        assert sum(kept.role == "lending" for kept in worker.loops) == 2, "with one database nothing was to be lent"
        await until(lambda: worker.counts["job_completed"] == 40)
    assert set(shop.ran.values()) == {1}
    assert {name for name, _ in shop.ran} == {"a", "b"}
    assert stops(one) == stops(two) == ["stopped"]


async def test_one_is_removed(ledgers: list[Ledger]) -> None:
    """Its running jobs finish and are written, the others are given back, and nothing more is claimed there."""
    one, two, _ = ledgers
    shop = Shop(named(one, two))
    async with shop.app.worker(queues=SLOTS, **PATIENT) as worker:
        two.enqueue(*[shop.wait.new() for _ in range(10)])
        await until(lambda: shop.waiting == 4)
        removing = asyncio.create_task(worker.serve(named(one)))
        await until(lambda: len(worker.pipelines) == 1)
        one.enqueue(shop.act.new())
        await until(lambda: two.statuses() == {"pending": 6, "processing": 4})
        assert one.statuses() == {"pending": 1}, "all slots are taken"
        assert not removing.done()
        shop.gate.set()
        await removing
        assert two.statuses() == {"pending": 6, "completed": 4}
        assert stops(two) == ["stopped"]
        await until(lambda: two.sessions() == 0)
        await until(lambda: all_done(one, 1))
        await until(lambda: worker.counts["job_completed"] == 5)  # what was done there still counts
        assert one.sessions() <= 4
    assert two.wasted() == []
    assert shop.waiting == 4


async def test_changes_under_load_lose_nothing_and_run_nothing_twice(ledgers: list[Ledger]) -> None:
    one, two, three = ledgers
    shop = Shop(named(one, two))
    lists = [(one, two, three), (two, three), (three,), (three, one), (two, one, three)]
    made = 0
    async with shop.app.worker(queues=SLOTS, **QUICK) as worker:
        for databases in lists:
            for ledger in ledgers:
                ledger.enqueue(*[shop.act.new() for _ in range(40)])
            made += 40
            # By name, whichever comes first.
            names = {ledger.url: name for ledger, name in zip(ledgers, "abc", strict=True)}
            await worker.serve(Databases({names[ledger.url]: ledger.url for ledger in databases}))
        await until(lambda: all(all_done(ledger, made) for ledger in ledgers))
        await until(lambda: worker.counts["job_completed"] == 3 * made)
    assert len(shop.ran) == 3 * made
    assert set(shop.ran.values()) == {1}
    assert all(ledger.wasted() == [] for ledger in ledgers)
    assert all(set(stops(ledger)) == {"stopped"} for ledger in ledgers)


async def test_one_that_does_not_answer_is_added_and_removed(ledgers: list[Ledger]) -> None:
    one, two, _ = ledgers
    shop = Shop(named(one))
    with closing(socket.create_server(("127.0.0.1", 0))) as mute:
        silent = f"postgresql://postgres@127.0.0.1:{mute.getsockname()[1]}/none"
        async with Stopwatch() as watch, shop.app.worker(queues=SLOTS, **PATIENT) as worker:
            adding = asyncio.create_task(worker.serve(named(one, silent, two)))
            jobs = [one.enqueue_one(shop.act.new()), two.enqueue_one(shop.act.new())]
            await until(lambda: one.status(jobs[0]) == two.status(jobs[1]) == "completed")
            await adding
            assert watch.seconds < 10
            assert worker.vitals[1].beat is None
            watch.restart()
            await worker.serve(named(one))
            assert watch.seconds < 10
            assert len(worker.vitals) == 1


async def test_one_without_a_schema_is_served_once_it_is_migrated(ledgers: list[Ledger], server: Server) -> None:
    one, shop = ledgers[0], Shop(named(ledgers[0]))
    with clone(server, "template0") as empty:
        async with shop.app.worker(queues=SLOTS, **QUICK) as worker:
            await worker.serve(named(one, empty))
            job = one.enqueue_one(shop.act.new())
            await until(lambda: one.status(job) == "completed")
            with psycopg.connect(empty, autocommit=True) as conn:
                migrate(conn)
            with Ledger(empty) as two:
                job = two.enqueue_one(shop.act.new())
                await until(lambda: two.status(job) == "completed")


@pytest.mark.parametrize("trouble", ["freeze", "refuse"])
async def test_one_that_no_longer_answers_is_removed_in_bounded_time(
    ledgers: list[Ledger], trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one goes on meanwhile, also with the slots of the jobs that hang there."""
    monkeypatch.setattr(pipeline, "FLUSH_SECONDS", 0.5)
    monkeypatch.setattr(pipeline, "STOP_SECONDS", 0.5)
    up, down, _ = ledgers
    shop = Shop(named(up))
    threads = set(threading.enumerate())
    async with Line(down.url) as line, Stopwatch() as watch:
        options = PATIENT | {"shutdown_timeout": ms(500), "reap_interval": ms(300)}
        async with shop.app.worker(queues=SLOTS, **options) as worker:
            await worker.serve(named(up, line.url))
            down.enqueue(*[shop.wait.new() for _ in range(4)])
            await until(lambda: shop.waiting == 4)
            getattr(line, trouble)()
            watch.restart()
            removing = asyncio.create_task(worker.serve(named(up)))
            up.enqueue(*[shop.act.new() for _ in range(30)])
            await until(lambda: all_done(up, 30))
            await removing
            assert watch.seconds < 0.5 + pipeline.LAST_SECONDS + 5
            assert len(worker.pipelines) == 1
            assert worker._dispatcher.slots._running_total == 0
            assert not [kept for kept in worker.loops if not kept.running]
            assert down.statuses() == {"processing": 4}, "they are left to the reaper"
            line.thaw() if trouble == "freeze" else line.open()
            job = down.enqueue_one(shop.act.new())
            await worker.serve(named(up, line.url))
            await until(lambda: down.status(job) == "completed")
        assert up.wasted() == []
    assert not {t for t in set(threading.enumerate()) - threads if not t.name.startswith("asyncio_")}


async def test_a_handler_that_ignores_its_signal_keeps_its_slot_and_nothing_else(ledgers: list[Ledger]) -> None:
    one, two, _ = ledgers
    shop = Shop(named(one, two))
    started, go = asyncio.Event(), asyncio.Event()

    @shop.app.job("stubborn")
    async def stubborn(job: Job[None]) -> None:
        while not go.is_set():
            started.set()
            with suppress(asyncio.CancelledError):
                await go.wait()

    async with shop.app.worker(queues={"default": 2}, **QUICK | {"shutdown_timeout": ms(50)}) as worker:
        two.enqueue(stubborn.new())
        await started.wait()
        await worker.serve(named(one))
        assert stops(two) == ["stopped, with handlers that ignored it"]
        assert worker._dispatcher.slots._running_total == 1
        one.enqueue(*[shop.act.new() for _ in range(10)])
        await until(lambda: all_done(one, 10))
        go.set()
        await until(lambda: worker._dispatcher.slots._running_total == 0)
    assert two.statuses() == {"processing": 1}, "its lease runs out"


async def test_one_is_removed_and_added_again_before_it_has_stopped(ledgers: list[Ledger]) -> None:
    one, two, _ = ledgers
    shop = Shop(named(one, two))
    async with shop.app.worker(queues=SLOTS, **PATIENT) as worker:
        waits = two.enqueue_one(shop.wait.new())
        await until(lambda: shop.waiting == 1)
        removing = asyncio.create_task(worker.serve(named(one)))
        await until(lambda: len(worker.pipelines) == 1)
        await worker.serve(named(one, two))
        assert not removing.done()
        job = two.enqueue_one(shop.act.new())
        await until(lambda: two.status(job) == "completed")
        assert stops(two) == [None, None], "for a while this worker is there twice"
        shop.gate.set()
        await removing
        assert two.status(waits) == "completed"
        assert stops(two) == ["stopped", None]
        job = two.enqueue_one(shop.act.new())
        await until(lambda: two.status(job) == "completed")
        await until(lambda: worker.counts["job_completed"] == 3)
    assert two.wasted() == []


async def test_another_address_under_the_same_name(ledgers: list[Ledger]) -> None:
    one, two, _ = ledgers
    shop = Shop(named(one))
    async with shop.app.worker(queues=SLOTS, **QUICK) as worker:
        await worker.serve(named(two))
        job = two.enqueue_one(shop.act.new())
        await until(lambda: two.status(job) == "completed")
        assert stops(one) == ["stopped"]
        await worker.serve(named(f"{two.url}?keepalives=1"))
        job = two.enqueue_one(shop.act.new())
        await until(lambda: two.status(job) == "completed")
        assert stops(two) == ["stopped", None]


async def test_two_calls_at_once_end_with_the_later_list(ledgers: list[Ledger]) -> None:
    one, two, three = ledgers
    shop = Shop(named(one))
    async with shop.app.worker(queues=SLOTS, **QUICK) as worker:
        await asyncio.gather(worker.serve(named(two)), worker.serve(named(three, one)), worker.serve(named(one, three)))
        assert [line.url for line in worker.pipelines] == [one.url, three.url]
        jobs = [ledger.enqueue_one(shop.act.new()) for ledger in ledgers]
        await until(lambda: one.status(jobs[0]) == three.status(jobs[2]) == "completed")
        await until(lambda: two.sessions() == 0)
        assert two.status(jobs[1]) == "pending"


async def test_a_call_that_is_cancelled_is_carried_out(ledgers: list[Ledger]) -> None:
    one, two, _ = ledgers
    shop = Shop(named(one))
    async with shop.app.worker(queues=SLOTS, **QUICK) as worker:
        with two.conn.transaction():
            two.do("LOCK TABLE holdfast.worker IN SHARE MODE")  # the registration waits
            serving = asyncio.create_task(worker.serve(named(one, two)))
            await until(lambda: len(worker.pipelines) == 2)
            serving.cancel()
            await asyncio.wait({serving})
        job = two.enqueue_one(shop.act.new())
        await until(lambda: two.status(job) == "completed")


@pytest.mark.parametrize("at_once", [False, True])
async def test_a_stop_while_one_is_added_and_one_removed(ledgers: list[Ledger], at_once: bool) -> None:
    one, two, _ = ledgers
    shop = Shop(named(one))
    tasks = asyncio.all_tasks()
    with closing(socket.create_server(("127.0.0.1", 0))) as mute:
        silent = f"postgresql://postgres@127.0.0.1:{mute.getsockname()[1]}/none"
        async with Stopwatch() as watch, shop.app.worker(queues=SLOTS, **PATIENT) as worker:
            job = one.enqueue_one(shop.wait.new())
            await until(lambda: shop.waiting == 1)
            serving = asyncio.create_task(worker.serve(named(two, silent)))
            await until(lambda: len(worker.pipelines) == 2 and worker.pipelines[0].worker)
            watch.restart()
            stopping = asyncio.create_task(worker.stop(at_once=at_once))
            await until(lambda: worker.stopping)
            await worker.serve(named(one))
            assert len(worker.pipelines) == 2, "a worker that stops serves nothing new"
            if not at_once:
                shop.gate.set()
            await stopping
            await serving
        assert watch.seconds < 10
    assert one.job(job)[:2] == (("pending", 0) if at_once else ("completed", 1))
    assert stops(two) == ["stopped"]
    assert one.sessions() == two.sessions() == 0
    await until(lambda: asyncio.all_tasks() == tasks)


async def test_the_runners_of_the_application_follow_the_first(ledgers: list[Ledger]) -> None:
    one, two, _ = ledgers
    shop = Shop(named(one, two))
    ran = asyncio.Event()

    @shop.app.runner("mine", every=Every(ms(50)))
    async def mine(tick: Tick) -> None:
        ran.set()

    shop.app.schedule("often", shop.act.new(), every=Cron("* * * * *"))
    schedules = "SELECT name FROM holdfast.schedule WHERE name IN ('mine', 'often') ORDER BY name"
    both = [("mine",), ("often",)]
    async with shop.app.worker(queues=SLOTS, **QUICK) as worker:
        await until(lambda: one.rows(schedules) == both)
        assert two.rows(schedules) == []
        for first, databases in ((two, {"b": two.url, "a": one.url}), (one, {"a": one.url})):
            await worker.serve(Databases(databases))
            await until(lambda first=first: first.rows(schedules) == both)  # type: ignore[misc] # bound
            ran.clear()
            await asyncio.wait_for(ran.wait(), 30)
        assert [line.name for line in worker.pipelines] == ["a"]


async def test_logs_listeners_hooks_and_metrics_name_the_database(
    ledgers: list[Ledger], caplog: pytest.LogCaptureFixture
) -> None:
    """With one database nothing is added to them, and a counter does not shrink when one is removed."""
    one, two, _ = ledgers
    app = Holdfast(named(one))
    received: list[tuple[str, str | None]] = []
    failed: list[str] = []
    app.listeners.append(lambda transition: received.append((transition.name, transition.details.get("database"))))
    app.on_failure(lambda attempt: failed.append(attempt.database))
    numbers = instrument(app).series.numbers

    @app.job("fail", retry=Retry(max_attempts=1))
    async def fail(job: Job[None]) -> None:
        raise ValueError(job.database)

    def ended(worker: Worker) -> dict[str, float]:
        return {labels[1]: count for labels, count in numbers(DATABASE_ENDED).items() if labels[0] == worker.id}

    async with app.worker(queues=SLOTS, **QUICK) as worker:
        one.enqueue(fail.new())
        await until(lambda: failed == [""])
        assert ended(worker) == {}
        assert {place for _, place in received} == {None}
        await worker.serve(named(one, two))
        two.enqueue(fail.new(), fail.new())
        await until(lambda: failed == ["", "b", "b"])
        assert ("database_added", "b") in received
        assert ("job_failed", "b") in received
        await worker.serve(named(one))
        assert received[-1] == ("database_removed", "b")
        assert ended(worker) == {"b": 2.0}
        assert numbers(DATABASE_SERVED) == {(worker.id, "b"): 0.0}
    lines = [record.getMessage() for record in caplog.records if "a job failed" in record.msg]
    assert ["database=b" in line for line in lines] == [False, True, True]


async def test_what_cannot_be_served(ledgers: list[Ledger]) -> None:
    shop = Shop(named(ledgers[0]))
    worker = shop.app.worker(**QUICK)
    with pytest.raises(HoldfastError, match="the worker has not started"):
        await worker.serve(named(ledgers[1]))
    async with worker:
        given: Any = {"a": ledgers[1].url}
        with pytest.raises(TypeError, match="expected Databases, got dict"):
            await worker.serve(given)


# The file of databases.


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "FOLLOW_SECONDS", 0.05)
    monkeypatch.setattr(databases_file, "SETTLE_SECONDS", 0.05)
    monkeypatch.setattr(workers, "SETTLE_SECONDS", 0.05)


def write(path: Path, databases: Databases) -> None:
    path.write_text("".join(f'{name} = "{url}"\n' for name, url in databases.items()))


def names(worker: Worker) -> list[str]:
    return [line.name for line in worker.pipelines]


@pytest.mark.usefixtures("often")
async def test_a_worker_follows_the_file(
    ledgers: list[Ledger], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one, two, three = ledgers
    path = tmp_path / "databases.toml"
    write(path, named(one))
    monkeypatch.setenv("HOLDFAST_DATABASES_FILE", str(path))
    app = Holdfast()

    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    async with app.worker(queues=SLOTS, **QUICK) as worker:
        write(path, named(one, two))
        await until(lambda: names(worker) == ["a", "b"])
        job = two.enqueue_one(act.new())
        await until(lambda: two.status(job) == "completed")
        for broken in ('a = "', "", 'a = "mysql://hunter2@x/y"'):
            logged = len(caplog.records)
            path.write_text(broken)
            await until(lambda logged=logged: "cannot be used" in " ".join(r.message for r in caplog.records[logged:]))  # type: ignore[misc] # bound
            assert "hunter2" not in caplog.text
        path.unlink()
        await until(lambda: "No such file" in " ".join(str(vars(r).get("why")) for r in caplog.records))
        await asyncio.sleep(0.3)
        assert names(worker) == ["a", "b"]
        assert sum("cannot be used" in r.message for r in caplog.records) == 4, "once for each change"
        write(path, named(one, two, three))
        await until(lambda: names(worker) == ["a", "b", "c"])
        assert app.databases.names in {("a",), ("a", "b", "c")}
        await until(lambda: app.databases.names == ("a", "b", "c"))


@pytest.mark.usefixtures("often")
async def test_the_file_is_a_link_that_is_replaced(
    ledgers: list[Ledger], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So does Kubernetes: `databases.toml` leads to `..data/databases.toml`, and `..data` is swapped."""
    one, two, _ = ledgers
    for version, databases in (("1", named(one)), ("2", named(two))):
        (tmp_path / version).mkdir()
        write(tmp_path / version / "databases.toml", databases)
        os.utime(tmp_path / version / "databases.toml", (1, 1))
    (tmp_path / "..data").symlink_to("1")
    (tmp_path / "databases.toml").symlink_to("..data/databases.toml")
    monkeypatch.setenv("HOLDFAST_DATABASES_FILE", str(tmp_path / "databases.toml"))
    async with Shop(named(one)).app.worker(**QUICK) as own, Holdfast().worker(**QUICK) as worker:
        (tmp_path / "..next").symlink_to("2")
        (tmp_path / "..next").replace(tmp_path / "..data")
        await until(lambda: [line.url for line in worker.pipelines] == [two.url])
        assert [line.url for line in own.pipelines] == [one.url], "it names its databases itself"
