"""The rules over facts that are written here, without a database. One fault each, and what must not be said of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast._ops.causes.judgement import RULES, causes, judge
from holdfast._ops.facts import Facts
from holdfast._store.incident import (
    KindEnds,
    Locker,
    LongRun,
    Pause,
    RepeatedError,
    Signals,
    SilentSink,
    StoppedKey,
    UnreadPayload,
)
from holdfast._store.inspect import Census, KindCount
from holdfast._store.schedule import RunLine
from holdfast._store.subscription import SubscriptionRow
from holdfast._store.worker import WorkerLine

if TYPE_CHECKING:
    from holdfast._ops.responses.fleet import Problem

NOW = datetime(2026, 11, 19, 3, 12, 30, tzinfo=UTC)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def worker(name: str = "web-1", *, beat: float = 1, started: float = 3600, **given: Any) -> WorkerLine:
    state = given.pop("state", "live")
    return WorkerLine.of(
        given.get("id", 1),
        name,
        "host",
        7,
        "1",
        state,
        ago(started),
        ago(beat),
        ago(beat) if given.get("reaps", True) else None,
        ago(beat) if state == "stopped" else None,
        None,
        given.get("queues", ["default"]),
        given.get("kinds", ["mail"]),
        {},
        given.get("version"),
    )


def due(jobs: int = 3, *, kind: str = "mail", queue: str = "default", oldest: float = 1, **more: Any) -> KindCount:
    return KindCount(queue, kind, pending=jobs, due=jobs, oldest_due_at=ago(oldest), **more)


def relay(name: str = "out", *, events: int = 0, seconds: float = 0, **given: Any) -> SubscriptionRow:
    return SubscriptionRow(
        name, "NATS", 0, given.get("paused", False), given.get("elsewhere", False), given.get("worker", 1),
        events, seconds, given.get("parked", 0), NOW, None,
    )  # fmt: skip


def facts(*lines: KindCount, counted: float | None = 1, **given: Any) -> Facts:
    signals = Signals([], [], [], [], frozenset({"web-1"}), [], [], None, {})
    parts = {name: given.pop(name) for name in Signals._fields if name in given}
    return Facts(
        census=Census(NOW, None if counted is None else ago(counted), 0.01, 1.0, list(lines)),
        tallies=[],
        ends=given.get("ends", []),
        queues=[],
        workers=given.get("workers", [worker()]),
        held=given.get("held", {}),
        subscriptions=given.get("subscriptions", []),
        runs=given.get("runs", []),
        signals=signals._replace(**parts),
        lockers=given.get("lockers", []),
    )


def codes(seen: Facts, before: list[Problem] | None = None) -> list[str]:
    return [problem.code for problem in causes(seen, before or [])]


def only(seen: Facts, before: list[Problem] | None = None) -> Problem:
    (problem,) = causes(seen, before or [])
    return problem


PAUSE = Pause("queue", "default", ago(125), "ann", "deploy")
SILENT = worker("web-2", id=2, beat=32, state="silent", kinds=["mail", "pdf"])
LOCK = Locker(4711, "ann", "psql", "job", 62.0, 4)
SINK = SilentSink("web-1", "out", "ConnectionRefusedError", "refused", ago(9), NOW + timedelta(seconds=8), 5)
STOP = StoppedKey("account:7", 12, ago(60), "mail", "Boom", 39)
FAILING = RepeatedError("web-1", "default", "mail", "Boom", "it broke", ago(8), ago(1), 6, 0, 0)
RETRIED = FAILING._replace(failed=0, retried=30)
UNREAD = UnreadPayload("web-1", "mail", 2, 1, ago(30), ago(2), 12)
LONG = LongRun("web-1", "default", "report", 4, ago(42), True)
RUN = RunLine.of(1, "sweep", ago(30), ago(29), 1, "failed", {}, "Boom", "it broke")


def test_all_is_well_only_with_a_worker_and_over_fresh_figures() -> None:
    assert judge(facts(due())) == (True, "All is well", [])
    assert judge(facts(due(), counted=16))[:2] == (False, "Nothing wrong is known: jobs were counted 16s ago")
    assert judge(facts(counted=16, workers=[worker(beat=2, state="stopped")])).text == "No worker is alive"
    assert not judge(facts(workers=[])).ok
    assert not judge(facts(pauses=[Pause("queue", "mail", ago(3), "ann", None)])).ok


@pytest.mark.parametrize(
    ("code", "seen", "said"),
    [
        ("locked", {"lockers": [LOCK]}, "Session 4711 (psql) of the user ann has locked the table holdfast.job"),
        ("no_worker", {"workers": []}, "No worker is alive, and 3 jobs are due"),
        ("worker_silent", {"workers": [worker(), SILENT], "held": {2: 7}}, "web-2 (process 7 on host)"),
        ("paused", {"pauses": [PAUSE]}, "for 2m 5s by ann (deploy); 3 due"),
        ("order_stopped", {"stops": [STOP]}, "account:7 is stopped since job 12, mail, failed with Boom; 39 jobs wait"),
        ("payload_unread", {"unread": [UNREAD]}, "12 jobs of mail with payload version 2 cannot be read by the worker"),
        ("sink_down", {"sinks": [SINK], "subscriptions": [relay(seconds=70)]}, "Try 5 failed, the next is in 8.0s"),
        ("kind_failing", {"errors": [FAILING]}, "6 of 6 jobs of mail failed for good within 5 minutes: Boom: it"),
        ("retry_storm", {"errors": [RETRIED]}, "mail is retried 120 times a minute: Boom: it broke."),
        ("relay_behind", {"subscriptions": [relay(events=9, seconds=61)]}, "9 events wait for the relay out"),
        ("relay_parked", {"subscriptions": [relay(parked=1)]}, "1 event of the relay out is parked"),
        ("relay_elsewhere", {"subscriptions": [relay(elsewhere=True, seconds=99)]}, "of another server"),
        ("no_reaper", {"workers": [worker(reaps=False)]}, "No live worker takes expired leases away"),
        ("runner_failing", {"runs": [RUN]}, "The last run of sweep failed: Boom."),
        ("census_old", {"counted": 301}, "last counted 5m 1s ago"),
    ],
)  # fmt: skip
def test_each_fault_is_named_and_nothing_else(code: str, seen: dict[str, Any], said: str) -> None:
    problem = only(facts(due(), **seen))
    assert (problem.code, said in problem.text) == (code, True), problem.text
    assert problem.text.endswith(".")
    assert problem.page
    assert problem.advice
    assert problem.since <= NOW


def test_a_kind_without_a_worker_is_named_and_its_wait_is_no_backlog() -> None:
    problem = only(facts(due(kind="pdf", oldest=400)))
    assert (problem.code, problem.about, problem.severity) == ("unserved_kind", "pdf", "critical")
    assert problem.text == "3 jobs of pdf are due in the queue default, and no live worker serves it."


def test_many_kinds_without_a_worker_are_one_line() -> None:
    problem = only(facts(*(due(kind=f"k{number}") for number in range(5))))
    assert "15 jobs of k0 and 4 other kinds are due, and no live worker serves them." in problem.text


def test_a_silent_worker_swallows_what_waits_behind_it() -> None:
    seen = facts(due(kind="pdf", oldest=400, stuck=3), due(oldest=400), workers=[worker(), SILENT], held={2: 7})
    problem = only(seen)
    assert problem.code == "worker_silent"
    assert "sent no heartbeat for 32s; it holds 7 jobs, and 6 due jobs wait behind it." in problem.text


def test_a_silent_worker_that_was_replaced_or_is_idle_for_long_is_not_named() -> None:
    assert codes(facts(workers=[worker(started=10, kinds=["mail", "pdf"]), SILENT])) == []
    assert codes(facts(workers=[worker(), worker("web-2", id=2, beat=700, state="silent")])) == []
    assert codes(facts(workers=[worker(), worker("web-2", id=2, beat=500, state="silent")])) == ["worker_silent"]


def test_the_last_worker_that_went_silent_is_named_instead_of_no_worker() -> None:
    assert codes(facts(due(kind="pdf"), due(), workers=[SILENT])) == ["worker_silent"]


def test_a_restart_of_seconds_raises_nothing() -> None:
    gone = [worker(f"w{number}", beat=3, state="stopped") for number in range(2)]
    lines = [due(kind="mail"), due(kind="pdf"), due(queue="other")]
    assert codes(facts(lines[0], workers=gone)) == []
    assert not judge(facts(lines[0], workers=gone)).ok, "but nobody says that all is well"
    assert codes(facts(lines[0], workers=[worker(beat=9, state="stopped")])) == ["no_worker"]
    other = worker("other", kinds=["thing"])
    assert codes(facts(lines[0], workers=[other, *gone])) == []
    assert codes(facts(lines[1], workers=[other, *gone])) == ["unserved_kind"], "no worker that ended served it"
    missing = causes(facts(lines[0], workers=[other, worker(beat=9, state="stopped")]))
    assert codes(facts(lines[0], workers=[other, *gone]), missing) == ["unserved_kind"], "and it stays"


def test_without_a_worker_nothing_else_is_said_of_jobs_and_relays() -> None:
    seen = facts(due(oldest=900, stuck=4), workers=[], sinks=[], subscriptions=[relay(events=9, seconds=900)])
    assert codes(seen) == ["no_worker"]


def test_a_lock_swallows_everything_that_waits() -> None:
    seen = facts(due(oldest=900, kind="pdf"), lockers=[LOCK], subscriptions=[])
    assert codes(seen) == ["locked"]
    assert codes(facts(lockers=[LOCK._replace(seconds=1.0)])) == []


def test_a_pause_swallows_the_backlog_of_the_queue_and_of_the_relay() -> None:
    pauses = [Pause("queue", "default", ago(900), "ann", None), Pause("relay", "out", ago(900), None, None)]
    seen = facts(
        due(oldest=900), due(kind="pdf", oldest=900), pauses=pauses, subscriptions=[relay(seconds=900, events=8)]
    )
    assert codes(seen) == ["paused", "paused"]
    commands = [problem.command for problem in causes(seen)]
    assert commands == ["holdfast queues resume default", "holdfast events resume out"]


def test_a_sink_that_fails_once_is_not_named() -> None:
    assert codes(facts(sinks=[SINK._replace(since=ago(3))])) == []
    assert codes(facts(sinks=[SINK._replace(tries=1)])) == []


def ended(failed: int, completed: int) -> list[KindEnds]:
    return [KindEnds("default", "mail", outcome, jobs, 0) for outcome, jobs in
            (("failed", failed), ("completed", completed))]  # fmt: skip


def test_a_kind_at_the_threshold_neither_comes_nor_goes_with_every_look() -> None:
    slow = FAILING._replace(failed=1, completed=30)
    raised = causes(facts(ends=ended(10, 90), errors=[slow]))
    assert [problem.code for problem in raised] == ["kind_failing"]
    assert codes(facts(ends=ended(9, 91), errors=[slow])) == []
    assert codes(facts(ends=ended(9, 91), errors=[slow]), raised) == ["kind_failing"]
    assert codes(facts(ends=ended(4, 96), errors=[slow]), raised) == []


def test_failures_of_one_version_name_it() -> None:
    old, new = worker(version="4.1"), worker("web-2", id=2, version="4.2", started=720)
    errors = [FAILING._replace(worker="web-2", failed=20)]
    problem = only(facts(ends=ended(40, 60), errors=errors, workers=[old, new]))
    assert problem.text.endswith("; all in version 4.2, deployed 12m 0s ago.")
    errors.append(FAILING._replace(worker="web-1", failed=20))
    assert "version" not in only(facts(ends=ended(40, 60), errors=errors, workers=[old, new])).text


def test_a_kind_that_fails_no_more_has_recovered() -> None:
    quiet = FAILING._replace(failed=0, completed=40, last=ago(16))
    assert codes(facts(ends=ended(100, 90), errors=[quiet])) == []
    assert codes(facts(ends=ended(100, 90))) == [], "its workers are new and report no failure"
    assert codes(facts(ends=ended(100, 90), workers=[worker(kinds=["pdf"])])) == ["kind_failing"]


def test_retries_that_most_attempts_survive_are_no_storm() -> None:
    assert codes(facts(errors=[RETRIED._replace(completed=31)])) == []
    raised = causes(facts(errors=[RETRIED]))
    assert codes(facts(errors=[RETRIED._replace(completed=60)]), raised) == ["retry_storm"]
    assert codes(facts(errors=[RETRIED._replace(retried=3)]), raised) == []


def test_long_jobs_that_take_every_slot_are_named_with_what_waits_behind_them() -> None:
    seen = facts(due(oldest=6), due(2, kind="pdf", oldest=400), running=[LONG], workers=[worker(kinds=["mail", "pdf"])])
    problem = only(seen)
    assert problem.code == "slow_kind"
    assert problem.text == (
        "4 jobs of report take every slot of the queue default, the longest for 42s; 5 due jobs wait behind them."
    )
    assert problem.command == "holdfast queues set default --concurrency 8"
    two = [worker(), worker("web-2", id=2)]
    assert codes(facts(due(oldest=6), running=[LONG], workers=two)) == [], "the other one has slots"
    assert codes(facts(due(oldest=6), running=[LONG._replace(full=False)])) == []


def test_a_backlog_that_shrinks_is_catching_up_and_says_until_when() -> None:
    earlier: dict[str, Any] = {"earlier_at": ago(21), "earlier_due": {"default": 2000}}
    ends = [KindEnds("default", "mail", "completed", 5000, 2250)]
    problem = only(facts(due(1640, oldest=100), ends=ends, **earlier))
    assert problem.code == "catching_up"
    assert "1,640 jobs are due, the first for 1m 40s; 7.0 a second come in and 25.0 end" in problem.text
    assert problem.text.endswith("so it is done in about 1m 31s.")
    growing = only(facts(due(2100, oldest=100), ends=ends, **earlier))
    assert (growing.code, growing.severity) == ("backlog", "warning")
    assert only(facts(due(2100, oldest=301), **earlier)).severity == "critical"
    assert codes(facts(due(10, oldest=20))) == []
    assert codes(facts(due(10, oldest=20)), [growing]) == ["backlog"]
    assert codes(facts(due(10, oldest=14)), [growing]) == []


def test_many_of_one_code_end_with_their_number() -> None:
    pauses = [Pause("queue", f"q{number}", ago(3), None, None) for number in range(8)]
    found = causes(facts(pauses=pauses))
    assert len(found) == 5
    assert found[-1].text.endswith("And 3 more like this.")


def test_since_is_kept_where_no_fact_tells_it() -> None:
    first = only(facts(subscriptions=[relay(parked=1)]))
    old = first.model_copy(update={"since": ago(77)})
    assert only(facts(subscriptions=[relay(parked=1)]), [old]).since == ago(77)


def test_critical_ones_come_first() -> None:
    seen = facts(due(kind="pdf"), pauses=[Pause("queue", "mail", ago(3), None, None)])
    assert codes(seen) == ["unserved_kind", "paused"]


def test_each_rule_finds_nothing_in_a_healthy_fleet() -> None:
    seen = facts(due(40, oldest=3), subscriptions=[relay(events=3, seconds=1)], errors=[FAILING._replace(failed=1)])
    assert causes(seen) == []
    assert len(RULES) == 14
