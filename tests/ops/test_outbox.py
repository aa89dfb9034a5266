"""The two endpoints that a seed fixes: their fields, exactly."""

from __future__ import annotations

import asyncio
import os
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock

import psycopg
import pytest

from holdfast import Holdfast, Job, Retry
from holdfast._engine.registration import shown
from holdfast._model.settings import Settings
from holdfast._ops import outbox as outbox_module
from holdfast._ops.caller import RequestRefused
from holdfast.ops import operations
from tests.kit.access import PATIENT, make_token
from tests.kit.asking import Asked, ask, bearer
from tests.kit.databases import clone
from tests.kit.shop import enqueue, make_app
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.applications import Starlette

    from tools.postgres import Server

QUEUE = [
    "total",
    "due_now",
    "oldest_pending_age_seconds",
    "stuck_processing",
    "pending",
    "processing",
    "sent",
    "failed",
]
RUNTIME = [
    "is_running",
    "ticks_total",
    "processed_total",
    "retried_total",
    "dead_letter_total",
    "recovered_stuck_total",
    "last_error",
]
CONFIG = ["poll_ms", "batch_size", "max_attempts", "processing_timeout_ms", "retry_base_ms", "retry_max_ms"]
SUMMARY = ["processed", "completed", "retried", "failed", "recovered", "lost", "duration_ms"]


@pytest.fixture
def app(database: str) -> Holdfast:
    return make_app(database)


@pytest.fixture
def developer(database: str) -> str:
    return make_token(database, "developer", name="developer ann")


@pytest.fixture
async def site(app: Holdfast) -> AsyncIterator[Starlette]:
    site = operations(app, timeout=PATIENT)
    yield site
    await site.state.operations.close()


async def stats(site: Starlette, token: str) -> Any:
    answered = await ask(site, Asked("GET", "/outbox/stats", headers=bearer(token)))
    assert answered.status == 200, answered
    return answered.json


async def run_once(site: Starlette, token: str) -> Any:
    answered = await ask(site, Asked("POST", "/outbox/run-once", headers=bearer(token)))
    assert answered.status == 200, answered
    return answered.json["summary"]


async def test_the_stats_have_the_fields_of_the_seed(site: Starlette, app: Holdfast, developer: str) -> None:
    await enqueue(app, "mail.send", "a@example.org")
    await enqueue(app, "mail.send", "b@example.org", delay=timedelta(days=1))
    reply = await stats(site, developer)
    assert list(reply) == ["generated_at", "queue", "runtime", "config"]
    assert [list(reply[part]) for part in ("queue", "runtime", "config")] == [QUEUE, RUNTIME, CONFIG]
    assert datetime.fromisoformat(reply["generated_at"]).utcoffset() == timedelta(0)
    assert {name: reply["queue"][name] for name in ("total", "due_now", "pending", "processing", "sent", "failed")} == {
        "total": 2, "due_now": 1, "pending": 2, "processing": 0, "sent": 0, "failed": 0,
    }  # fmt: skip
    assert reply["runtime"] == dict.fromkeys(RUNTIME, 0) | {"is_running": False, "last_error": None}
    assert reply["config"] == shown(Settings.load({})), "no worker lives"


def test_the_configuration_is_that_of_the_environment() -> None:
    reply = shown(
        Settings.load(
            {
                "OUTBOX_WORKER_POLL_MS": "700",
                "OUTBOX_WORKER_BATCH_SIZE": "20",
                "OUTBOX_WORKER_MAX_ATTEMPTS": "8",
                "OUTBOX_WORKER_PROCESSING_TIMEOUT_MS": "90000",
                "OUTBOX_WORKER_RETRY_BASE_MS": "1000",
                "OUTBOX_WORKER_RETRY_MAX_MS": "9000",
            }
        )
    )
    assert list(reply.items()) == list(zip(CONFIG, [700, 20, 8, 90_000, 1_000, 9_000], strict=True))


async def test_run_once_runs_what_is_due_and_says_what_it_did(site: Starlette, app: Holdfast, developer: str) -> None:
    for kind, args in (("mail.send", ["a@example.org"]), ("mail.send", ["b@example.org"]), ("mail.break", [])):
        await enqueue(app, kind, *args)
    await enqueue(app, "mail.send", "later@example.org", delay=timedelta(days=1))
    summary = await run_once(site, developer)
    assert list(summary) == SUMMARY
    assert {name: summary[name] for name in SUMMARY[:-1]} == {
        "processed": 3, "completed": 2, "retried": 0, "failed": 1, "recovered": 0, "lost": 0,
    }  # fmt: skip
    assert summary["duration_ms"] >= 0
    again = await run_once(site, developer)
    assert again["processed"] == 0


async def test_run_once_is_in_the_audit(site: Starlette, app: Holdfast, developer: str) -> None:
    await enqueue(app, "mail.send", "a@example.org")
    await run_once(site, developer)
    entry, begun = (await ask(site, Asked("GET", "/api/v1/audit", headers=bearer(developer)))).json["items"]
    assert begun["action"] == "outbox.run_once.begin"
    assert (entry["who"], entry["role"], entry["action"], entry["jobs"]) == (
        "developer ann", "developer", "outbox.run_once", 1,
    )  # fmt: skip
    assert entry["detail"]["completed"] == 1


