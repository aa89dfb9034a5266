"""The log lines of jobs: failures with their reason, and a limited number of them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Fail, Holdfast, Job
from holdfast._engine import worker
from holdfast._engine.report import job_log
from holdfast._logs import log as logs
from tests.kit.pace import AT_ONCE, QUICK
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kit.ledger import Ledger

TRACE = "0af7651916cd43dd8448eb211c80319c"


class Lines:
    """The log records of jobs, as a handler with our filter gets them."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog

    def of(self, job: int) -> list[tuple[str, str]]:
        return [(line.levelname, without_fields(line)) for line in self.all() if vars(line)["job"] == job]

    def all(self) -> list[logging.LogRecord]:
        return [line for line in self._caplog.records if line.name == job_log.log.logger.name]


def without_fields(line: logging.LogRecord) -> str:
    return line.getMessage().partition(": ")[0]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[Lines]:
    seen = logs.ContextFilter()
    caplog.handler.addFilter(seen)
    with caplog.at_level(logging.INFO):
        yield Lines(caplog)
    caplog.handler.removeFilter(seen)


async def test_a_bad_ending_is_a_line_that_says_why_and_where(app: Holdfast, ledger: Ledger, lines: Lines) -> None:
    @app.job("receipt.send", retry=AT_ONCE)
    async def send(job: Job[None]) -> None:
        raise RuntimeError("the printer is on fire")

    headers = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
    job = ledger.enqueue_one(send.new().options(max_attempts=2, headers=headers))
    async with app.worker(id="w1", **QUICK):
        await until(lambda: len(lines.all()) == 2)
    assert lines.of(job) == [("WARNING", "an attempt failed"), ("ERROR", "a job failed")]
    again, last = (vars(line) for line in lines.all())
    belongs = {"job": job, "kind": "receipt.send", "chain": job, "worker": "w1", "trace": TRACE}
    why = {"error": "RuntimeError", "why": "the printer is on fire", "max_attempts": 2}
    assert again.items() >= {**belongs, **why, "attempt": 1, "again_in": 0.0}.items()
    assert last.items() >= {**belongs, **why, "attempt": 2}.items()
    assert 'raise RuntimeError("the printer is on fire")' in logs.HumanFormatter().format(lines.all()[0])


async def test_plain_logging_says_all_of_it_too(app: Holdfast, ledger: Ledger, lines: Lines) -> None:
    @app.job("receipt.send", retry=AT_ONCE)
    async def send(job: Job[None]) -> None:
        raise RuntimeError("the printer is on fire, at ipp://ada:hunter2@print")

    job = ledger.enqueue_one(send.new().options(max_attempts=2))
    async with app.worker(id="w1", **QUICK):
        await until(lambda: len(lines.all()) == 2)
    again, last = (logging.Formatter("%(levelname)s: %(message)s").format(line).split("\n")[0] for line in lines.all())
    belongs = f"job={job} kind=receipt.send chain={job} worker=w1"
    why = 'error=RuntimeError why="the printer is on fire, at ipp://ada:***@print"'
    assert again == f"WARNING: an attempt failed: {belongs} attempt=1 max_attempts=2 {why} again_in=0.0"
    assert last == f"ERROR: a job failed: {belongs} attempt=2 max_attempts=2 {why}"


async def test_what_a_handler_chose_to_say_has_no_traceback(app: Holdfast, ledger: Ledger, lines: Lines) -> None:
    @app.job("act")
    async def act(job: Job[None], how: str) -> object:
        if how == "raised":
            raise Fail("it never will")
        return Fail("it never will")

    ledger.enqueue(act.new("raised"), act.new("returned"))
    async with app.worker(**QUICK):
        await until(lambda: len(lines.all()) == 2)
    assert {(without_fields(line), vars(line)["why"]) for line in lines.all()} == {("a job failed", "it never will")}
    assert not any(line.exc_info for line in lines.all())


