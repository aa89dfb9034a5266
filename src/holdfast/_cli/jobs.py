"""Look at jobs, and act on them: on single ones, or on those that a filter finds."""

from __future__ import annotations

import argparse
import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import psycopg

from holdfast._cli import selection, session, table
from holdfast._cli.operator import audited
from holdfast._cli.session import CommandError
from holdfast._drivers import run_sync
from holdfast._model.errors import AlreadyReplayed, DuplicateJob, InvalidJob
from holdfast._model.retry import tries
from holdfast._store.inspect import (
    MOST,
    STATUSES,
    Filter,
    delete_job,
    list_attempts,
    list_jobs,
    list_replays,
    read_job,
    read_worker,
)
from holdfast._store.search import cancel_job, replay_job, resume_order_key
from holdfast._store.worker import is_served, list_workers, served_runtime

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from holdfast._store.inspect import AttemptRow, JobRow
    from holdfast._store.statement import Statement

T = TypeVar("T")

_COLUMNS = ("id", "status", "kind", "queue", "attempt", "created", "due or ended", "error")
_LARGEST_ID = 2**63 - 1

Connection: TypeAlias = "psycopg.Connection[Any]"


class JobsDone(NamedTuple):
    """The result of one action on one job."""

    id: int
    result: str
    says: str


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="action", required=True)
    _configure_list(_action(actions, "list", "list the newest jobs", _list))
    _action(actions, "show", "tell the whole story of a job", _show).add_argument("id", type=_id, metavar="ID")
    for name, help_, act in (
        ("retry", "run dead letters again, as new jobs", _retry),
        ("cancel", "call jobs off; one that runs is asked to stop", _cancel),
        ("delete", "delete jobs that wait, and keep nothing of them", _delete),
    ):
        own = _action(actions, name, help_, _acting(act))
        own.add_argument("ids", type=_id, metavar="ID", nargs="*")
        own.set_defaults(refuse=own.error)
        selection.configure(own)
        if name == "retry":
            own.add_argument("--again", action="store_true", help="also what was replayed before; only by ids")
    resume = _action(actions, "resume-key", "let an order key go on that a failed job has stopped", _resume_key)
    resume.add_argument("key", metavar="KEY")


def run(arguments: argparse.Namespace) -> int:
    if hasattr(arguments, "ids"):
        which = selection.given(arguments)
        if bool(arguments.ids) == bool(which):
            arguments.refuse("name jobs by their ids, or by what they have in common, and not both")
        if which is not None:
            return asyncio.run(selection.act(arguments, which))
    if arguments.action == "delete" and not arguments.yes:
        raise CommandError("deleting keeps nothing of a job: give --yes, or cancel the jobs instead", status=2)
    with session.opened(arguments) as conn:
        status: int = arguments.act(conn, arguments)
        return status


def _action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    help_: str,
    act: Callable[[Connection, argparse.Namespace], int],
) -> argparse.ArgumentParser:
    own = actions.add_parser(name, help=help_, description=f"{help_[0].upper()}{help_[1:]}.")
    own.set_defaults(act=act)
    session.configure(own)
    table.configure(own)
    return own


def _configure_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--status", choices=STATUSES)
    parser.add_argument("--kind", metavar="KIND")
    parser.add_argument("--queue", metavar="QUEUE")
    parser.add_argument("--order-key", metavar="KEY")
    parser.add_argument("--limit", type=_limit, default=50, metavar="N", help=f"at most {MOST} (default: 50)")


