"""Look at jobs, and act on them: on single ones, or on those that a filter finds."""

from __future__ import annotations

import asyncio
import shlex
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import ValidationError

from holdfast._cli import arguments as args
from holdfast._cli import session, table
from holdfast._cli.session import CommandError
from holdfast._model.retry import tries
from holdfast._ops.wording import counted
from holdfast._store.inspect import (
    MOST,
    STATUSES,
    Filter,
    list_attempts,
    list_jobs,
    list_replays,
    read_job,
    read_waiting,
    read_worker,
)
from holdfast._store.search import MOST_ACTED_ON
from holdfast._store.worker import is_served, list_workers, served_runtime

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from holdfast._ops.requests import JobFilter
    from holdfast._ops.responses.job import JobActionResult, JobLine
    from holdfast._ops.service import Service
    from holdfast._store.inspect import AttemptRow, JobRow, WaitingRow
    from holdfast._store.search import Acted

    Act: TypeAlias = Callable[[Service, argparse.Namespace], Awaitable[int]]

_COLUMNS = ("id", "status", "kind", "queue", "attempt", "created", "due or ended", "error")
_ACTIONS = {
    "retry": "run dead letters again, as new jobs",
    "cancel": "call jobs off; one that runs is asked to stop",
    "delete": "delete jobs that wait, and keep nothing of them",
}
_DONE = {"retry": "retried", "cancel": "cancelled, or asked to stop", "delete": "deleted"}
_ONLY = {
    "retry": "only a dead letter (failed) can be retried",
    "cancel": "only a live job can be cancelled",
    "delete": "only a job that waits can be deleted; history ages out",
}
_FILTERS = {
    "kind": "KIND",
    "queue": "QUEUE",
    "order_key": "KEY",
    "unique_key": "KEY",
    "error_code": "CODE",
    "text": "TEXT",
}
_MOST = 100
_ID = args.whole(1, args.LARGEST_ID, "the id of a job")


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="action", required=True)
    own = args.add_action(actions, "list", "list the newest jobs", _list)
    own.add_argument("--status", choices=STATUSES)
    own.add_argument("--kind", metavar="KIND")
    own.add_argument("--queue", metavar="QUEUE")
    own.add_argument("--order-key", metavar="KEY")
    own.add_argument("--limit", type=args.whole(1, MOST), default=50, metavar="N", help=f"at most {MOST} (default: 50)")
    own = args.add_action(actions, "show", "tell the whole story of a job", _show)
    own.add_argument("id", type=_ID, metavar="ID")
    for name, help_ in _ACTIONS.items():
        own = args.add_action(actions, name, help_, _act_by_id)
        own.add_argument("ids", type=_ID, metavar="ID", nargs="*")
        own.set_defaults(refuse=own.error)
        _configure_filter(own)
        if name == "retry":
            own.add_argument("--again", action="store_true", help="also what was replayed before; only by ids")
    own = args.add_action(actions, "resume-key", "let an order key go on that a failed job has stopped", _resume_key)
    own.add_argument("key", metavar="KEY")