async def test_a_payload_that_does_not_fit_is_not_quoted(
    app: Holdfast, ledger: Ledger, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "DEPLOY_GRACE", 0.0)  # else it might be for newer code

    @app.job("act")
    async def act(job: Job[None], pin: int) -> None: ...

    job = ledger.enqueue_one(act.new(1))
    ledger.do("UPDATE holdfast.job SET payload = %s, created_at = now() - interval '1 hour'", '{"pin": "s3cret"}')
    async with app.worker(**QUICK):
        await until(lambda: lines.of(job))
    [line] = lines.all()
    assert "pin" in vars(line)["why"]
    assert "s3cret" not in logs.JsonFormatter().format(line)


async def test_completions_are_logged_at_debug_level(
    app: Holdfast, ledger: Ledger, lines: Lines, caplog: pytest.LogCaptureFixture
) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    async with app.worker(**QUICK) as running:
        quiet = ledger.enqueue_one(act.new())
        await until(lambda: running.counts.get("job_completed") == 1)
        caplog.set_level(logging.DEBUG, job_log.log.logger.name)
        received = ledger.enqueue_one(act.new())
        await until(lambda: running.counts.get("job_completed") == 2)
    assert lines.of(quiet) == []
    assert lines.of(received) == [("DEBUG", "job_completed")]


async def test_a_flood_is_counted(app: Holdfast, ledger: Ledger, lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_log, "SECOND", 3600.0)

    @app.job("act")
    async def act(job: Job[None]) -> None:
        raise Fail("no")

    ledger.enqueue(*[act.new() for _ in range(500)])
    async with app.worker(queues={"default": 50}, **QUICK):
        await until(lambda: ledger.statuses() == {"failed": 500})
    *each, last = lines.all()
    assert [without_fields(line) for line in each] == ["a job failed"] * job_log.MOST_A_SECOND
    assert without_fields(last) == "more attempts ended badly than are logged one by one"
    assert vars(last)["attempts"] == 500 - job_log.MOST_A_SECOND


async def test_the_count_of_a_flood_does_not_wait_for_the_stop(
    app: Holdfast, ledger: Ledger, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_log, "MOST_A_SECOND", 1)
    monkeypatch.setattr(job_log, "SECOND", 0.2)

    @app.job("act")
    async def act(job: Job[None]) -> None:
        raise Fail("no")

    def logged(line: logging.LogRecord) -> int:
        return int(vars(line).get("attempts", 1))

    ledger.enqueue(*[act.new() for _ in range(50)])
    async with app.worker(queues={"default": 50}, **QUICK):
        await until(lambda: sum(map(logged, lines.all())) == 50)
        ledger.enqueue(act.new())
        await until(lambda: sum(map(logged, lines.all())) == 51)


async def test_a_lost_claim_is_logged(app: Holdfast, ledger: Ledger, lines: Lines) -> None:
    started: list[int] = []

    @app.job("act")
    async def act(job: Job[None]) -> None:
        started.append(job.id)
        await job.signal.wait()

    job = ledger.enqueue_one(act.new())
    async with app.worker(**QUICK):
        await until(lambda: started == [job])
        ledger.do("DELETE FROM holdfast.job WHERE id = %s", job)
        await until(lambda: lines.of(job))
    assert lines.of(job) == [("WARNING", "a claim was lost")]
    [line] = lines.all()
    assert vars(line)["reason"] == "not_found"


async def test_a_dead_letter_of_the_reaper_is_logged(
    app: Holdfast, ledger: Ledger, lines: Lines, caplog: pytest.LogCaptureFixture
) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    job = ledger.enqueue_one(act.new().options(max_attempts=1))
    ledger.do(
        "UPDATE holdfast.job SET status = 'processing', attempt = 1, locked_by = 0, lock_token = 1, "
        "locked_until = now() - interval '1 second'"
    )

    def dead() -> list[dict[str, Any]]:
        return [vars(line) for line in caplog.records if line.levelname == "ERROR"]

    async with app.worker(**QUICK):
        await until(dead)
    [line] = dead()
    assert line["message"].startswith("jobs failed")
    assert line["ids"] == [job]
    assert lines.of(job) == []
