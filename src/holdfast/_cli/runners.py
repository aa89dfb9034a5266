"""Look at the stored schedules, what runs now and the last run of each runner, and change a schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pydantic import ValidationError

from holdfast._cli import arguments as args
from holdfast._cli import session, table
from holdfast._cli.databases import ask_all
from holdfast._cli.session import CommandError
from holdfast._ops.caller import RequestRefused
from holdfast._ops.wording import counts
from holdfast._store.schedule import last_runs, list_running, list_schedules

if TYPE_CHECKING:
    import argparse

    from holdfast._cli.session import Database
    from holdfast._ops.service import Service
    from holdfast._store.schedule import RunLine, Running, ScheduleLine

    Found: TypeAlias = tuple[str, ScheduleLine | None, RunLine | None, Running | None]

_DAYS = 7
_COLUMNS = ("name", "what", "schedule", "state", "next", "last run", "took", "outcome", "counts or error")
_ACTIONS: dict[str, tuple[str, Literal["pause", "resume", "run", "edit", "remove"]]] = {
    "pause": ("start no more of its slots", "pause"),
    "resume": ("go on with the next slot", "resume"),
    "trigger": ("run it once, soon, also when it is paused", "run"),
    "edit": ("replace its times until the code declares new ones", "edit"),
    "remove": ("delete one that no live worker declares", "remove"),
}


def configure(parser: argparse.ArgumentParser) -> None:
    args.configure(parser)
    actions = parser.add_subparsers(dest="action", metavar="action")
    args.add_action(actions, "list", "list them all (the default)", inherits=True)
    for name, (help_, _) in _ACTIONS.items():
        own = args.add_action(actions, name, help_, inherits=True)
        own.add_argument("name", metavar="NAME")
        if name == "pause":
            own.add_argument("--reason", metavar="TEXT", help="shown wherever the pause is")
        if name == "edit":
            own.add_argument("schedule", metavar="SCHEDULE", help="'every 120s', or cron: '0 2 * * * Europe/Warsaw'")


def run(arguments: argparse.Namespace) -> int:
    return session.run_async(_run(arguments))


async def _run(arguments: argparse.Namespace) -> int:
    if arguments.action not in _ACTIONS:
        return await _list(arguments)
    async with session.service(session.chosen(arguments)) as service:
        await _act(service, arguments)
    return 0


async def _act(service: Service, arguments: argparse.Namespace) -> None:
    from holdfast._ops.requests import RunnerAction

    try:
        _, action = _ACTIONS[arguments.action]
        reason, schedule = getattr(arguments, "reason", None), getattr(arguments, "schedule", None)
        asked = RunnerAction(action=action, reason=reason, schedule=schedule)
        done = await service.act_on_runner(arguments.name, asked, session.person())
    except ValidationError as error:
        raise CommandError(error.errors()[0]["msg"].removeprefix("Value error, "), status=2) from error
    except RequestRefused as refused:
        if refused.code == "declared":
            raise CommandError(refused.message) from refused
        known = [line.name for line in await service.read(list_schedules())]
        raise session.not_found(refused, arguments.name, known) from refused
    table.print_done(arguments, done.message.removeprefix(f"{arguments.name}: "))


async def _list(arguments: argparse.Namespace) -> int:
    answers = await ask_all(session.listed(arguments), _find)
    found = [(answer.name, each) for answer in answers.found for each in answer.value]
    if answers.several:
        found.sort(key=lambda one: (one[1][0], one[0]))
    if arguments.json:
        table.print_json([answers.json(database, _object(*each)) for database, each in found])
    elif found:
        answers.print_table(_COLUMNS, [(database, _line(*each)) for database, each in found])
    else:
        print(
            f"No schedule is stored, and nothing has run within {_DAYS} days: schedules are stored by a worker's start."
        )
    return answers.status()


async def _find(service: Service, _: Database) -> list[Found]:
    async with service.reading() as transaction:
        schedules = {line.name: line for line in await transaction.run(list_schedules())}
        runs = {line.runner: line for line in await transaction.run(last_runs(days=_DAYS))}
        # If several run, show the longest running one.
        running = {line.runner: line for line in reversed(await transaction.run(list_running()))}
    names = sorted({*schedules, *runs, *running})
    return [(name, schedules.get(name), runs.get(name), running.get(name)) for name in names]


def _object(name: str, schedule: ScheduleLine | None, run: RunLine | None, running: Running | None) -> dict[str, Any]:
    return {
        "name": name,
        "schedule": schedule and schedule._asdict(),
        "running": running and {"since": running.since, "worker": running.worker},
        "last_run": run and dict(run),
    }


def _line(name: str, schedule: ScheduleLine | None, run: RunLine | None, running: Running | None) -> tuple[object, ...]:
    when = (None, None) if schedule is None else (schedule.what, schedule.schedule)
    ran: tuple[object, ...] = (None,) * 4
    if run is not None:
        took = run.finished_at and run.finished_at - run.started_at
        ran = (run.started_at, took, run.outcome, run.error or counts(run.counts))
    return (
        name,
        *when,
        _state(schedule, running),
        schedule.next_at if schedule is not None and schedule.served else None,
        *ran,
    )


def _state(schedule: ScheduleLine | None, running: Running | None) -> str | None:
    states = [f"running since {table.text(running.since)} on worker {running.worker_name}"] if running else []
    if schedule is None:
        return ", ".join(states) or None
    flags = {
        "paused": schedule.paused,
        "triggered": schedule.triggered,
        "edited": schedule.edited,
        "no live worker declares it": not schedule.served,
    }
    return ", ".join([*(name for name, true in flags.items() if true), *states]) or "waiting"
