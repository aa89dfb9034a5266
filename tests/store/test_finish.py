from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest

from holdfast._drivers import run_sync
from holdfast._logs.failure import CODE_LIMIT, TEXT_LIMIT, Failure
from holdfast._model.codec import JsonCodec
from holdfast._model.new_job import OrderKey
from holdfast._model.outcome import Completed, Failed, Released, Rescheduled, Retried
from holdfast._model.unique import Unique
from holdfast._store.finish import Ending, finish_jobs
from holdfast._store.search import cancel_job
from tests.kit.workers import (
    CANCELLED,
    COMPLETED,
    FAILED,
    FAILURE,
    RELEASED,
    RESCHEDULED,
    RETRIED,
    Worker,
    enqueue,
    job,
    number,
    statuses,
)

if TYPE_CHECKING:
    from holdfast._model.outcome import Outcome
    from tests.kit.workers import Connect

HISTORY = (
    "status::text, attempt, max_attempts, priority, queue, kind, payload::text, headers::text, result::text, "
    "order_key, order_block, order_seq, unique_key, last_error_code, last_error, worker_id"
)


def history(worker: Worker, family: str = "job_history", columns: str = HISTORY) -> list[Any]:
    return worker.conn.execute(f"SELECT {columns} FROM holdfast.{family} ORDER BY id".encode()).fetchall()


def attempts(worker: Worker) -> list[Any]:
    rows = worker.conn.execute(
        "SELECT attempt, outcome::text, error_code, error FROM holdfast.attempt ORDER BY ended_at"
    )
    return rows.fetchall()


@pytest.mark.parametrize("careful", [False, True])
def test_what_history_keeps(connect: Connect, careful: bool) -> None:
    worker = Worker(connect(), queues=["q"])
    new = job("k", '{"n":1}', queue="q", priority=1, headers={"a": "b"}, unique=Unique("u"), max_attempts=9)
    enqueue(worker.conn, new)
    times = "id, created_at, available_at, chain_id, replay_of, payload_version"
    live = history(worker, "job", times)
    (claimed,) = worker.claim()
    result = JsonCodec().encode({"x": [1, "\x00"]})
    assert worker.end([claimed], Completed(result), careful=careful) == {claimed.id: "completed"}
    kept = (
        "completed",
        1,
        9,
        1,
        "q",
        "k",
        '{"n":1}',
        '{"a":"b"}',
        result,
        None,
        None,
        None,
        "u",
        None,
        None,
        worker.id,
    )
    assert history(worker) == [kept]
    assert history(worker, columns=times) == live
    assert number(
        worker.conn, "SELECT finished_at BETWEEN available_at AND clock_timestamp() FROM holdfast.job_history"
    )
    assert number(worker.conn, "SELECT count(*) FROM holdfast.job") == 0


def test_a_keyed_job_in_history(connect: Connect) -> None:
    worker = Worker(connect())
    (first,) = enqueue(worker.conn, job(order_key=OrderKey("o", on_failure="block")))
    worker.end(worker.claim(), FAILED)
    kept = history(worker, "job_failed", "order_key, order_block, order_seq, status::text, last_error_code, last_error")
    assert kept == [("o", True, first, "failed", FAILURE.code, FAILURE.text)]
    assert history(worker) == []


@pytest.mark.parametrize(
    ("outcome", "status", "attempt"),
    [
        (COMPLETED, "completed", 1),
        (FAILED, "failed", 1),
        (CANCELLED, "cancelled", 1),
        (RETRIED, "pending", 1),
        (RESCHEDULED, "pending", 0),
        (RELEASED, "pending", 0),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_becomes_of_the_job(connect: Connect, outcome: Outcome, status: str, attempt: int) -> None:
    worker = Worker(connect())
    (first,) = enqueue(worker.conn, job())
    assert worker.end(worker.claim(), outcome) == {first: status}
    assert statuses(worker.conn) == {first: status}
    family = {"completed": "job_history", "cancelled": "job_history", "failed": "job_failed"}.get(status, "job")
    assert history(worker, family, "attempt") == [(attempt,)]
    if family == "job":
        assert history(worker, "job", "locked_by, lock_token, locked_until") == [(None, None, None)]


@pytest.mark.parametrize("kind", [Released, Rescheduled, lambda wait: Retried(wait, FAILURE)])
def test_delays_run_from_the_finish(connect: Connect, kind: Any) -> None:
    worker = Worker(connect())
    enqueue(worker.conn, job())
    claimed = worker.claim()
    before = number(worker.conn, "SELECT clock_timestamp()")
    worker.end(claimed, kind(timedelta(minutes=5)))
    waits = number(worker.conn, "SELECT available_at FROM holdfast.job") - before
    assert timedelta(minutes=5) <= waits < timedelta(minutes=6)
    assert worker.claim() == []


@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=-9, minutes=-30))])
def test_a_reschedule_names_a_moment(connect: Connect, zone: timezone) -> None:
    worker = Worker(connect())
    enqueue(worker.conn, job())
    moment = datetime.now(zone) + timedelta(days=800, microseconds=1)
    worker.end(worker.claim(), Rescheduled(moment))
    assert number(worker.conn, "SELECT available_at FROM holdfast.job") == moment
    assert number(worker.conn, "SELECT later FROM holdfast.job"), "it stands apart until then"
    assert worker.claim() == []


