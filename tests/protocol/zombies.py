"""Zombies: a worker that lost a job without noticing tries everything it could still write."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast._drivers import run_sync
from holdfast._logs.failure import Failure
from holdfast._model.job import Progress
from holdfast._model.new_job import Envelope, NewJob
from holdfast._model.outcome import Cancelled, Completed, Failed, Outcome, Released, Rescheduled, Retried
from holdfast._model.work import Lease
from holdfast._store.finish import Ending, complete_job, finish_jobs
from holdfast._store.lease import Held, renew_leases, report_progress
from holdfast._store.statement import Statement
from holdfast._store.step import (
    NewStep,
    count_attempts_anew,
    forget_failures,
    gather_jobs,
    save_step,
    save_steps,
    take_message,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import psycopg

    from holdfast._store.claim import ClaimedJob
    from holdfast._store.statement import Row

FAILURE = Failure("Zombie", "it should be dead")
OUTCOMES: dict[str, Outcome] = {
    "completed": Completed('"zombie"'),
    "retried": Retried(timedelta(0), FAILURE),
    "rescheduled": Rescheduled(timedelta(0)),
    "released": Released(),
    "failed": Failed(FAILURE),
    "cancelled": Cancelled(FAILURE),
}
TABLES = ("job", "job_history", "job_failed", "attempt", "order_stop", "unique_window", "tally", "blocker", "step")
CHILD = NewJob[Any](Envelope("zombie"), "{}")
FOLLOWING = CHILD.as_json()

Write = "Callable[[int, ClaimedJob], Statement[dict[Held, Any]]]"


def _finish(outcome: Outcome, *, careful: bool) -> Callable[[int, ClaimedJob], Statement[dict[Held, Any]]]:
    return lambda worker, job: finish_jobs(worker, [Ending(job, outcome)], careful=careful)


def _complete(worker: int, job: ClaimedJob) -> Statement[dict[Held, Any]]:
    held = Held(job.id, job.token)
    statement = complete_job(worker, held, '"zombie"', FOLLOWING)
    return Statement(statement.sql, statement.params, lambda rows: {held: statement.read(rows)})


def _report(worker: int, job: ClaimedJob) -> Statement[dict[Held, Any]]:
    statement = report_progress(worker, {Held(job.id, job.token): Progress(0.5, "half dead")})
    return Statement(statement.sql, statement.params, lambda rows: dict.fromkeys(statement.read(rows), "written"))


def _of_story(
    statement: Callable[[int, Held], Statement[Any]],
) -> Callable[[int, ClaimedJob], Statement[dict[Held, Any]]]:
    def write(worker: int, job: ClaimedJob) -> Statement[dict[Held, Any]]:
        held = Held(job.id, job.token)
        made = statement(worker, held)

        def read(rows: Sequence[Row]) -> dict[Held, Any]:
            answer = made.read(rows)
            (answer,) = answer if isinstance(answer, list) else [answer]
            return {held: getattr(answer, "answer", answer)}

        return Statement(made.sql, made.params, read)

    return write


AT = ("step", None)
FAILED_AT = ("failed step", None)
# A transaction that has committed, as PostgreSQL sees it: the one of frozen rows.
COMMITTED = "2"

# Every statement that writes after a claim, by the SQL function that it calls and what it would do.
WRITES: dict[str, Callable[[int, ClaimedJob], Statement[dict[Held, Any]]]] = {
    "renew_leases": lambda worker, job: renew_leases(worker, {Held(job.id, job.token): Lease(seconds=7200)}),
    "complete_jobs": _finish(Completed('"zombie"'), careful=False),
    **{f"settle_batch, {name}": _finish(outcome, careful=True) for name, outcome in OUTCOMES.items()},
    "settle_batch, going on": _finish(Completed(None, FOLLOWING), careful=False),
    "settle_batch, in a transaction of its own": _complete,
    "report_progress": _report,
    "save_steps": _of_story(lambda worker, held: save_steps(worker, [NewStep(held, AT, "1")])),
    "save_step": _of_story(lambda worker, held: save_step(worker, held, AT, "1", beside=False)),
    "forget_failures": _of_story(lambda worker, held: forget_failures(worker, held, [FAILED_AT])),
    "take_message": _of_story(lambda worker, held: take_message(worker, held, AT, None, beside=False)),
    "gather_jobs": _of_story(lambda worker, held: gather_jobs(worker, held, AT, [CHILD], beside=False)),
    "count_attempts_anew": _of_story(lambda worker, held: count_attempts_anew(worker, held, [COMMITTED])),
}


@dataclass(frozen=True, slots=True)
class Deed:
    """The result of one write."""

    write: str
    answer: str | None
    changed: list[str]
    """The tables in which something is not as it was."""


def images(conn: psycopg.Connection[Any]) -> dict[str, list[tuple[str]]]:
    """Return everything, row by row, as text, with the transaction that wrote it: no write goes unseen."""
    return {
        table: conn.execute(f"SELECT t.xmin::text || t::text FROM holdfast.{table} t ORDER BY 1".encode()).fetchall()
        for table in TABLES
    }


def rise(conn: psycopg.Connection[Any], worker: int, job: ClaimedJob) -> list[Deed]:
    """Let a worker that once claimed the job write everything there is to write; tell what came of it."""
    deeds = []
    for name, write in WRITES.items():
        before = images(conn)
        answers = run_sync(conn, write(worker, job))
        after = images(conn)
        changed = [table for table in TABLES if before[table] != after[table]]
        answer = answers.get(Held(job.id, job.token))
        deeds.append(Deed(name, None if answer is None else str(answer), changed))
    return deeds


def refused(reason: str) -> list[Deed]:
    """Return what all of it must come to."""
    return [Deed(name, None if name == "report_progress" else reason, []) for name in WRITES]
