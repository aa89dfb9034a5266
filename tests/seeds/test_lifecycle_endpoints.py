"""Outbox Worker Lifecycle: the two endpoints, who may call them, and every field of their answers."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast, Job, Retry
from holdfast.ops import operations
from tests.kit.access import PATIENT, make_token
from tests.kit.asking import Asked, ask, bearer
from tests.kit.databases import clone
from tests.kit.fleet import alone
from tests.kit.ledger import Ledger
from tests.kit.pace import AT_ONCE, ms
from tests.kit.statement import LIFECYCLE, Document
from tests.kit.waiting import until
from tests.kit.workers import Worker, enqueue, expire_leases, job

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from starlette.applications import Starlette

    from tools.postgres import Server

doc = Document(LIFECYCLE)
STATS, RUN_ONCE = ("GET", "/outbox/stats"), ("POST", "/outbox/run-once")


def make_app(url: str) -> Holdfast:
    app = Holdfast(url)

    @app.job("done", retry=AT_ONCE)
    async def done(job: Job[Any]) -> None: ...

    @app.job("again", retry=AT_ONCE)
    async def again(job: Job[Any]) -> None:
        if job.attempt == 1:
            raise ValueError("once more")

    @app.job("stuck", retry=Retry(3, base=timedelta(hours=1), maximum=timedelta(hours=1)))
    async def stuck(job: Job[Any]) -> None: ...

    @app.job("dead", retry=Retry(1))
    async def dead(job: Job[Any]) -> None:
        raise ValueError("it broke")

    return app


@asynccontextmanager
async def serving(app: Holdfast) -> AsyncIterator[Starlette]:
    site = operations(app, timeout=PATIENT)
    try:
        yield site
    finally:
        await site.state.operations.close()


@pytest.fixture(scope="module")
def tokens(database: str) -> Mapping[str, str]:
    return {role: make_token(database, role) for role in ("viewer", "operator", "developer")}


@pytest.fixture(scope="module")
def output(server: Server, template: str) -> Any:
    """The stats of a process whose worker completed, retried, recovered and gave up on jobs; others wait."""

    async def work(url: str) -> Any:
        app = make_app(url)
        developer = make_token(url, "developer")
        with Ledger(url) as ledger:
            kinds: Any = app.kinds
            enqueue(ledger.conn, job("foreign"), job("foreign", delay=timedelta(hours=1)))
            enqueue(ledger.conn, job("elsewhere"), job("late"))
            Worker(ledger.conn, "elsewhere").claim()
            ledger.enqueue(kinds["done"].new())
            expire_leases(ledger.conn, Worker(ledger.conn, "done").claim())
            ledger.enqueue(kinds["done"].new(), kinds["again"].new(), kinds["dead"].new())
            times: Any = {"heartbeat": ms(100), "reap_interval": ms(300), "shutdown_timeout": ms(1_000)}
            async with serving(app) as site, app.worker(tick_runners=alone("outbox"), **times):
                await until(lambda: ledger.statuses().get("completed") == 3)
                await until(lambda: ledger.statuses().get("failed") == 1)
                expire_leases(ledger.conn, Worker(ledger.conn, "late").claim())
                answer: Any = {}

                async def counted() -> bool:
                    answered = await ask(site, Asked(*STATS, headers=bearer(developer)))
                    assert answered.status == 200
                    answer.update(answered.json)
                    runtime, queue = answer["runtime"], answer["queue"]
                    return bool(runtime["processed_total"] >= 5 and queue["sent"] == 3 and queue["failed"] == 1)

                await until(counted)
                return answer

    with clone(server, template) as url:
        return asyncio.run(work(url))


@pytest.mark.parametrize(
    ("endpoint", "role", "status"),
    [
        doc.case("stats answers 401 without a token", STATS, "", 401),
        doc.case("stats answers 403 for a user", STATS, "viewer", 403),
        doc.case("stats answers 403 for an operator, who is no developer either", STATS, "operator", 403),
        doc.case("stats answers 200 for a developer", STATS, "developer", 200),
        doc.case("run-once answers 401 without a token", RUN_ONCE, "", 401),
        doc.case("run-once answers 403 for a user", RUN_ONCE, "viewer", 403),
        doc.case("run-once answers 403 for an operator, who is no developer either", RUN_ONCE, "operator", 403),
        doc.case("run-once answers 200 for a developer", RUN_ONCE, "developer", 200),
    ],
)
async def test_each_endpoint_needs_its_role(
    database: str, tokens: Mapping[str, str], endpoint: tuple[str, str], role: str, status: int
) -> None:
    async with serving(make_app(database)) as site:
        headers = bearer(tokens[role]) if role else ()
        assert (await ask(site, Asked(*endpoint, headers=headers))).status == status


@doc.states("stats: generated_at is a time with its zone")
def test_generated_at(output: Any) -> None:
    assert datetime.fromisoformat(output["generated_at"]).utcoffset() == timedelta(0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        doc.case("stats: queue.total counts every job", "total", 8),
        doc.case("stats: queue.due_now counts what could run now", "due_now", 1),
        doc.case("stats: queue.stuck_processing counts leases that have expired", "stuck_processing", 1),
        doc.case("stats: queue.pending counts what waits", "pending", 2),
        doc.case("stats: queue.processing counts what is held", "processing", 2),
        doc.case("stats: queue.sent counts what was completed", "sent", 3),
        doc.case("stats: queue.failed counts the dead letters", "failed", 1),
    ],
)
def test_queue(output: Any, field: str, value: int) -> None:
    assert output["queue"][field] == value


@doc.states("stats: queue.oldest_pending_age_seconds is the age of the oldest due job")
def test_oldest(output: Any) -> None:
    assert 0 < output["queue"]["oldest_pending_age_seconds"] < 600


@pytest.mark.parametrize(
    ("field", "least"),
    [
        doc.case("stats: runtime.is_running while a worker runs", "is_running", True),
        doc.case("stats: runtime.ticks_total counts the passes", "ticks_total", 1),
        doc.case("stats: runtime.processed_total counts the attempts", "processed_total", 5),
        doc.case("stats: runtime.retried_total counts the retries", "retried_total", 1),
        doc.case("stats: runtime.dead_letter_total counts the dead letters", "dead_letter_total", 1),
        doc.case("stats: runtime.recovered_stuck_total counts what was recovered", "recovered_stuck_total", 1),
    ],
)
def test_runtime(output: Any, field: str, least: int) -> None:
    assert output["runtime"][field] >= least


@pytest.mark.parametrize(
    ("field", "value"),
    [
        doc.case("stats: config.poll_ms, how often an idle worker polls at least", "poll_ms", 30_000),
        doc.case("stats: config.batch_size", "batch_size", 50),
        doc.case("stats: config.max_attempts", "max_attempts", 3),
        doc.case("stats: config.processing_timeout_ms", "processing_timeout_ms", 60_000),
        doc.case("stats: config.retry_base_ms", "retry_base_ms", 5_000),
        doc.case("stats: config.retry_max_ms", "retry_max_ms", 120_000),
    ],
)
def test_config(output: Any, field: str, value: int) -> None:
    assert output["config"][field] == value


@doc.states("stats: config has the settings also when no worker runs, which is the default")
async def test_config_without_a_worker(database: str, tokens: Mapping[str, str]) -> None:
    async with serving(make_app(database)) as site:
        answered = await ask(site, Asked(*STATS, headers=bearer(tokens["developer"])))
    assert answered.json["runtime"]["is_running"] is False
    assert list(answered.json["config"].values()) == [30_000, 50, 3, 60_000, 5_000, 120_000]


@doc.states("stats: the fields are exactly those listed, in their order")
def test_shape(output: Any) -> None:
    assert list(output) == ["generated_at", "queue", "runtime", "config"]
    assert " ".join(output["queue"]) == (
        "total due_now oldest_pending_age_seconds stuck_processing pending processing sent failed"
    )
    assert " ".join(output["runtime"]) == (
        "is_running ticks_total processed_total retried_total dead_letter_total recovered_stuck_total last_error"
    )
    assert " ".join(output["config"]) == (
        "poll_ms batch_size max_attempts processing_timeout_ms retry_base_ms retry_max_ms"
    )


@pytest.fixture(scope="module")
def summary(server: Server, template: str) -> Any:
    """The answer of a tick by hand, in its own database: two completed, one dead, one recovered."""

    async def tick(url: str) -> Any:
        app = make_app(url)
        token = make_token(url, "developer")
        with Ledger(url) as ledger:
            kinds: Any = app.kinds
            ledger.enqueue(kinds["stuck"].new())
            expire_leases(ledger.conn, Worker(ledger.conn, "stuck").claim())
            ledger.do("UPDATE holdfast.job SET attempt = 2")  # it is recovered, and waits
            ledger.enqueue(kinds["done"].new(), kinds["done"].new(), kinds["dead"].new())
            async with serving(app) as site:
                answered = await ask(site, Asked(*RUN_ONCE, headers=bearer(token)))
        assert answered.status == 200
        return answered.json

    with clone(server, template) as url:
        return asyncio.run(tick(url))


@doc.states("run-once answers with a summary")
def test_summary(summary: Any) -> None:
    assert list(summary) == ["summary"]
    assert summary["summary"]["duration_ms"] >= 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        doc.case("run-once: the summary counts what was processed", "processed", 3),
        doc.case("run-once: the summary counts what was completed", "completed", 2),
        doc.case("run-once: the summary counts what failed", "failed", 1),
        doc.case("run-once recovers what was stuck, and counts it", "recovered", 1),
    ],
)
def test_summary_counts(summary: Any, field: str, value: int) -> None:
    assert summary["summary"][field] == value


@doc.states("run-once is a tick by hand: the worker need not be enabled")
async def test_by_hand(app: Holdfast, ledger: Ledger, tokens: Mapping[str, str]) -> None:
    @app.job("by.hand")
    async def act(job: Job[Any]) -> None: ...

    one = ledger.enqueue_one(act.new())
    async with serving(app) as site:
        assert (await ask(site, Asked(*RUN_ONCE, headers=bearer(tokens["developer"])))).status == 200
    assert ledger.status(one) == "completed"
