"""Look at the stored schedules and the last run of each runner; pause, resume or trigger one."""

from __future__ import annotations

import argparse
import difflib
from typing import TYPE_CHECKING, Any

from holdfast.cli import database, session, table
from holdfast.cli.audited import audited
from holdfast.cli.stop import Stop
from holdfast.drivers import run_sync
from holdfast.store.run import last_runs
from holdfast.store.schedule import list_schedules, pause_schedule, resume_schedule, trigger_schedule

if TYPE_CHECKING:
    import psycopg

    from holdfast.store.run import RunLine
    from holdfast.store.schedule import ScheduleLine

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
    # What is given before the action must not be overwritten by what is not given after it.
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
    database.configure(parser)
    table.configure(parser)


def _act(conn: psycopg.Connection[Any], arguments: argparse.Namespace) -> None:
    _, statement, says = _ACTIONS[arguments.action]
    if not audited(conn, statement(arguments.name), f"runner.{arguments.action}", arguments.name, undone=[False]):
        known = [line.name for line in session.ask(conn, list_schedules())]
        close = difflib.get_close_matches(arguments.name, known, n=1)
        meant = f"did you mean {close[0]}?" if close else f"there are {', '.join(known) or 'none'}"
        raise Stop(f"no schedule is named {arguments.name}: {meant}")
    if arguments.json:
        table.print_json({"name": arguments.name, "action": arguments.action})
    else:
        print(f"{arguments.name}: {says}")


def _list(conn: psycopg.Connection[Any], arguments: argparse.Namespace) -> None:
    with session.bounded(conn):
        schedules = {line.name: line for line in run_sync(conn, list_schedules())}
        runs = {line.runner: line for line in run_sync(conn, last_runs(days=_DAYS))}
    names = sorted({*schedules, *runs})
    if arguments.json:
        table.print_json([_object(name, schedules.get(name), runs.get(name)) for name in names])
    elif names:
        table.print_table(_COLUMNS, [_line(name, schedules.get(name), runs.get(name)) for name in names])
    else:
        print(
            f"No schedule is stored, and nothing has run within {_DAYS} days: schedules are stored by a worker's start."
        )


def _object(name: str, schedule: ScheduleLine | None, run: RunLine | None) -> dict[str, object]:
    return {"name": name, "schedule": schedule and schedule._asdict(), "last_run": run and run._asdict()}


def _line(name: str, schedule: ScheduleLine | None, run: RunLine | None) -> tuple[object, ...]:
    when = (None, None) if schedule is None else (schedule.what, schedule.schedule)
    ran: tuple[object, ...] = (None,) * 4
    if run is not None:
        took = run.finished_at and run.finished_at - run.started_at
        said = run.error or ", ".join(f"{count} {what}" for what, count in run.counts.items() if count)
        ran = (run.started_at, took, run.outcome, said)
    return (name, *when, _state(schedule), schedule and schedule.next_at, *ran)


def _state(schedule: ScheduleLine | None) -> str | None:
    """Say what a schedule is up to."""
    if schedule is None:
        return None
    states = {
        "paused": schedule.paused,
        "triggered": schedule.triggered,
        "edited": schedule.edited,
        "running": schedule.locked_until is not None,
    }
    return ", ".join(name for name, true in states.items() if true) or "waiting"
