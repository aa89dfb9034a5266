"""Every loop and thread of a worker is kept running: one that ends is in the log, and another goes on in its place."""

from __future__ import annotations

import ast
import asyncio
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, get_args

import psycopg
import pytest

from holdfast import Every, Retry
from holdfast._engine import keeper as module
from holdfast._engine.keeper import MOST_ENDS, Keeper, Kept, Role, Turn
from tests.kit.databases import clone
from tests.kit.pace import QUICK
from tests.kit.trouble import Line, refused
from tests.kit.waiting import until
from tests.relay.ledger import Ledger as Sink

if TYPE_CHECKING:
    import logging
    from collections.abc import Iterator

    from holdfast import Holdfast, Job, Tick
    from holdfast._engine.report.hook import FailedAttempt
    from holdfast._engine.worker import Worker
    from tests.kit.ledger import Ledger
    from tools.postgres import Server

ROLES: tuple[Role, ...] = get_args(Role)
# Those that a test of their own ends: the start of a worker, below; and what is not of a worker with a test's sink.
APART = {
    "start": "test_a_start_that_ends_is_tried_again",
    "sink connection": "tests/relay/sinks/test_session.py",
    "probe": "tests/telemetry/test_probe.py",
    "probe turn": "tests/telemetry/test_probe.py",
    "process": "tests/engine/test_processes.py",
}
HEARTBEAT = 2.0
ENDED = "a loop of the worker ended"

# What starts tasks and threads without the keeper, and who notices their end instead.
_BRIEF = "awaited by the one attempt, tick or page that it belongs to"
ELSEWHERE = {
    "_engine/keeper.py": "the keeper itself",
    "_engine/jobs/dispatch.py": "attempts: how one ends is its outcome",
    "_engine/jobs/executor.py": _BRIEF,
    "_engine/jobs/journal.py": "the record of one step, which its attempt awaits before it ends",
    "_engine/jobs/suspension.py": "waits until the tasks of one handler are idle, and ends with its attempt",
    "_engine/jobs/recorder.py": "writes the steps that wait; if it is ended, their attempts record them one by one",
    "_engine/jobs/threads.py": "attempts: the same",
    "_engine/jobs/child.py": "in a process of handlers: ends it with its worker",
    "_engine/once.py": "the runners of one tick, awaited by it",
    "_engine/link.py": "gives up one statement, within a moment, whatever becomes of it",
    "_engine/runners/ticker.py": _BRIEF,
    "_engine/runners/schedules.py": _BRIEF,
    "_engine/runners/database.py": "the heartbeat of a one-shot tick, which ends with it",
    "_engine/pipeline.py": "the start and the stop of one database, awaited by who asked for them",
    "_engine/registration.py": "a registration anew, which the next heartbeat asks for again",
    "_engine/jobs/lending.py": "one question to a silent database, which the next look asks again",
    "_engine/jobs/isolation.py": "watches one session of suspects, and ends with it",
    "_engine/served.py": "removals of databases and moves of runners, awaited by who asked for them, or logged",
    "_engine/wake/chains.py": "belongs to those who wait for a chain, who start another when it ends",
    "_engine/wake/late.py": "one lookup, awaited by the callers that give up",
    "_engine/wake/broker.py": "a group within the listener's loop, which ends with any of them",
    "_relay/consumer.py": _BRIEF,
    "_relay/partition.py": _BRIEF,
    "_relay/publisher.py": _BRIEF,
    "_relay/sinks/session.py": "awaited by the kept connection that they belong to",
    "_cli/demo.py": "the customers of the demo's shop, who leave when it closes",
    "_cli/together.py": "the dashboard beside a worker, awaited when either ends",
    "_cli/reload.py": "waits for the end of one process of the application, and reports it",
    "_engine/process.py": "guards the end of a process, and ends with it",
    "_cli/tick.py": "the one tick of the process, awaited",
    "_cli/top.py": "ends with the terminal",
    "_engine/foreground.py": "the signals and the stop, awaited",
}


