"""Look at how many days history is kept, or set it while workers run, or confirm the clock of the server.

`completed` are completed and cancelled jobs, `failed` dead letters, `events` events, `runs` the runs of runners.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from holdfast._cli import arguments as args
from holdfast._cli import session, table
from holdfast._cli.databases import DatabaseAnswer, DatabaseAnswers, ask_all
from holdfast._cli.session import CommandError
from holdfast._drivers import run_sync
from holdfast._ops.caller import audit_entry
from holdfast._store.archive import clock_is_doubted, confirm_clock, read_retention, set_retention

if TYPE_CHECKING:
    from holdfast._store.archive import Retention

FAMILIES = {"completed": "job_history", "failed": "job_failed", "events": "event", "runs": "run"}
_LEAST, _MOST = 2, 36_500
_COLUMNS = ("name", "table", "days", "until archived")
_CLOCK_NOTE = (
    "note: nothing expires until the server's clock has gone on for a day: it leapt, or no maintenance ran for a day. "
    "If it is right: holdfast retention confirm"
)


def configure(parser: argparse.ArgumentParser) -> None:
    args.configure(parser)
    actions = parser.add_subparsers(dest="action", metavar="action")
    args.add_action(actions, "show", "show all (the default)", inherits=True)
    own = args.add_action(actions, "set", "keep the rows of a name for this many days from now on", inherits=True)
    own.add_argument("given", type=_pair, nargs="+", metavar="NAME=DAYS", help=f"of {', '.join(FAMILIES)}")
    args.add_action(actions, "confirm", "let rows expire again after the server's clock leapt", inherits=True)


def _pair(text: str) -> tuple[str, int]:
    name, _, days = text.partition("=")
    if name not in FAMILIES:
        raise argparse.ArgumentTypeError(f"{text!r}: write completed=90; {session.meant(name, list(FAMILIES))}")
    if not days.isdecimal() or not _LEAST <= int(days) <= _MOST:
        raise argparse.ArgumentTypeError(f"{text!r}: expected {_LEAST} to {_MOST} days, such as {name}=90")
    return name, int(days)


def run(arguments: argparse.Namespace) -> int:
    if arguments.action == "confirm":
        return _confirm(arguments)
    if arguments.action != "set":
        return session.run_async(_show(arguments))
    wanted = dict(arguments.given)
    if len(wanted) < len(arguments.given):
        raise CommandError("a name is given twice: give each once", status=2)
    with session.opened(session.chosen(arguments)) as conn, session.bounded(conn):
        for name, days in wanted.items():
            run_sync(conn, set_retention(FAMILIES[name], days))
        run_sync(conn, audit_entry(session.person(), "retention.set", detail=wanted))
        found = run_sync(conn, read_retention())
    _print(DatabaseAnswers([DatabaseAnswer("", found)], {}), arguments)
    return 0


def _confirm(arguments: argparse.Namespace) -> int:
    with session.opened(session.chosen(arguments)) as conn, session.bounded(conn):
        doubted = run_sync(conn, confirm_clock())
        if doubted:
            run_sync(conn, audit_entry(session.person(), "retention.confirm"))
    print("rows expire again by the server's clock" if doubted else "the server's clock was not in doubt")
    return 0


async def _show(arguments: argparse.Namespace) -> int:
    answers = await ask_all(session.listed(arguments), lambda service, _: service.read(read_retention()))
    _print(answers, arguments)
    if not arguments.json:
        doubts = await ask_all(session.listed(arguments), lambda service, _: service.read(clock_is_doubted()))
        if any(answer.value for answer in doubts.found):
            print(_CLOCK_NOTE)
    return answers.status()


def _print(answers: DatabaseAnswers[list[Retention]], arguments: argparse.Namespace) -> None:
    lines = [(answer.name, line) for answer in answers.found for line in answer.value]
    if arguments.json:
        table.print_json([answers.json(name, _object(line)) for name, line in lines])
    else:
        answers.print_table(_COLUMNS, [(name, _line(line)) for name, line in lines])


def _name(family: str) -> str | None:
    return next((name for name, table_ in FAMILIES.items() if table_ == family), None)


def _object(line: Retention) -> dict[str, object]:
    return {"name": _name(line.family), **line._asdict()}


def _line(line: Retention) -> tuple[object, ...]:
    return _name(line.family), line.family, line.days, line.archived
