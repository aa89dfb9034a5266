"""Look at jobs, and act on them: on single ones, or on those that a filter finds."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from pydantic import ValidationError

from holdfast._cli import arguments as args
from holdfast._cli import session, table
from holdfast._cli.bulk_actions import wait_for
from holdfast._cli.databases import ask_all
from holdfast._cli.job_story import as_json, print_story, read_story
from holdfast._cli.session import CommandError
from holdfast._model.retry import tries
from holdfast._ops.wording import counted
from holdfast._store.archive import JOB_FAMILIES, exports_with_id
from holdfast._store.inspect import MOST, STATUSES, read_job
from holdfast._store.search import MOST_ACTED_ON, Search

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from holdfast._cli.databases import DatabaseAnswer, DatabaseAnswers
    from holdfast._cli.session import Database
    from holdfast._ops.requests import JobFilter
    from holdfast._ops.responses.job import JobActionResult
    from holdfast._ops.service import Service
    from holdfast._store.search import ActionResult, JobLine, Looked

    Act: TypeAlias = Callable[[Sequence[Database], argparse.Namespace], Awaitable[int]]

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
    "tag": "TAG",
    "unique_key": "KEY",
    "error_code": "CODE",
    "text": "TEXT",
}
_NUMBER = args.whole(1, args.LARGEST_ID, "the id of a job")


class JobId(NamedTuple):
    """A job as it is named on the command line: `7`, or `eu/7` with several databases."""

    database: str
    """The name of its database; empty if it was not given."""
    id: int

    @classmethod
    def parse(cls, text: str) -> JobId:
        """Parse `7` or `eu/7`."""
        name, _, number = text.rpartition("/")
        return cls(name, _NUMBER(number))

    def __str__(self) -> str:
        return f"{self.database}/{self.id}" if self.database else str(self.id)


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="action", required=True)
    own = args.add_action(actions, "list", "list the newest jobs", _list)
    own.add_argument("--status", choices=STATUSES)
    own.add_argument("--kind", metavar="KIND")
    own.add_argument("--queue", metavar="QUEUE")
    own.add_argument("--order-key", metavar="KEY")
    own.add_argument("--tag", metavar="TAG")
    own.add_argument("--limit", type=args.whole(1, MOST), default=50, metavar="N", help=f"at most {MOST} (default: 50)")
    own = args.add_action(actions, "show", "tell the whole story of a job", _show)
    own.add_argument("id", type=JobId.parse, metavar="ID")
    for name, help_ in _ACTIONS.items():
        own = args.add_action(actions, name, help_, _act_by_id)
        own.add_argument("ids", type=JobId.parse, metavar="ID", nargs="*")
        own.set_defaults(refuse=own.error)
        _configure_filter(own)
        if name == "retry":
            own.add_argument("--again", action="store_true", help="also what was retried before; only by ids")
    own = args.add_action(actions, "resume-key", "let an order key go on that a failed job has stopped", _resume_key)
    own.add_argument("key", metavar="KEY")


def _configure_filter(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("instead of ids", "what the jobs have in common; without --yes they are shown")
    group.add_argument("--status", choices=STATUSES)
    for name, metavar in _FILTERS.items():
        group.add_argument(f"--{name.replace('_', '-')}", metavar=metavar)
    limit = args.whole(1, args.LARGEST_ID)
    group.add_argument("--limit", type=limit, metavar="N", help="end after so many, the oldest first (default: all)")
    group.add_argument("--rate", metavar="RATE", help="so many in a time, such as 50/s (default: as fast as it goes)")
    group.add_argument("--detach", action="store_true", help="leave the rest to the workers after a second")
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
    return session.run_async(_run(arguments))


async def _run(arguments: argparse.Namespace) -> int:
    act: Act = arguments.act
    return await act(session.listed(arguments), arguments)


async def _list(databases: Sequence[Database], arguments: argparse.Namespace) -> int:
    from holdfast._ops.jobs import find as find_jobs
    from holdfast._store.search import FoundJobs

    which = Search(
        status=arguments.status,
        kind=arguments.kind,
        queue=arguments.queue,
        order_key=arguments.order_key,
        tag=arguments.tag,
    )

    async def find(service: Service, _: Database) -> FoundJobs:
        async with service.reading() as transaction:
            return await find_jobs(transaction, which, limit=arguments.limit)

    answers = await ask_all(databases, find)
    jobs = [(answer, job) for answer in answers.found for job in answer.value.jobs]
    if answers.several:
        jobs.sort(key=lambda one: (one[1].created_at, one[1].id), reverse=True)
    jobs = jobs[: arguments.limit]
    if arguments.json:
        table.print_json([answers.json(answer.name, dict(job)) for answer, job in jobs])
    elif jobs:
        answers.print_table(_COLUMNS, [(answer.name, _line(job, answer.id(job.id))) for answer, job in jobs])
        if len(jobs) == arguments.limit:
            print(f"The newest {len(jobs)}. There may be more.")
    else:
        print("No such jobs.")
    if not arguments.json and len(jobs) < arguments.limit:
        for answer in answers.found:
            if not answer.value.looked.complete:
                print(f"{answer.name}: {_looked(answer.value.looked)}" if answer.name else _looked(answer.value.looked))
    return answers.status()


def _looked(looked: Looked) -> str:
    newest = counted(looked.jobs, "job")
    return f"Searched only the newest {newest}, back to {table.text(looked.back_to)}: narrow the search."


def _line(job: JobLine, id_: str) -> tuple[object, ...]:
    attempt, when = tries(job.attempt, job.max_attempts), job.finished_at or job.available_at
    return id_, job.status, job.kind, job.queue, attempt, job.created_at, when, job.error_code


async def _show(databases: Sequence[Database], arguments: argparse.Namespace) -> int:
    wanted: JobId = arguments.id
    asked = [session.named(wanted.database, databases)] if wanted.database else databases
    several = len(databases) > 1
    answers = await ask_all(asked, lambda service, _: read_story(service, wanted.id), several=several)
    found = [(answer, story) for answer in answers.found if (story := answer.value) is not None]
    if len(found) > 1:
        names = [answer.id(wanted.id) for answer, _ in found]
        raise CommandError(
            f"{len(found)} databases have a job {wanted.id}: say which one: {' or '.join(names)}", status=2
        )
    if not found:
        if status := answers.status():
            raise CommandError(f"job {wanted} was not found: not every database was asked", status=status)
        raise await _missing(asked, wanted)
    [(answer, story)] = found
    if arguments.json:
        table.print_json(answers.json(answer.name, as_json(story)))
    else:
        print_story(story, answer.name)
    return answers.status()


async def _missing(databases: Sequence[Database], wanted: JobId) -> CommandError:
    """Return the error for a job that no database has: it may be in the archive, or does not exist."""

    async def ask(service: Service, database: Database) -> str | None:
        files = await service.read(exports_with_id(JOB_FAMILIES, wanted.id, limit=1))
        which = f" --database {shlex.quote(database.name)}" if database.name else ""
        return f"`holdfast archive query --job {wanted.id}{which}`" if files else None

    answers = (await ask_all(databases, ask)).found
    queries = " or ".join(answer.value for answer in answers if answer.value is not None)
    why = "does not exist: it was never committed, was deleted, or its history has expired. See `holdfast jobs list`"
    if queries:
        why = f"is no longer in the database, and may be in the archive: run {queries}"
    return CommandError(f"job {wanted} {why}")


async def _act_by_id(databases: Sequence[Database], arguments: argparse.Namespace) -> int:
    from holdfast._ops.requests import JobAction

    placed = await _placed(databases, arguments.ids)
    again = getattr(arguments, "again", False)

    async def act(service: Service, database: Database) -> list[dict[str, Any]]:
        action = JobAction(action=arguments.action, ids=placed[database], again=again, preview=False)
        acted = await service.act_on_named_jobs(action, session.person())
        prefix = f"{database.name}/" if len(databases) > 1 else ""
        return [await _result(service, arguments.action, one, prefix) for one in acted]

    answers = await ask_all([*placed], act, several=len(databases) > 1)
    done = [(answer, one) for answer in answers.found for one in answer.value]
    if arguments.json:
        table.print_json([answers.json(answer.name, one) for answer, one in done])
    else:
        for answer, one in done:
            print(f"{answer.id(one['id'])}: {one['message']}")
    return answers.status(1 if any(one["result"] == "refused" for _, one in done) else 0)


async def _placed(databases: Sequence[Database], ids: Sequence[JobId]) -> dict[Database, list[int]]:
    """Return the ids by database. With several databases, each id must name its own."""
    placed: dict[Database, list[int]] = {}
    for wanted in ids:
        if wanted.database:
            placed.setdefault(session.named(wanted.database, databases), []).append(wanted.id)
        elif len(databases) == 1:
            placed.setdefault(databases[0], []).append(wanted.id)
        else:
            raise await _unplaced(databases, wanted.id)
    return placed


async def _unplaced(databases: Sequence[Database], id_: int) -> CommandError:
    """Return an error that names the databases that have this job."""
    answers = await ask_all(databases, lambda service, _: service.read(read_job(id_)))
    answers.status()
    names = [answer.id(id_) for answer in answers.found if answer.value is not None]
    which = f"write {' or '.join(names)}" if names else "none of them has this job"
    return CommandError(f"{id_}: there are {len(databases)} databases: {which}", status=2)


async def _result(service: Service, action: str, one: ActionResult, prefix: str) -> dict[str, Any]:
    """Return what became of one job. `prefix`: stands before the id of a job, if there are several databases."""
    from holdfast._ops.bulk_actions import why

    match action, one.done, one.answer:
        case "retry", True, made:
            result, message = "retried", f"runs again as job {prefix}{made}"
        case _, True, "requested":
            result, message = "requested", "will be cancelled: its worker was asked to stop, or it leaves in its turn"
        case _, True, answer:
            result = message = answer
        case _, False, "not_failed" | "not_found":
            job = await service.read(read_job(one.id))
            state = "does not exist, see `holdfast jobs list`" if job is None else f"is {job['status']}"
            result, message = "refused", f"{state}: {_ONLY[action]}"
        case _ if one.answer.startswith("there is no chain "):
            result, message = "refused", f"comes after other chains: {one.answer}"
        case _:
            result, message = "refused", why(one.answer).replace("`again`", "--again")
    return {"id": one.id, "result": result, "message": message}


async def _resume_key(databases: Sequence[Database], arguments: argparse.Namespace) -> int:
    key: str = arguments.key
    answers = await ask_all(databases, lambda service, _: service.resume_order_key(key, session.person()))
    resumed = [answer.name for answer in answers.found if answer.value]
    if not resumed:
        answers.status()
        raise CommandError(f"the order key {key} is not blocked: only a key that a failed job blocks must be resumed")
    if arguments.json:
        done = [answers.json(name, {"key": key, "action": arguments.action}) for name in resumed]
        table.print_json(done if answers.several else done[0])
    else:
        for name in resumed:
            print(f"{name}: {key}: goes on with its next job" if name else f"{key}: goes on with its next job")
    return answers.status()


def _filter(arguments: argparse.Namespace) -> JobFilter | None:
    given = {name: value for name in ("status", *_FILTERS) if (value := getattr(arguments, name)) is not None}
    if not given:
        return None
    from holdfast._ops.requests import JobFilter

    try:
        return JobFilter.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        raise CommandError(f"--{str(first['loc'][0]).replace('_', '-')}: {first['msg']}", status=2) from error


async def _act_by_filter(databases: Sequence[Database], arguments: argparse.Namespace) -> int:
    from holdfast._ops.requests import JobAction

    given = {"limit": arguments.limit, "rate": arguments.rate, "preview": not arguments.yes}
    try:
        action = JobAction(action=arguments.action, filter=arguments.filter, **given)
    except ValidationError as error:
        first = error.errors()[0]
        where = f"--{first['loc'][0]}: " if first["loc"] else ""
        raise CommandError(f"{where}{first['msg'].removeprefix('Value error, ')}", status=2) from error

    async def act(service: Service, _: Database) -> JobActionResult:
        result = await service.act_on_jobs(action, session.person())
        if result.bulk is None or arguments.detach or len(databases) > 1:
            return result
        bulk = await wait_for(service, result.bulk, arguments)
        return result.model_copy(update={"bulk": bulk, "done": bulk.done, "refused": bulk.refusals})

    answers = await ask_all(databases, act)
    if arguments.json:
        results = [answers.json(answer.name, answer.value.model_dump(mode="json")) for answer in answers.found]
        table.print_json(results if answers.several else results[0])
    else:
        _print_results(arguments.action, answers)
    return answers.status(1 if any(answer.value.refused for answer in answers.found) else 0)


def _print_results(action: str, answers: DatabaseAnswers[JobActionResult]) -> None:
    sample = [(answer.name, _line(job, answer.id(job.id))) for answer in answers.found for job in answer.value.sample]
    if sample and all(answer.value.preview for answer in answers.found):
        answers.print_table(_COLUMNS, sample)
    for answer in answers.found:
        for message in _messages(action, answer):
            print(f"{answer.name}: {message}" if answer.name else message)


def _messages(action: str, answer: DatabaseAnswer[JobActionResult]) -> Iterator[str]:
    result = answer.value
    if not result.matched:
        yield "No such jobs."
    elif result.preview:
        more = " or more" if result.capped else ""
        yield f"{counted(result.matched, 'job')}{more} would be {_DONE[action]}. Give --yes to do it."
    else:
        refused = len(result.refused) if result.bulk is None else result.bulk.refused
        yield f"{result.done} of {counted(result.done + refused, 'job')} {_DONE[action]}."
        yield from (f"{refused.id}: {refused.why}" for refused in result.refused)
        if result.bulk is not None and result.bulk.ended_at is None:
            yield f"The workers carry it on: see `holdfast bulk-actions show {result.bulk.id}`."
    if result.bulk is None and not result.preview and result.capped:
        yield "There may be more: repeat it."
    if not result.looked.complete and result.preview:
        newest = counted(result.looked.jobs, "job")
        yield f"Counted among the newest {newest}, back to {table.text(result.looked.back_to)}."