def _starts(tree: ast.AST) -> bool:
    names = {"create_task", "ensure_future", "Thread", "TaskGroup", "to_thread", "Task", "run_in_executor"}
    return any(
        isinstance(node, ast.Call)
        and (node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")) in names
        for node in ast.walk(tree)
    )


def test_nothing_else_starts_a_loop_or_a_thread() -> None:
    """A new one must be given to the keeper, or be named above with a reason."""
    package = Path(module.__file__).parents[1]
    found = {
        str(path.relative_to(package))
        for floor in ("_engine", "_relay", "_store", "_telemetry", "_cli")
        for path in (package / floor).rglob("*.py")
        if _starts(ast.parse(path.read_text()))
    }
    assert found == set(ELSEWHERE)


def test_every_role_is_given_to_some_loop() -> None:
    """Read from the code, so that a new role cannot be left untested."""
    package = Path(module.__file__).parents[1]
    started: set[str] = set()
    for path in (path for floor in ("_engine", "_relay", "_cli") for path in (package / floor).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if called in {"start", "start_thread", "keep"}:
                    started.add(str(node.args[0].value))
    assert started == set(ROLES)


TRANSACTIONS = """
    SELECT datname, state, backend_xid::text, backend_xmin::text, wait_event, xact_start::text, left(query, 100)
    FROM pg_stat_activity WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid() LIMIT 20"""


class Load:
    """An application in which every loop has something to do."""

    def __init__(self, app: Holdfast, ledger: Ledger) -> None:
        self.app = app
        self.ledger = ledger
        self.failed: list[int] = []
        self.ticks = 0
        self.sink = Sink()
        self.published: list[int] = []

        @app.job("act")
        async def act(job: Job[None], fails: bool = False) -> None:
            job.progress(0.5)
            await asyncio.sleep(0.01)
            if fails:
                raise RuntimeError("it fails")

        self.act = act
        self.sold = app.event("shop.sold", dict)
        app.relay("out", self.sold, to=self.sink, start="beginning", lease=timedelta(seconds=4))

        @app.on(self.sold, name="book")
        async def book(job: Job[None], event: object) -> None: ...

        @app.on_failure
        async def note(failed: FailedAttempt) -> None:
            self.failed.append(failed.job_id)

        @app.runner("tidy", every=Every(timedelta(milliseconds=200)))
        async def tidy(tick: Tick) -> None:
            self.ticks += 1

    def __enter__(self) -> Self:
        self._task = asyncio.create_task(self._produce())
        return self

    def __exit__(self, *_: object) -> None:
        self._task.cancel()

    async def _produce(self) -> None:
        while True:
            self.ledger.enqueue(*[self.act.new() for _ in range(5)], self.act.new(fails=True))
            await self.publish()
            await asyncio.sleep(0.02)

    async def publish(self) -> None:
        async with await psycopg.AsyncConnection.connect(self.ledger.url, autocommit=True) as conn:
            number = len(self.published)
            await self.app.publish(conn, self.sold.new({"n": number}, key="k"))
            self.published.append(number)

    async def ended(self) -> None:
        """Return when every job has ended and every event was relayed."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await until(lambda: {*self.ledger.statuses()} <= {"completed", "failed"})
        try:
            await until(lambda: {*self.published} <= {*self.sink.taken})
        except AssertionError as exc:
            # An event is relayed when every transaction that began before it has ended.
            exc.add_note(f"missing: {sorted({*self.published} - {*self.sink.taken})}")
            exc.add_note(f"subscriptions: {self.ledger.rows('SELECT * FROM holdfast.position')}")
            exc.add_note(f"transactions: {self.ledger.rows(TRANSACTIONS)}")
            raise


@pytest.fixture
def load(app: Holdfast, ledger: Ledger) -> Load:
    return Load(app, ledger)


def logged(caplog: pytest.LogCaptureFixture, name: str) -> list[logging.LogRecord]:
    return [r for r in caplog.records if r.message.startswith(ENDED) and getattr(r, "loop", "") == name]


def of(worker: Worker, role: Role) -> Kept | None:
    return next((kept for kept in worker.loops if kept.role == role and kept.running), None)


async def running(worker: Worker, role: Role) -> Kept:
    await until(lambda: of(worker, role) is not None)
    kept = of(worker, role)
    assert kept is not None
    return kept


@pytest.fixture
def options(role: Role, load: Load, server: Server, template: str, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Return the options of a worker that has such a loop: slots are lent where several databases share them."""
    if role not in {"lending", "databases file"}:
        yield QUICK
        return
    load.app.url = None
    if role == "databases file":
        file = tmp_path / "databases.toml"
        file.write_text(f'shop = "{load.ledger.url}"')
        yield {"databases_file": str(file), **QUICK}
        return
    with clone(server, template) as other:
        yield {"database_urls": (load.ledger.url, other), **QUICK}


# Every day each of them ends by an error, and a task and a thread by an exit; the others in `make prove`.
STRUCK = [role for role in ROLES if role not in APART]
STRUCK_OTHERWISE = [
    pytest.param(role, marks=() if role in {"claimer", "heartbeat"} else pytest.mark.prove) for role in STRUCK
]


@pytest.mark.nightly(daily=["claimer-RuntimeError"])
@pytest.mark.parametrize(
    ("role", "kind"),
    [
        *((role, RuntimeError) for role in STRUCK),
        *(pytest.param(*role.values, SystemExit, marks=role.marks) for role in STRUCK_OTHERWISE),
    ],
)
async def test_each_loop_that_ends_is_logged_and_goes_on(
    load: Load, role: Role, options: dict[str, Any], kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    error, retry = kind("struck"), Retry(max_attempts=2, base=timedelta(0), jitter=timedelta(0))
    async with load.app.worker(retry=retry, **options) as worker:
        with load:
            for _ in range(3):
                kept = await running(worker, role)
                before, struck = len(logged(caplog, kept.name)), time.time()
                kept.strike(error)
                await until(lambda: len(logged(caplog, kept.name)) > before)  # noqa: B023 - called here
                record = logged(caplog, kept.name)[-1]
                assert record.created - struck <= HEARTBEAT, "noticed within a heartbeat"
                assert record.exc_info is not None
                assert record.exc_info[1] is error
            await running(worker, role)
            await until(lambda: len(load.failed) > 0 and load.ticks > 0)
            await load.ended()
        await until(lambda: worker.pipelines[0].held == {})
        assert not worker.broken.is_set()
    assert worker.counts.get("job_reaped", 0) == 0, "nothing had to wait for a lease to end"


@pytest.mark.nightly(daily=["claimer"])
@pytest.mark.parametrize("role", [role for role in STRUCK_OTHERWISE if role.values != ("heartbeat",)])
async def test_a_loop_cancelled_from_outside_goes_on(
    load: Load, role: Role, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async with load.app.worker(**options) as worker:
        with load:
            kept = await running(worker, role)
            task = kept.task
            assert task is not None
            task.cancel()
            await until(lambda: logged(caplog, kept.name))
            await until(lambda: (found := of(worker, role)) is not None and found.task is not task)
            await load.ended()


async def test_a_start_that_ends_is_tried_again(
    app: Holdfast, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    async with Line(ledger.url) as line:
        app.url = line.url
        with refused(line):
            worker = app.worker(**QUICK)
            await worker.__aenter__()
            kept = await running(worker, "start")
            kept.strike(RuntimeError("struck"))
            await until(lambda: logged(caplog, "start"))
        job = ledger.enqueue_one(act.new())
        await until(lambda: ledger.status(job) == "completed")
        await worker.__aexit__(None, None, None)


async def test_a_finisher_that_ends_while_it_writes_loses_no_ending(app: Holdfast, ledger: Ledger) -> None:
    gate = asyncio.Event()

    @app.job("act")
    async def act(job: Job[None]) -> None:
        await gate.wait()

    async with app.worker(queues={"default": 50}, **QUICK) as worker:
        jobs = ledger.enqueue(*[act.new() for _ in range(50)])
        await until(lambda: ledger.statuses() == {"processing": 50})
        finisher = await running(worker, "finisher")
        with ledger.conn.transaction():
            ledger.do("SELECT FROM holdfast.job WHERE id = %s FOR UPDATE", jobs[7])
            gate.set()
            await until(lambda: worker.vitals[0].unwritten > 0.05)
            finisher.strike(RuntimeError("struck"))
            await until(lambda: finisher.ends == 1)
        await until(lambda: ledger.statuses() == {"completed": 50})
        await until(lambda: worker.vitals[0].unwritten == 0)
        await until(lambda: worker.pipelines[0].held == {})


async def test_a_loop_that_ends_again_and_again_breaks_the_worker(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "backoff", lambda _: 0.0)
    broken = asyncio.Event()
    keeper = Keeper("w", broken)

    async def fail(turn: Turn) -> None:
        raise ValueError("never")

    kept = keeper.start("finisher", fail)
    await until(lambda: kept.ends > MOST_ENDS)
    assert broken.is_set()
    assert kept.vitals.broken
    assert [r.levelname for r in caplog.records].count("CRITICAL") == 1
    await keeper.stop()
    assert keeper.loops == []


async def test_a_thread_that_ends_again_and_again_breaks_the_worker(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "backoff", lambda _: 0.0)
    broken = asyncio.Event()
    keeper = Keeper("w", broken)

    def fail(turn: Turn) -> None:
        raise SystemExit

    kept = keeper.start_thread("heartbeat", fail)
    await until(lambda: kept.ends > MOST_ENDS)
    kept.stop()
    await until(lambda: kept.done)
    assert broken.is_set()
    assert [r.levelname for r in caplog.records].count("CRITICAL") == 1
    assert keeper.loops == []


async def test_a_loop_that_returns_has_ended_for_good() -> None:
    keeper = Keeper("w")

    async def once(turn: Turn) -> None: ...

    kept = keeper.start("claimer", once)
    assert await kept.wait(5)
    assert (kept.ends, keeper.loops) == (0, [])


async def test_it_knows_when_a_loop_last_turned() -> None:
    keeper, rests = Keeper("w"), asyncio.Queue[float]()
    turned = asyncio.Event()

    async def loop(turn: Turn) -> None:
        while True:
            turn(await rests.get())
            turned.set()

    kept = keeper.start("reaper", loop)
    for rest, late in ((60.0, False), (float("inf"), False), (0.0, True)):
        turned.clear()
        rests.put_nowait(rest)
        await turned.wait()
        await asyncio.sleep(0.05)
        assert kept.vitals.turned >= 0.05
        assert (kept.vitals.late > 0) is late
    await keeper.stop()