@pytest.mark.parametrize("moment", [datetime.min.replace(tzinfo=UTC), datetime(2020, 2, 29, tzinfo=UTC)])
def test_a_moment_in_the_past_is_now(connect: Connect, moment: datetime) -> None:
    worker = Worker(connect())
    (first,) = enqueue(worker.conn, job())
    claimed = worker.claim()
    before = number(worker.conn, "SELECT clock_timestamp()")
    worker.end(claimed, Rescheduled(moment))
    assert number(worker.conn, "SELECT available_at FROM holdfast.job") >= before, "never below the claim floors"
    assert [again.id for again in worker.claim()] == [first]


def test_the_last_moment_of_the_calendar_is_kept(connect: Connect) -> None:
    worker = Worker(connect())
    (first,) = enqueue(worker.conn, job())
    assert worker.end(worker.claim(), Rescheduled(datetime.max.replace(tzinfo=UTC))) == {first: "pending"}


def test_the_last_attempt_is_not_retried(connect: Connect) -> None:
    worker = Worker(connect())
    (first,) = enqueue(worker.conn, job(max_attempts=1))
    assert worker.end(worker.claim(), RETRIED) == {first: "failed"}


@pytest.mark.parametrize("outcome", [RETRIED, RESCHEDULED, RELEASED], ids=lambda value: type(value).__name__)
def test_a_job_asked_to_stop_does_not_come_back(connect: Connect, outcome: Outcome) -> None:
    worker = Worker(connect())
    (first,) = enqueue(worker.conn, job())
    claimed = worker.claim()
    assert run_sync(worker.conn, cancel_job(first)) == "requested"
    assert worker.end(claimed, outcome) == {first: "cancelled"}


def test_a_row_for_every_outcome_but_a_first_completion(connect: Connect) -> None:
    worker = Worker(connect())
    enqueue(worker.conn, job())
    worker.end(worker.claim())
    assert attempts(worker) == []
    enqueue(worker.conn, job(max_attempts=9))
    for outcome in (RETRIED, RELEASED, RESCHEDULED, COMPLETED):
        worker.end(worker.claim(), outcome)
    for last in (FAILED, CANCELLED):
        enqueue(worker.conn, job())
        worker.end(worker.claim(), last)
    assert attempts(worker) == [
        (1, "retry", FAILURE.code, FAILURE.text),
        (2, "released", None, None),
        (2, "reschedule", None, None),
        (2, "completed", None, None),
        (1, "failed", FAILURE.code, FAILURE.text),
        (1, "cancelled", None, None),
    ]
    fenced = worker.conn.execute("SELECT DISTINCT worker_id, lock_token IS NULL FROM holdfast.attempt").fetchall()
    assert fenced == [(worker.id, False)]


def test_tallies_are_appended_by_queue_kind_and_outcome(connect: Connect) -> None:
    worker = Worker(connect(), "a", "b")
    enqueue(worker.conn, *[job("a") for _ in range(5)], *[job("b") for _ in range(3)])
    claimed = worker.claim()
    by_kind = {kind: [one for one in claimed if one.kind == kind] for kind in "ab"}
    endings = [Ending(one, COMPLETED) for one in by_kind["a"][:4] + by_kind["b"][:1]]
    endings += [Ending(by_kind["a"][4], FAILED), *(Ending(one, RETRIED) for one in by_kind["b"][1:])]
    run_sync(worker.conn, finish_jobs(worker.id, endings))
    rows = worker.conn.execute("SELECT kind, outcome::text, jobs FROM holdfast.tally ORDER BY 1, 2").fetchall()
    assert rows == [("a", "completed", 4), ("a", "failed", 1), ("b", "completed", 1), ("b", "retry", 2)]
    assert number(worker.conn, "SELECT bool_and(minute = date_trunc('minute', minute)) FROM holdfast.tally")


