"""Look at actions on all jobs of a filter, and stop or resume one. `holdfast jobs` begins them."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, TypeAlias

from holdfast._cli import arguments as args
from holdfast._cli import session, table
from holdfast._cli.databases import ask_all
from holdfast._cli.progress import ProgressLine
from holdfast._ops.wording import counted

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Callable

    from holdfast._ops.service import Service
    from holdfast._store.bulk_action_line import BulkAction

    Act: TypeAlias = Callable[[Service, argparse.Namespace], Awaitable[None]]

_COLUMNS = ("id", "action", "state", "of", "rate", "done", "refused", "progress", "by", "since")
_MOST = 50
# Seconds between two portions that this process acts on, so that workers come to their turn.
_REST = 0.1


def configure(parser: argparse.ArgumentParser) -> None:
    args.configure(parser)
    actions = parser.add_subparsers(dest="action", metavar="action")
    args.add_action(actions, "list", "list those under way, then the newest (the default)", inherits=True)

    def add(name: str, help_: str, act: Act) -> None:
        own = args.add_action(actions, name, help_, act, inherits=True)
        own.add_argument("id", type=args.whole(1, args.LARGEST_ID, "the id of a bulk action"), metavar="ID")

    add("show", "show one, and the jobs that it could not be done to", _show)
    add("stop", "stop one after its current portion; it can be resumed", _control)
    add("resume", "let a stopped one go on where it was", _control)


def run(arguments: argparse.Namespace) -> int:
    return session.run_async(_run(arguments))


async def _run(arguments: argparse.Namespace) -> int:
    act: Act | None = getattr(arguments, "act", None)
    if act is None:
        return await _list(arguments)
    async with session.service(session.chosen(arguments)) as service:
        await act(service, arguments)
    return 0


async def _list(arguments: argparse.Namespace) -> int:
    answers = await ask_all(session.listed(arguments), lambda service, _: service.bulk_actions(_MOST))
    lines = [(answer, line) for answer in answers.found for line in answer.value.items]
    if arguments.json:
        found = [answers.json(answer.name, answer.value.model_dump(mode="json")) for answer in answers.found]
        table.print_json(found if answers.several else found[0])
    elif lines:
        answers.print_table(_COLUMNS, [(answer.name, _line(line)) for answer, line in lines])
    else:
        print("No bulk actions.")
    return answers.status()


def _line(line: BulkAction) -> tuple[object, ...]:
    rate = None if line.rate is None else f"{line.rate:g}/s"
    progress = f"{line.progress:.0%}"
    return (
        line.id, line.action, line.state, filter_text(line), rate, line.done, line.refused, progress, line.who,
        line.created_at,
    )  # fmt: skip


def filter_text(line: BulkAction) -> str:
    """Return what the jobs have in common, in a few words."""
    given = {
        "kind": line.kind,
        "queue": line.queue,
        "error": line.error_code,
        "order key": line.order_key,
        "tag": line.tag,
        "unique key": line.unique_key,
    }
    return ", ".join(f"{name} {value}" for name, value in given.items() if value) or " or ".join(line.statuses)


async def _show(service: Service, arguments: argparse.Namespace) -> None:
    _print(await service.bulk_action(arguments.id), arguments)


async def _control(service: Service, arguments: argparse.Namespace) -> None:
    from holdfast._ops.requests import BulkActionControl

    control = BulkActionControl(action=arguments.action)
    _print(await service.control_bulk_action(arguments.id, control, session.person()), arguments)


def _print(line: BulkAction, arguments: argparse.Namespace) -> None:
    if arguments.json:
        table.print_json(line.model_dump(mode="json"))
        return
    table.print_table(_COLUMNS, [_line(line)])
    for refused in line.refusals:
        print(f"{refused.id}: {refused.why}")


async def wait_for(service: Service, line: BulkAction, arguments: argparse.Namespace) -> BulkAction:
    """Carry the action on beside the workers until it has ended. They carry it on if this process ends before."""
    with ProgressLine(arguments) as progress, contextlib.suppress(asyncio.CancelledError):
        while line.ended_at is None:
            progress.show(line.progress, f"{counted(line.done, 'job')} so far. Ctrl-C leaves the rest to the workers")
            await asyncio.sleep(_REST)
            line = await service.carry_on(line.id)
    return line