def _configure_filter(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("instead of ids", "what the jobs have in common; without --yes they are shown")
    group.add_argument("--status", choices=STATUSES)
    for name, metavar in _FILTERS.items():
        group.add_argument(f"--{name.replace('_', '-')}", metavar=metavar)
    limit = f"at once; at most {MOST_ACTED_ON} (default: {_MOST})"
    group.add_argument("--limit", type=args.whole(1, MOST_ACTED_ON), default=_MOST, metavar="N", help=limit)
    parser.add_argument("--yes", action="store_true", help="yes, do it")


def run(arguments: argparse.Namespace) -> int:
    if hasattr(arguments, "ids"):
        arguments.filter = _filter(arguments)
        if bool(arguments.ids) == bool(arguments.filter):
            arguments.refuse("name jobs by their ids, or by what they have in common, and not both")
        if arguments.filter:
            arguments.act = _act_by_filter
        elif arguments.action == "delete" and not arguments.yes:
            raise CommandError("deleting keeps nothing of a job: give --yes, or cancel the jobs instead", status=2)
        elif len(arguments.ids) > MOST_ACTED_ON:
            raise CommandError(f"at most {MOST_ACTED_ON} jobs at once", status=2)
    return asyncio.run(_run(arguments))


async def _run(arguments: argparse.Namespace) -> int:
    async with session.service(arguments) as service:
        act: Act = arguments.act
        return await act(service, arguments)


async def _list(service: Service, arguments: argparse.Namespace) -> int:
    which = Filter(status=arguments.status, kind=arguments.kind, queue=arguments.queue, order_key=arguments.order_key)
    async with service.reading() as transaction:
        found = [job for part in list_jobs(which, arguments.limit) for job in await transaction.run(part)]
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


def _line(job: JobRow | JobLine) -> tuple[object, ...]:
    attempt, when = tries(job.attempt, job.max_attempts), job.finished_at or job.available_at
    return job.id, job.status, job.kind, job.queue, attempt, job.created_at, when, job.error_code


async def _show(service: Service, arguments: argparse.Namespace) -> int:
    async with service.reading() as transaction:
        read = transaction.run
        job = await read(read_job(arguments.id))
        if job is None:
            raise CommandError(
                f"job {arguments.id} does not exist: it was never committed, was deleted, or its history has expired. "
                "See `holdfast jobs list`"
            )
        attempts = await read(list_attempts(arguments.id))
        holder = job.get("locked_by") or job.get("worker_id")
        worker = await read(read_worker(holder)) if holder else None
        original = await read(read_job(job["replay_of"])) if job["replay_of"] else None
        replays = await read(list_replays(arguments.id))
        waiting = await read(read_waiting(arguments.id))
        served = None
        if job["status"] == "pending":
            served = is_served(job["queue"], job["kind"], await read(list_workers(latest=0)))
        runtime = await read(served_runtime(job["kind"], job["queue"]))
    if arguments.json:
        table.print_json(
            {
                "job": job,
                "served": served,
                "waiting": waiting and waiting._asdict(),
                "max_runtime": runtime and runtime._asdict(),
                "worker": worker and worker._asdict(),
                "attempts": [attempt._asdict() for attempt in attempts],
                "replay_of": original,
                "replays": [replay._asdict() for replay in replays],
            }
        )
        return 0
    fields = job | ({"max_attempts": "no limit"} if job["max_attempts"] is None else {})
    table.print_table(("field", "value"), [(name, value) for name, value in fields.items() if value is not None])
    for reason in _reasons(job, waiting) if waiting is not None else ():
        print(f"\n{reason}")
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


def _reasons(job: dict[str, Any], waiting: WaitingRow) -> Iterator[str]:
    """Yield why a job waits."""
    if waiting.due_at is not None:
        yield f"It is due at {table.text(waiting.due_at)}."
    if waiting.paused:
        yield f"The queue {job['queue']} is paused: holdfast queues resume {job['queue']}"
    if waiting.blockers is not None:
        yield f"It waits for the end of {counted(waiting.blockers, 'chain')}."
    if waiting.stopped_by is not None:
        resume = f"holdfast jobs resume-key {shlex.quote(table.text(job['order_key']))}"
        yield f"Its order key is stopped by the dead letter {waiting.stopped_by}: retry that one, or {resume}"
    elif waiting.behind is not None:
        yield f"It waits for job {waiting.behind}, which comes before it in the order key."


def _print_traceback(attempts: Sequence[AttemptRow]) -> None:
    """Print the last traceback. All stored ones are in the JSON output."""
    last = next((attempt for attempt in reversed(attempts) if attempt.traceback), None)
    if last is not None and last.traceback:
        print(f"\nTraceback of attempt {last.attempt}")
        for line in last.traceback.split("\n"):
            print(f"  {table.text(line)}" if line else "")


async def _act_by_id(service: Service, arguments: argparse.Namespace) -> int:
    from holdfast._ops.requests import JobAction

    again = getattr(arguments, "again", False)
    action = JobAction(action=arguments.action, ids=arguments.ids, again=again, preview=False)
    done = [
        await _result(service, arguments.action, one)
        for one in await service.act_on_named_jobs(action, session.person())
    ]
    if arguments.json:
        table.print_json(done)
    else:
        for one in done:
            print(f"{one['id']}: {one['says']}")
    return 1 if any(one["result"] == "refused" for one in done) else 0


async def _result(service: Service, action: str, one: Acted) -> dict[str, Any]:
    from holdfast._ops.actions import why

    match action, one.done, one.answer:
        case "retry", True, made:
            result, says = "retried", f"runs again as job {made}"
        case _, True, "requested":
            result, says = "requested", "will be cancelled: its worker was asked to stop, or it leaves in its turn"
        case _, True, answer:
            result = says = answer
        case _, False, "not_failed" | "not_found":
            job = await service.read(read_job(one.id))
            state = "does not exist, see `holdfast jobs list`" if job is None else f"is {job['status']}"
            result, says = "refused", f"{state}: {_ONLY[action]}"
        case _ if one.answer.startswith("there is no chain "):
            result, says = "refused", f"comes after other chains: {one.answer}"
        case _:
            result, says = "refused", why(one.answer).replace("`again`", "--again")
    return {"id": one.id, "result": result, "says": says}


async def _resume_key(service: Service, arguments: argparse.Namespace) -> int:
    key: str = arguments.key
    if not await service.resume_order_key(key, session.person()):
        raise CommandError(f"the order key {key} is not blocked: only a key that a failed job blocks must be resumed")
    if arguments.json:
        table.print_json({"key": key, "action": arguments.action})
    else:
        print(f"{key}: goes on with its next job")
    return 0


def _filter(arguments: argparse.Namespace) -> JobFilter | None:
    """Return the filter, or None if none was given."""
    given = {name: value for name in ("status", *_FILTERS) if (value := getattr(arguments, name)) is not None}
    if not given:
        return None
    from holdfast._ops.requests import JobFilter

    try:
        return JobFilter.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        raise CommandError(f"--{str(first['loc'][0]).replace('_', '-')}: {first['msg']}", status=2) from error


async def _act_by_filter(service: Service, arguments: argparse.Namespace) -> int:
    from holdfast._ops.requests import JobAction

    preview, limit = not arguments.yes, arguments.limit
    action = JobAction(action=arguments.action, filter=arguments.filter, limit=limit, preview=preview)
    result = await service.act_on_jobs(action, session.person())
    if arguments.json:
        table.print_json(result.model_dump(mode="json"))
    else:
        _print_result(arguments.action, result, limit)
    return 1 if result.refused else 0


def _print_result(action: str, result: JobActionResult, limit: int) -> None:
    if not result.matched:
        print("No such jobs.")
    elif result.preview:
        table.print_table(_COLUMNS, [_line(job) for job in result.sample])
        print(f"{counted(result.matched, 'job')} would be {_DONE[action]}. Give --yes to do it.")
    else:
        print(f"{result.done} of {counted(result.matched, 'job')} {_DONE[action]}.")
        for refused in result.refused:
            print(f"{refused.id}: {refused.why}")
    if result.matched == limit and result.capped:
        print("There may be more: repeat it, or raise --limit.")
    elif not result.looked.complete:
        newest = counted(result.looked.jobs, "job")
        print(f"Looked at the newest {newest} alone, back to {table.text(result.looked.back_to)}: say more of them.")