def test_errors_are_bounded_and_the_last_one_stays(connect: Connect) -> None:
    worker = Worker(connect())
    enqueue(worker.conn, job(max_attempts=9))
    worker.end(worker.claim(), Retried(timedelta(0), Failure("c" * 500, "ü" * 100_000)))
    limits = "char_length(last_error_code), char_length(last_error)"
    assert history(worker, "job", limits) == [(CODE_LIMIT, TEXT_LIMIT)]
    worker.end(worker.claim(), Retried(timedelta(0), Failure("Second", "again")))
    worker.end(worker.claim(), RELEASED)
    assert history(worker, "job", "last_error_code, last_error") == [("Second", "again")]
    worker.end(worker.claim())
    assert history(worker, columns="last_error_code, last_error") == [("Second", "again")]


def test_an_error_with_odd_characters(connect: Connect) -> None:
    worker = Worker(connect())
    enqueue(worker.conn, job())
    worker.end(worker.claim(), Failed(Failure("E", "nul \x00, lone \ud800, quote ' \" \\")))
    assert len(history(worker, "job_failed")) == 1


@pytest.mark.parametrize("jobs", [1, 2, 500])
@pytest.mark.parametrize("results", ["none", "some", "all"])
def test_results_go_to_their_own_jobs(connect: Connect, jobs: int, results: str) -> None:
    worker = Worker(connect())
    enqueue(worker.conn, *[job() for _ in range(jobs)])
    claimed = worker.claim(jobs)
    result = {
        one.id: str(one.id) if results == "all" or (results == "some" and one.id % 2) else None for one in claimed
    }
    endings = [Ending(one, Completed(result[one.id])) for one in claimed]
    assert run_sync(worker.conn, finish_jobs(worker.id, endings)) == {}
    assert dict(history(worker, columns="id, result::text")) == result


def test_tokens_of_several_claims_in_one_batch(connect: Connect) -> None:
    worker = Worker(connect())
    enqueue(worker.conn, *[job() for _ in range(6)])
    claimed = [one for _ in range(3) for one in worker.claim(2)]
    assert len({one.token for one in claimed}) == 3
    assert set(worker.end(claimed[::-1]).values()) == {"completed"}
    assert len(history(worker)) == 6


def test_nothing_is_a_batch_too(connect: Connect) -> None:
    worker = Worker(connect())
    assert run_sync(worker.conn, finish_jobs(worker.id, [])) == {}


@pytest.mark.parametrize("result", [None, "1"])
def test_each_job_keeps_how_long_it_ran(connect: Connect, result: str | None) -> None:
    worker = Worker(connect())
    enqueue(worker.conn, *[job() for _ in range(7)])
    claimed = worker.claim(7)
    times = {one.id: n for n, one in zip([5, 0, 3_000_000_000, 40, 1, 7, None], claimed, strict=True)}
    # In the order in which they ended, which is not that of their ids.
    ended = [*reversed(claimed[:3]), *claimed[3:]]
    endings = [Ending(one, Completed(result), None if (ms := times[one.id]) is None else ms / 1000) for one in ended]
    assert run_sync(worker.conn, finish_jobs(worker.id, endings)) == {}
    kept = worker.conn.execute("SELECT id, ran_ms FROM holdfast.job_history").fetchall()
    assert dict(kept) == {one: ms and min(ms, 2_000_000_000) for one, ms in times.items()}


def test_one_time_stands_for_all(connect: Connect) -> None:
    worker = Worker(connect())
    enqueue(worker.conn, *[job() for _ in range(3)])
    endings = [Ending(one, COMPLETED, 0.012) for one in worker.claim(3)]
    statement = finish_jobs(worker.id, endings)
    assert statement.params["ran"] == "{12.0}"
    run_sync(worker.conn, statement)
    assert history(worker, columns="ran_ms") == [(12,)] * 3
