"""Worker Runtime Modes & Outbox Semantics: one tick and exit, its budgets, singletons, shards."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import Holdfast, Job
from holdfast._app.app import application_of
from holdfast._engine.once import run_tick
from tests.engine.test_http_runner import Service, served
from tests.kit import commands
from tests.kit.fleet import SOON, alone, fast
from tests.kit.statement import MODES, SHARDS_ARE_RANGES, Document

if TYPE_CHECKING:
    from holdfast import Counts, Tick
    from tests.kit.ledger import Ledger

doc = Document(MODES)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the application `cycles:app` lies."""
    shutil.copy(Path(__file__).parents[1] / "cli" / "cycles.py", tmp_path / "cycles.py")
    return tmp_path


def outcomes(result: Any) -> dict[str, str]:
    return {ticked.runner: ticked.outcome for ticked in result.runners}


@doc.states("tick mode boots, runs every runner once, and exits")
def test_tick_command(database: str, folder: Path) -> None:
    output = commands.holdfast("tick", "cycles:app", "--json", database=database, cwd=folder)
    assert output.status == 0
    names = [one["runner"] for one in json.loads(output.out)["runners"]]
    assert names[:3] == ["outbox", "first", "second"]
    assert len(names) == len(set(names))


@doc.states("tick is the single code path: a one-shot tick and a background worker call the same runner")
async def test_single_source_of_truth(app: Holdfast) -> None:
    called: list[str] = []
    again = asyncio.Event()

    @app.runner("cycle")
    async def cycle(tick: Tick) -> None:
        called.append(tick.name)
        if len(called) == 2:
            again.set()

    await run_tick(application_of(app, fast(tick_runners=("cycle",))))
    assert called == ["cycle"]
    async with app.worker(tick_runners=("cycle",)), asyncio.timeout(SOON):
        await again.wait()


@doc.states("a runner is told to end when WORKER_TICK_RUNNER_MAX_MS has passed")
async def test_runner_max(app: Holdfast) -> None:
    @app.runner("slow")
    async def slow(tick: Tick) -> Counts:
        await tick.signal.wait()
        return {"told": 1}

    @app.runner("next")
    async def after(tick: Tick) -> Counts:
        return {"done": 1}

    result = await run_tick(
        application_of(
            app, fast(tick_runners=("slow", "next"), tick_runner_max=fast().heartbeat, tick_overall_max=fast().lease)
        )
    )
    assert outcomes(result)["next"] == "completed"
    assert result.seconds < SOON


@doc.states("shards split the work: together they take every job, and each job once", differs=SHARDS_ARE_RANGES)
async def test_shards(app: Holdfast, ledger: Ledger) -> None:
    ran: list[int] = []

    @app.job("sharded")
    async def act(job: Job[Any]) -> None:
        ran.append(job.id)

    ids = ledger.enqueue(*[act.new() for _ in range(40)])
    parts: list[set[int]] = []
    for index in range(2):
        ran.clear()
        await run_tick(application_of(app, fast(tick_runners=("outbox",), shard_index=index, shard_count=2)))
        parts.append(set(ran))
    assert all(parts)
    assert parts[0].isdisjoint(parts[1])
    assert parts[0] | parts[1] == set(ids)


@pytest.mark.parametrize(
    "name",
    [
        doc.case("invoiceReminders is locked as worker:scheduler:invoiceReminders", "invoiceReminders"),
        doc.case("classesBilling is locked as worker:scheduler:classesBilling", "classesBilling"),
    ],
)
async def test_lock_keys(app: Holdfast, name: str) -> None:
    @app.runner(name, singleton=True)
    async def cycle(tick: Tick) -> Counts:
        return {"done": 1}

    settings = fast(tick_runners=alone(name))
    with psycopg.connect(app.url) as other:
        other.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"worker:scheduler:{name}"])
        assert outcomes(await run_tick(application_of(app, settings))) == {name: "skipped"}
    assert outcomes(await run_tick(application_of(app, settings))) == {name: "completed"}


@doc.states("a singleton runner is skipped on the replica that does not get the lock, and runs on one only")
async def test_singleton(app: Holdfast) -> None:
    started, go = asyncio.Event(), asyncio.Event()
    rival = Holdfast(app.url)

    async def cycle(tick: Tick) -> Counts:
        started.set()
        await go.wait()
        return {"done": 1}

    for each in (app, rival):
        each.runner("once", singleton=True)(cycle)
    first = asyncio.create_task(run_tick(application_of(app, fast(tick_runners=alone("once")))))
    async with asyncio.timeout(SOON):
        await started.wait()
    assert outcomes(await run_tick(application_of(rival, fast(tick_runners=alone("once"))))) == {"once": "skipped"}
    go.set()
    assert outcomes(await first) == {"once": "completed"}


@doc.states("outbox consumption is allowed on all replicas at the same time")
async def test_all_replicas(app: Holdfast, ledger: Ledger) -> None:
    both = asyncio.Barrier(2)
    workers: list[Any] = []

    @app.job("replicated")
    async def act(job: Job[Any]) -> None:
        workers.append(job.token)
        await both.wait()

    ledger.enqueue(act.new(), act.new())
    settings = fast(tick_runners=("outbox",), tick_runner_max_items=1)
    async with asyncio.timeout(SOON):
        await asyncio.gather(run_tick(application_of(app, settings)), run_tick(application_of(app, settings)))
    assert len(set(workers)) == 2


@doc.states("internal scheduler endpoints are called with the header x-service-token")
async def test_service_token(app: Holdfast) -> None:
    service = Service()
    app.http_runner("reminders.call", "/internal/reminders")
    with served(service):
        settings = fast(tick_runners=alone("reminders.call"), api_base_url=service.url, api_service_token="abc")  # noqa: S106 - a test's
        result = await run_tick(application_of(app, settings))
    assert outcomes(result) == {"reminders.call": "completed"}
    [(path, headers, _)] = service.asked
    assert path == "/internal/reminders"
    assert headers["x-service-token"] == "abc"
    assert dict(result.runners[0].counts) == {"sent": 3}
