"""The report that a worker sends with its heartbeat: what is in it, for how long, and what it costs."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from holdfast._engine.jobs import heartbeat
from holdfast._engine.worker_report import FORGOTTEN_SECONDS, LONG_SECONDS, WINDOW_SECONDS, WorkerReport
from holdfast._logs.failure import Failure
from tests.kit.pace import QUICK, ms
from tests.kit.waiting import until

if TYPE_CHECKING:
    from holdfast import Holdfast, Job
    from holdfast._engine.attempt import Attempt
    from tests.kit.ledger import Ledger

BOOM = Failure("Boom", "it broke")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def report(clock: Clock) -> WorkerReport:
    return WorkerReport(clock)


def read(report: WorkerReport, *attempts: Attempt) -> dict[str, Any]:
    return cast("dict[str, Any]", json.loads(report.read(attempts, lambda _: True) or "{}"))


def is_new(report: WorkerReport) -> bool:
    return report.is_new


def test_without_failures_there_is_nothing_to_report(report: WorkerReport) -> None:
    report.completed("mail", "send")
    report.sink_answered("out")
    assert report.read((), lambda _: True) is None
    assert not is_new(report)


def test_errors_are_counted_over_a_window_beside_what_completed(report: WorkerReport, clock: Clock) -> None:
    report.failed("mail", "send", BOOM, retried=False)
    assert is_new(report)
    clock.now += 2
    report.failed("mail", "send", Failure("Late", "too late"), retried=True)
    report.completed("mail", "send")
    assert read(report)["errors"] == [["mail", "send", "Late", "too late", 2000, 0, 1, 1, 1]]
    assert not is_new(report), "it was read"
    clock.now += WINDOW_SECONDS + 3
    (line,) = read(report)["errors"]
    assert line[-3:] == [0, 0, 0]
    clock.now += FORGOTTEN_SECONDS
    assert read(report) == {}
    report.failed("mail", "send", BOOM, retried=False)
    assert is_new(report), "a new series begins"
    assert read(report)["errors"][0][4] == 0


def test_a_sink_is_reported_until_it_takes_an_event(report: WorkerReport, clock: Clock) -> None:
    report.sink_failed("out", BOOM, 8.0, tries=3)
    clock.now += 1
    assert read(report)["sinks"] == [["out", "Boom", "it broke", 1000, 7000, 3]]
    report.sink_answered("out")
    assert read(report) == {}


def test_many_kinds_are_bounded_and_the_latest_stay(report: WorkerReport, clock: Clock) -> None:
    for number in range(30):
        clock.now += 0.1
        report.failed("mail", f"k{number}", BOOM, retried=False)
    assert [line[1] for line in read(report)["errors"]] == [f"k{number}" for number in range(10, 30)]


def test_long_runs_are_reported_by_kind_with_the_first_of_them(report: WorkerReport, clock: Clock) -> None:
    def attempt(kind: str, started: float) -> Attempt:
        claimed = SimpleNamespace(queue="q", kind=kind)
        return cast("Attempt", SimpleNamespace(claimed=claimed, started_at=started))

    now = clock.now
    attempts = [attempt("slow", now - LONG_SECONDS - 1), attempt("slow", now - 1), attempt("quick", now - 1)]
    assert read(report, *attempts, attempt("waits", 0.0))["running"] == [["q", "slow", 2, 6000, True]]


async def test_a_beat_that_only_reports_renews_no_leases(
    app: Holdfast, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "NEW_SECONDS", 0.05)
    monkeypatch.setattr(heartbeat, "REPORT_SECONDS", 0.05)
    released = asyncio.Event()

    @app.job("wait")
    async def wait(job: Job[Any]) -> None:
        await released.wait()

    @app.job("break")
    async def broken(job: Job[Any]) -> None:
        raise ValueError("it broke")

    async def several_beats() -> None:
        beats: set[object] = set()

        def look() -> bool:
            beats.add(ledger.value("SELECT heartbeat_at FROM holdfast.worker WHERE stopped_at IS NULL"))
            return len(beats) > 3

        await until(look)

    async with app.worker(**(QUICK | {"heartbeat": ms(9_000)})):
        ledger.enqueue(wait.new())
        await until(lambda: ledger.value("SELECT count(*) FROM holdfast.job WHERE status = 'processing'") == 1)
        ledger.enqueue(broken.new())
        report = "SELECT report::text FROM holdfast.worker WHERE stopped_at IS NULL"
        await until(lambda: "it broke" in (ledger.value(report) or ""))
        await several_beats()  # the first one of all renews
        leases = "SELECT locked_until FROM holdfast.job WHERE kind = 'wait'"
        before = ledger.value(leases)
        await several_beats()
        assert ledger.value(leases) == before
        released.set()