@pytest.mark.parametrize("loaded", ["nothing", "an application without handlers"])
async def test_run_once_is_refused_where_no_handlers_are_loaded(database: str, developer: str, loaded: str) -> None:
    site = operations(None, url=database) if loaded == "nothing" else operations(Holdfast(database))
    try:
        answered = await ask(site, Asked("POST", "/outbox/run-once", headers=bearer(developer)))
        assert (answered.status, answered.refusal.code) == (409, "no_handlers")
        assert (await ask(site, Asked("GET", "/outbox/stats", headers=bearer(developer)))).status == 200
    finally:
        await site.state.operations.close()


@pytest.fixture
async def gated(database: str) -> AsyncIterator[tuple[Starlette, asyncio.Event, asyncio.Event]]:
    app = Holdfast(database)
    began, gate = asyncio.Event(), asyncio.Event()

    @app.job("gated", retry=Retry(max_attempts=3, base=timedelta(days=1)))
    async def wait(job: Job[Any]) -> None:
        began.set()
        await gate.wait()

    await enqueue(app, "gated")
    site = operations(app, timeout=PATIENT)
    yield site, began, gate
    await site.state.operations.close()


async def test_two_ticks_do_not_run_at_once(
    gated: tuple[Starlette, asyncio.Event, asyncio.Event], developer: str
) -> None:
    site, began, gate = gated
    first = asyncio.create_task(run_once(site, developer))
    async with asyncio.timeout(20):
        await began.wait()
    answered = await ask(site, Asked("POST", "/outbox/run-once", headers=bearer(developer)))
    assert (answered.status, answered.refusal.code) == (409, "already_running")
    gate.set()
    assert (await first)["completed"] == 1
    assert (await run_once(site, developer))["processed"] == 0, "the next may run"


async def test_a_tick_by_hand_waits_for_what_it_started(
    gated: tuple[Starlette, asyncio.Event, asyncio.Event], developer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thirty seconds limit what it starts."""
    site, began, gate = gated
    monkeypatch.setattr(outbox_module, "LONGEST_START", timedelta(seconds=1))
    ticking = asyncio.create_task(run_once(site, developer))
    async with asyncio.timeout(20):
        await began.wait()
    _, waiting = await asyncio.wait({ticking}, timeout=2)
    gate.set()
    assert waiting
    assert (await ticking)["completed"] == 1


async def test_a_tick_that_cannot_reach_the_database_is_not_called_done() -> None:
    nowhere = "postgresql://127.0.0.1:1/none"
    outbox = outbox_module.OutboxEndpoints(make_app(nowhere), nowhere, Settings.load(os.environ))
    with pytest.raises(RequestRefused) as refused:
        await outbox.run_once(AsyncMock())
    assert (refused.value.status, refused.value.code) == (503, "tick_failed")
    assert not outbox._running


async def test_the_runtime_is_that_of_the_worker_in_this_process(
    site: Starlette, app: Holdfast, developer: str
) -> None:
    job = await enqueue(app, "mail.send", "a@example.org")
    async with app.worker(heartbeat=timedelta(milliseconds=100)):

        async def reported() -> bool:
            return bool((await stats(site, developer))["runtime"]["processed_total"] == 1)

        await until(reported)
        runtime = (await stats(site, developer))["runtime"]
        assert runtime["is_running"] is True
        assert runtime["last_error"] is None
    assert job
    assert (await stats(site, developer))["runtime"]["is_running"] is False


async def test_a_tick_that_fails_is_in_the_audit_too(
    site: Starlette, developer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(_: object) -> None:
        raise outbox_module.TickFailed("outbox: ValueError: it broke")

    monkeypatch.setattr(site.state.operations.first.outbox, "run_once", failing)
    answered = await ask(site, Asked("POST", "/outbox/run-once", headers=bearer(developer)))
    assert (answered.status, answered.refusal.code) == (503, "tick_failed")
    (entry,) = (await ask(site, Asked("GET", "/api/v1/audit", headers=bearer(developer)))).json["items"]
    assert (entry["action"], entry["detail"]) == ("outbox.run_once", {"error": "outbox: ValueError: it broke"})


async def test_run_once_serves_the_database_that_is_looked_at(database: str, server: Server, template: str) -> None:
    with clone(server, template) as other:
        app = make_app(database)  # its own address
        elsewhere = await enqueue(app, "mail.send", "a@example.org")
        async with await psycopg.AsyncConnection.connect(other) as conn:
            job = await app.enqueue(conn, app.kinds["mail.send"].new("b@example.org"))
        site = operations(app, url=other, timeout=PATIENT)
        token = make_token(other, "developer")
        answer = await ask(site, Asked("POST", "/outbox/run-once", headers=bearer(token)))
        await site.state.operations.close()
        assert answer.json["summary"]["completed"] == 1
        with psycopg.connect(other) as ours, psycopg.connect(database) as theirs:
            ended = "SELECT id FROM holdfast.job_history"
            assert ours.execute(ended).fetchall() == [(job.id,)]
            assert theirs.execute(ended).fetchall() == []
            assert theirs.execute("SELECT id FROM holdfast.job").fetchall() == [(elsewhere,)]