def _id(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= _LARGEST_ID:
        raise argparse.ArgumentTypeError(f"{text!r} is not the id of a job")
    return int(text)


def _limit(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST:
        raise argparse.ArgumentTypeError(f"{text!r}: from 1 to {MOST}")
    return int(text)


def _list(conn: Connection, arguments: argparse.Namespace) -> int:
    which = Filter(status=arguments.status, kind=arguments.kind, queue=arguments.queue, order_key=arguments.order_key)
    conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ  # otherwise a job that ends meanwhile is listed twice
    with session.bounded(conn):
        found = [job for question in list_jobs(which, arguments.limit) for job in run_sync(conn, question)]
    jobs = sorted(found, key=lambda job: job.id, reverse=True)[: arguments.limit]
    if arguments.json:
        table.print_json([job._asdict() for job in jobs])
    elif jobs:
        table.print_table(_COLUMNS, [_line(job) for job in jobs])
        if len(jobs) == arguments.limit:
            print(f"The newest {len(jobs)}. There may be more.")
    else:
        print("No such jobs.")
    return 0


def _line(job: JobRow) -> tuple[object, ...]:
    attempt, when = tries(job.attempt, job.max_attempts), job.finished_at or job.available_at
    return job.id, job.status, job.kind, job.queue, attempt, job.created_at, when, job.error_code


def _show(conn: Connection, arguments: argparse.Namespace) -> int:
    job = session.ask(conn, read_job(arguments.id))
    if job is None:
        raise CommandError(f"there is no job {arguments.id}: it never was, was deleted, or its history has aged out")
    attempts = session.ask(conn, list_attempts(arguments.id))
    holder = job.get("locked_by") or job.get("worker_id")
    worker = session.ask(conn, read_worker(holder)) if holder else None
    original = session.ask(conn, read_job(job["replay_of"])) if job["replay_of"] else None
    replays = session.ask(conn, list_replays(arguments.id))
    served = None
    if job["status"] == "pending":
        served = is_served(job["queue"], job["kind"], session.ask(conn, list_workers(latest=0)))
    runtime = session.ask(conn, served_runtime(job["kind"], job["queue"]))
    if arguments.json:
        table.print_json(
            {
                "job": job,
                "served": served,
                "max_runtime": runtime and runtime._asdict(),
                "worker": worker and worker._asdict(),
                "attempts": [attempt._asdict() for attempt in attempts],
                "replay_of": original,
                "replays": [replay._asdict() for replay in replays],
            }
        )
        return 0
    told = job | ({"max_attempts": "no limit"} if job["max_attempts"] is None else {})
    table.print_table(("field", "value"), [(name, value) for name, value in told.items() if value is not None])
    if served is False:
        print(f"\nNo live worker takes {job['kind']} from the queue {job['queue']}.")
    if runtime is not None:
        why = "three leases, the default" if runtime.by_default else "max_runtime of its kind"
        print(f"\nAn attempt may run for {runtime.ms / 1000:g} s ({why}).")
    if job.get("suspect") is not None:
        alone = "alone" if job["suspect"] else "with no other job but those of its last worker"
        print(f"\nIts worker was lost while it ran: it runs apart, {alone}, until it ends in another way.")
    if worker is not None:
        ended = f", {worker.stop_reason} {table.text(worker.stopped_at)}" if worker.stopped_at else ""
        print(f"\nWorker {worker.id}: {worker.name}{ended}")
    if attempts:
        print(f"\nAttempts ({len(attempts)})")
        table.print_table(
            ("attempt", "outcome", "started", "seconds", "ended", "worker", "error"),
            [
                (a.attempt, a.outcome, a.started_at, a.seconds, a.ended_at, a.worker_name, a.error or a.error_code)
                for a in attempts
            ],
        )
        _print_traceback(attempts)
    else:
        print("\nNo attempt has ended.")
    if original is not None:
        print(f"\nReplays {original['id']}, which {original['status']}.")
    if replays:
        print("\nReplayed as")
        table.print_table(("id", "status", "created"), replays)
    return 0


def _print_traceback(attempts: Sequence[AttemptRow]) -> None:
    """Print the last traceback. All stored ones are in the JSON output."""
    last = next((attempt for attempt in reversed(attempts) if attempt.traceback), None)
    if last is not None and last.traceback:
        print(f"\nTraceback of attempt {last.attempt}")
        for line in last.traceback.split("\n"):
            print(f"  {table.text(line)}" if line else "")


def _acting(act: Callable[..., JobsDone]) -> Callable[[Connection, argparse.Namespace], int]:
    """Return a function that acts on each job in its own transaction and prints each result."""

    def acting(conn: Connection, arguments: argparse.Namespace) -> int:
        act_ = partial(act, again=True) if getattr(arguments, "again", False) else act
        done = [act_(conn, job_id) for job_id in dict.fromkeys(arguments.ids)]
        if arguments.json:
            table.print_json([one._asdict() for one in done])
        else:
            for one in done:
                print(f"{one.id}: {one.says}")
        return 1 if any(one.result == "refused" for one in done) else 0

    return acting


def _act(conn: Connection, action: str, job_id: int, statement: Statement[T], *, undone: Collection[object]) -> T:
    return audited(conn, statement, f"jobs.{action}", str(job_id), undone=undone, jobs=1)


def _retry(conn: Connection, job_id: int, *, again: bool = False) -> JobsDone:
    try:
        made = _act(conn, "retry", job_id, replay_job(job_id, again=again), undone=[None])
    except AlreadyReplayed as error:
        return JobsDone(job_id, "refused", f"replayed already, as job {error.replay_id}: --again replays it once more")
    except DuplicateJob as error:
        return JobsDone(job_id, "refused", f"another live job has its unique key: {error.existing_id}")
    except InvalidJob as error:
        return JobsDone(job_id, "refused", f"comes after other chains: {error}")
    if made is None:
        return JobsDone(job_id, "refused", f"{_state(conn, job_id)}: only a dead letter (failed) can be retried")
    return JobsDone(job_id, "retried", f"runs again as job {made}")


def _cancel(conn: Connection, job_id: int) -> JobsDone:
    match _act(conn, "cancel", job_id, cancel_job(job_id), undone=["not_found"]):
        case "cancelled":
            return JobsDone(job_id, "cancelled", "cancelled")
        case "requested":
            return JobsDone(
                job_id, "requested", "will be cancelled: its worker was asked to stop, or it leaves in its turn"
            )
        case "not_found":
            return JobsDone(job_id, "refused", f"{_state(conn, job_id)}: only a live job can be cancelled")


def _delete(conn: Connection, job_id: int) -> JobsDone:
    match _act(conn, "delete", job_id, delete_job(job_id), undone=["not_found", "processing"]):
        case "deleted":
            return JobsDone(job_id, "deleted", "deleted")
        case "processing":
            return JobsDone(job_id, "refused", "is processing: cancel it, or wait until it has ended")
        case "not_found":
            return JobsDone(
                job_id, "refused", f"{_state(conn, job_id)}: only a job that waits can be deleted; history ages out"
            )


def _resume_key(conn: Connection, arguments: argparse.Namespace) -> int:
    key: str = arguments.key
    if not audited(conn, resume_order_key(key), "order_key.resume", key, undone=[False]):
        raise CommandError(f"the order key {key} is not stopped")
    if arguments.json:
        table.print_json({"key": key, "action": arguments.action})
    else:
        print(f"{key}: goes on with its next job")
    return 0


def _state(conn: Connection, job_id: int) -> str:
    job = session.ask(conn, read_job(job_id))
    return "there is no such job" if job is None else f"is {job['status']}"
