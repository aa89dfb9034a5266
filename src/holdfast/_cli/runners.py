"""Look at the stored schedules, what runs now and the last run of each runner; pause, resume or trigger one."""

from __future__ import annotations

import argparse
import difflib
from typing import TYPE_CHECKING, Any

from holdfast._cli import session, table
from holdfast._cli.operator import audited
from holdfast._cli.session import CommandError
from holdfast._drivers import run_sync
from holdfast._store.schedule import (
    last_runs,
    list_running,
    list_schedules,
    pause_schedule,
    resume_schedule,
    trigger_schedule,
)

if TYPE_CHECKING:
    import psycopg

    from holdfast._store.schedule import Running, RunRow, ScheduleLine

_DAYS = 7
_COLUMNS = ("name", "what", "schedule", "state", "next", "last run", "took", "outcome", "counts or error")
_ACTIONS = {
    "pause": ("start no more of its slots", pause_schedule, "paused; what runs now goes on"),
    "resume": ("go on with the next slot", resume_schedule, "goes on with its next slot"),
    "trigger": ("run it once, soon, also when it is paused", trigger_schedule, "will run once, soon"),
}


def configure(parser: argparse.ArgumentParser) -> None:
    _configure(parser)
    actions = parser.add_subparsers(dest="action", metavar="action")
    # Options given before the action must not be overwritten by defaults of the action.
    none = argparse.SUPPRESS
    _configure(actions.add_parser("list", help="list them all (the default)", argument_default=none))
    for name, (help_, _, _) in _ACTIONS.items():
        own = actions.add_parser(name, help=help_, argument_default=none)
        own.add_argument("name", metavar="NAME")
        _configure(own)


def run(arguments: argparse.Namespace) -> None:
    with session.opened(arguments) as conn:
        if arguments.action in _ACTIONS:
            _act(conn, arguments)
        else:
            _list(conn, arguments)


def _configure(parser: argparse.ArgumentParser) -> None:
    session.configure(parser)
    table.configure(parser)


def _act(conn: psycopg.Connection[Any], arguments: argparse.Namespace) -> None:
    _, statement, says = _ACTIONS[arguments.action]
    if not audited(conn, statement(arguments.name), f"runner.{arguments.action}", arguments.name, undone=[False]):
        known = [line.name for line in session.ask(conn, list_schedules())]
        close = difflib.get_close_matches(arguments.name, known, n=1)
        meant = f"did you mean {close[0]}?" if close else f"there are {', '.join(known) or 'none'}"
        raise CommandError(f"no schedule is named {arguments.name}: {meant}")
    if arguments.json:
        table.print_json({"name": arguments.name, "action": arguments.action})
    else:
        print(f"{arguments.name}: {says}")


def _list(conn: psycopg.Connection[Any], arguments: argparse.Namespace) -> None:
    with session.bounded(conn):
        schedules = {line.name: line for line in run_sync(conn, list_schedules())}
        runs = {line.runner: line for line in run_sync(conn, last_runs(days=_DAYS))}
        # If several run, show the longest running one.
        running = {line.runner: line for line in reversed(run_sync(conn, list_running()))}
    names = sorted({*schedules, *runs, *running})
    found = [(name, schedules.get(name), runs.get(name), running.get(name)) for name in names]
    if arguments.json:
        table.print_json([_object(*each) for each in found])
    elif names:
        table.print_table(_COLUMNS, [_line(*each) for each in found])
    else:
        print(
            f"No schedule is stored, and nothing has run within {_DAYS} days: schedules are stored by a worker's start."
        )


def _object(name: str, schedule: ScheduleLine | None, run: RunRow | None, running: Running | None) -> dict[str, object]:
    return {
        "name": name,
        "schedule": schedule and schedule._asdict(),
        "running": running and {"since": running.since, "worker": running.worker},
        "last_run": run and run._asdict(),
    }


def _line(name: str, schedule: ScheduleLine | None, run: RunRow | None, running: Running | None) -> tuple[object, ...]:
    when = (None, None) if schedule is None else (schedule.what, schedule.schedule)
    ran: tuple[object, ...] = (None,) * 4
    if run is not None:
        took = run.finished_at and run.finished_at - run.started_at
        said = run.error or ", ".join(f"{count} {what}" for what, count in run.counts.items() if count)
        ran = (run.started_at, took, run.outcome, said)
    return (name, *when, _state(schedule, running), schedule and schedule.next_at, *ran)


def _state(schedule: ScheduleLine | None, running: Running | None) -> str | None:
    states = [f"running since {table.text(running.since)} on worker {running.worker}"] if running else []
    if schedule is None:
        return ", ".join(states) or None
    flags = {"paused": schedule.paused, "triggered": schedule.triggered, "edited": schedule.edited}
    return ", ".join([*(name for name, true in flags.items() if true), *states]) or "waiting"
