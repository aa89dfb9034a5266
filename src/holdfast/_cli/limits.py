"""Look at limits; set what one allows in all workers together, or go back to what the code declares."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, TypeAlias

from holdfast._cli import arguments as args
from holdfast._cli import session, table
from holdfast._cli.databases import ask_all
from holdfast._cli.session import CommandError
from holdfast._model.errors import InvalidJob
from holdfast._model.limit import LARGEST, parsed_rate
from holdfast._ops.requests import LimitControl

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast._ops.responses.fleet import LimitLine
    from holdfast._ops.service import Service

    Act: TypeAlias = Callable[[Service, argparse.Namespace], Awaitable[None]]

_COLUMNS = ("name", "by", "concurrency", "rate", "burst", "running", "waiting", "oldest", "set by", "set at")
_ANY = "any"


def configure(parser: argparse.ArgumentParser) -> None:
    args.configure(parser)
    actions = parser.add_subparsers(dest="action", metavar="action")
    args.add_action(actions, "list", "list them all (the default)", inherits=True)
    own = args.add_action(actions, "set", "set what one allows, whatever the code declares", _set, inherits=True)
    own.add_argument("name", metavar="NAME")
    at_once = args.whole(0, LARGEST)
    own.add_argument("--concurrency", type=_or_any(at_once), metavar="N", help="jobs at once, in all workers; or any")
    own.add_argument("--rate", type=_or_any(_rate), metavar="RATE", help="starts in a time, such as 100/min; or any")
    own.add_argument("--burst", type=args.whole(1, LARGEST), metavar="N", help="how many start at once after a pause")
    own = args.add_action(actions, "reset", "go back to what the code declares", _reset, inherits=True)
    own.add_argument("name", metavar="NAME")


def run(arguments: argparse.Namespace) -> int:
    return session.run_async(_run(arguments))


async def _run(arguments: argparse.Namespace) -> int:
    act: Act | None = getattr(arguments, "act", None)
    if act is None:
        return await _list(arguments)
    async with session.service(session.chosen(arguments)) as service:
        await act(service, arguments)
    return 0


def _rate(text: str) -> str:
    try:
        parsed_rate(text)
    except InvalidJob as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _or_any(read: Callable[[str], int | str]) -> Callable[[str], int | str | None]:
    return lambda text: None if text == _ANY else read(text)


async def _list(arguments: argparse.Namespace) -> int:
    answers = await ask_all(session.listed(arguments), lambda service, _: service.limits())
    limits = [(answer.name, limit) for answer in answers.found for limit in answer.value.items]
    if arguments.json:
        found = [answers.json(answer.name, answer.value.model_dump(mode="json")) for answer in answers.found]
        table.print_json(found if answers.several else found[0])
    elif limits:
        answers.print_table(_COLUMNS, [(name, _line(limit)) for name, limit in limits])
    else:
        print("No worker has declared a limit.")
    return answers.status()


def _line(limit: LimitLine) -> tuple[object, ...]:
    oldest = None if limit.oldest_seconds is None else f"{max(limit.oldest_seconds, 0):.0f} s"
    rate = (limit.rate, limit.burst) if limit.rate else (None, None)
    by = ", ".join(limit.parameters or ()) or None
    return limit.name, by, limit.concurrency, *rate, limit.running, limit.waiting, oldest, limit.set_by, limit.set_at


async def _set(service: Service, arguments: argparse.Namespace) -> None:
    given = {name: getattr(arguments, name) for name in ("concurrency", "rate", "burst") if hasattr(arguments, name)}
    if not given:
        raise CommandError(f"nothing to set for {arguments.name}: give --concurrency or --rate", status=2)
    now = next((limit for limit in (await service.limits()).items if limit.name == arguments.name), None)
    kept = {} if now is None else {name: getattr(now, name) for name in ("concurrency", "rate", "burst")}
    control = LimitControl.model_validate({"concurrency": None, "rate": None} | kept | given)
    done = await service.set_limit(arguments.name, control, session.person())
    table.print_done(arguments, done.message.removeprefix(f"{arguments.name}: "), **control.model_dump())


async def _reset(service: Service, arguments: argparse.Namespace) -> None:
    done = await service.reset_limit(arguments.name, session.person())
    table.print_done(arguments, done.message.removeprefix(f"{arguments.name}: "))
