"""Errors that once ended the loop that writes endings, so that a worker looked healthy and wrote nothing."""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast import Retry
from holdfast._engine.jobs.finish import Finisher
from holdfast._engine.jobs.run_handlers import Handlers
from holdfast._store.lease import ClaimAnswer
from tests.kit.pace import PATIENT, QUICK
from tests.kit.waiting import until
from tests.kit.workers import Worker

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast import Holdfast, Job
    from holdfast._engine.attempt import Attempt
    from holdfast._engine.link import Link
    from holdfast._engine.report.transition import Transition
    from holdfast._model.outcome import Outcome
    from holdfast._store.lease import Held
    from tests.kit.ledger import Ledger

RAISED = [SystemExit, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit]


class Broken(logging.Handler):
    """A handler whose disk is full."""

    def __init__(self, raised: type[BaseException]) -> None:
        super().__init__()
        self.raised = raised
        self.calls = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.calls += 1
        raise self.raised(f"no space left for {record.name}")


@contextmanager
def broken_log(raised: type[BaseException] = OSError) -> Iterator[Broken]:
    """Let every line of the library meet a handler that raises."""
    handler = Broken(raised)
    logging.getLogger("holdfast").addHandler(handler)
    try:
        yield handler
    finally:
        logging.getLogger("holdfast").removeHandler(handler)


async def test_a_job_cancelled_by_a_person_and_reaped_by_another(app: Holdfast, ledger: Ledger) -> None:
    go = asyncio.Event()

    @app.job("act")
    async def act(job: Job[None], wait: bool = False) -> None:
        if wait:
            await go.wait()

    async with app.worker(listen=False, **PATIENT) as worker:
        job = ledger.enqueue_one(act.new(wait=True))
        await until(lambda: ledger.status(job) == "processing")
        assert ledger.cancel(job) == "requested"
        ledger.do("UPDATE holdfast.job SET locked_until = now() - interval '1 s'")
        with psycopg.connect(ledger.url, autocommit=True) as conn:
            [reaped] = Worker(conn, "act").reap()
        assert reaped.answer is ClaimAnswer.cancelled
        go.set()
        await until(lambda: worker.counts.get("job_lost") == 1)
        others = ledger.enqueue(*[act.new() for _ in range(20)])
        await until(lambda: all(ledger.status(other) == "completed" for other in others))
        await until(lambda: worker.pipelines[0].held == {})
    assert ledger.status(job) == "cancelled"


async def test_chains_completed_from_outside_while_their_handlers_end(
    app: Holdfast, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are locked when the endings are written; the commit returns before the answer is read."""
    go, answered = asyncio.Event(), Finisher._answers

    @app.job("act")
    async def act(job: Job[None], wait: bool = False) -> str:
        if wait:
            await go.wait()
        return "ours"

    async with await psycopg.AsyncConnection.connect(ledger.url) as outside:

        async def overtaken(self: Finisher, batch: Sequence[Attempt], link: Link) -> dict[Held, ClaimAnswer]:
            answers = await answered(self, batch, link)
            if ClaimAnswer.busy in answers.values():
                await outside.commit()
                await until(lambda: all(attempt.signal.aborted for attempt in batch))
            return answers

        monkeypatch.setattr(Finisher, "_answers", overtaken)
        async with app.worker(queues={"default": 100}, **PATIENT) as worker:
            jobs = ledger.enqueue(*[act.new(wait=True) for _ in range(100)])
            await until(lambda: ledger.statuses() == {"processing": 100})
            for job in jobs:
                await app.complete_chain(outside, job, "theirs")
            go.set()
            await until(lambda: worker.counts.get("job_lost") == 100)
            others = ledger.enqueue(*[act.new() for _ in range(20)])
            await until(lambda: all(ledger.status(other) == "completed" for other in others))
            await until(lambda: worker.pipelines[0].held == {})
    assert {ledger.job(job).result for job in jobs} == {"theirs"}


@pytest.mark.parametrize("raised", [OSError, *RAISED])
async def test_a_logging_handler_that_raises(app: Holdfast, ledger: Ledger, raised: type[BaseException]) -> None:
    @app.job("bad", retry=Retry(max_attempts=1))
    async def bad(job: Job[None]) -> None:
        raise ValueError

    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    with broken_log(raised) as handler:
        async with app.worker(**QUICK):
            job = ledger.enqueue_one(bad.new())
            await until(lambda: ledger.status(job) == "failed")
            # Every loop has something to complain of when its connection is gone.
            ledger.do(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'holdfast' AND datname = current_database()"
            )
            others = ledger.enqueue(*[act.new() for _ in range(20)])
            await until(lambda: all(ledger.status(other) == "completed" for other in others))
    assert handler.calls > 0


@pytest.mark.parametrize("raised", RAISED)
async def test_a_listener_that_raises_what_ends_programs(
    app: Holdfast, ledger: Ledger, raised: type[BaseException]
) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    received: list[str] = []

    def listen(transition: Transition) -> None:
        received.append(transition.name)
        raise raised

    app.listeners.append(listen)
    async with app.worker(**QUICK) as worker:
        for _ in range(3):
            jobs = ledger.enqueue(*[act.new() for _ in range(20)])
            await until(lambda jobs=jobs: all(ledger.status(job) == "completed" for job in jobs))  # type: ignore[misc]
        await until(lambda: worker.pipelines[0].held == {})
    assert received.count("job_completed") == 60


async def test_a_listener_and_the_log_of_its_failure(app: Holdfast, ledger: Ledger) -> None:
    """The line that says that a listener failed fails too."""

    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    def listen(transition: Transition) -> None:
        raise SystemExit(transition.name)

    app.listeners.append(listen)
    with broken_log(SystemExit) as handler:
        async with app.worker(**QUICK):
            jobs = ledger.enqueue(*[act.new() for _ in range(20)])
            await until(lambda: all(ledger.status(job) == "completed" for job in jobs))
    assert handler.calls >= 40


@pytest.mark.parametrize("raised", [RuntimeError, *RAISED])
async def test_what_breaks_around_a_handler_ends_the_attempt_alone(
    app: Holdfast, ledger: Ledger, raised: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tracer that raises, say: the job is retried, and the worker goes on."""
    outcome = Handlers.outcome

    async def around(self: Handlers, attempt: Attempt) -> Outcome | None:
        if attempt.claimed.kind == "odd":
            raise raised
        return await outcome(self, attempt)

    monkeypatch.setattr(Handlers, "outcome", around)

    @app.job("odd")
    async def odd(job: Job[None]) -> None: ...

    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    async with app.worker(**QUICK) as worker:
        job = ledger.enqueue_one(odd.new())
        await until(lambda: worker.counts.get("job_retried") == 1)
        others = ledger.enqueue(*[act.new() for _ in range(20)])
        await until(lambda: all(ledger.status(other) == "completed" for other in others))
    assert ledger.job(job)[:4] == ("pending", 1, None, "broken")
