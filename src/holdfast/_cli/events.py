"""Look at subscriptions and how far behind they are; pause, replay, skip or rebase one; look at parked events."""

from __future__ import annotations

import argparse
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

import psycopg

from holdfast._cli import arguments as args
from holdfast._cli import session, table
from holdfast._cli.databases import ask_all
from holdfast._cli.session import CommandError
from holdfast._ops.caller import RequestRefused
from holdfast._ops.wording import counted
from holdfast._store.subscription import MOST_PARTITIONS, list_parked, list_subscriptions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast._ops.actions import SubscriptionChange
    from holdfast._ops.service import Service
    from holdfast._store.subscription import ParkedLine, SubscriptionRow

    Act: TypeAlias = Callable[[Service, argparse.Namespace], Awaitable[None]]

_COLUMNS = ("name", "partition", "target", "holder", "events behind", "seconds", "parked", "state", "moved")
_PARKED_COLUMNS = ("event", "topic", "key", "parked", "state", "tried again", "error")
_MOST_PARKED = 1_000
# Events per transaction, and the most transactions, in case released events are refused at once again.
_PIECE, _PIECES = 10_000, 1_000
_MESSAGES = {
    "pause": "paused; its reader stops within a lease",
    "resume": "goes on where it was paused",
    "skip": "has passed everything published until now",
    "delete": "deleted; a worker whose application still has it makes it anew when it starts",
}
_QUESTIONS = {
    "skip": "Pass everything that {name} has not read yet? These events will not be delivered.",
    "delete": "Delete {name}, how far it has read, and what is parked? A worker that has it makes it anew.",
}
_ID = args.whole(0, args.LARGEST_ID, "the id of an event")


def configure(parser: argparse.ArgumentParser) -> None:
    args.configure(parser)
    actions = parser.add_subparsers(dest="action", metavar="action")

    def add(name: str, help_: str, act: Act | None, *, named: bool = True) -> argparse.ArgumentParser:
        own = args.add_action(actions, name, help_, act, inherits=True)
        if named:
            own.add_argument("name", metavar="NAME")
        return own

    add("list", "list them all, each partition with how far it is (the default)", None, named=False)
    pause = add("pause", "hand over nothing more of it", _act)
    pause.add_argument("--reason", metavar="TEXT", help="shown wherever the pause is")
    add("resume", "go on where it was paused", _act)
    replay = add("replay", "hand over again what was published before", _replay)
    from_ = replay.add_mutually_exclusive_group(required=True)
    from_.add_argument("--since", type=_time, metavar="TIME", help="what was published since, e.g. 2026-11-15T07:30Z")
    from_.add_argument("--after", type=_ID, metavar="ID", help="what came after the event of this id; 0: all there is")
    skip = add("skip", "pass everything that has been published until now", _act)
    delete = add("delete", "forget a subscription, its position and what is parked", _act)
    for own in (skip, delete):
        own.add_argument("--yes", action="store_true", help="do not ask")
    rebase = add("rebase", "begin anew on this server, after a logical restore", _rebase, named=False)
    rebase.add_argument("name", metavar="NAME", nargs="?")
    rebase.add_argument("--all", action="store_true", help="every subscription that came from another server")
    repartition = add("repartition", "cut a relay into so many partitions", _repartition)
    repartition.add_argument("partitions", type=args.whole(1, MOST_PARTITIONS), metavar="N")
    parked = add("parked", "list the events that its sink refused, and what waits behind them", _parked)
    parked.add_argument("--after", type=_ID, default=0, metavar="ID", help="the page that comes after this event")
    release = add("release", "try parked events again, in order", _release)
    release.add_argument("--key", metavar="KEY", help="only those of this key")


def run(arguments: argparse.Namespace) -> int:
    return session.run_async(_run(arguments))


async def _run(arguments: argparse.Namespace) -> int:
    act: Act | None = getattr(arguments, "act", None)
    if act is None:
        return await _list(arguments)
    async with session.service(session.chosen(arguments)) as service:
        try:
            await act(service, arguments)
        except RequestRefused as refused:
            known = sorted({line.name for line in await service.read(list_subscriptions())})
            raise session.not_found(refused, arguments.name, known) from refused
    return 0


def _time(text: str) -> datetime:
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        when = None
    if when is None or when.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no time with a zone, such as 2026-11-15T07:30Z")
    return when


async def _list(arguments: argparse.Namespace) -> int:
    answers = await ask_all(session.listed(arguments), lambda service, _: service.read(list_subscriptions()))
    lines = [(answer.name, line) for answer in answers.found for line in answer.value]
    if arguments.json:
        table.print_json([answers.json(database, line._asdict()) for database, line in lines])
    elif lines:
        if answers.several:
            lines.sort(key=lambda one: (one[1].name, one[0], one[1].partition))
        answers.print_table(_COLUMNS, [(database, _line(line)) for database, line in lines])
        for database, name in dict.fromkeys((database, line.name) for database, line in lines if line.elsewhere):
            again = f"holdfast events rebase {name}{f' --database {database}' if database else ''}"
            print(f"{name} was restored from another server, and reads nothing: `{again}`")
    else:
        print("No subscription is stored: a worker stores those of its application when it starts.")
    return answers.status()


def _line(line: SubscriptionRow) -> tuple[object, ...]:
    lag = (line.events, line.seconds, line.parked)
    return (line.name, line.partition, line.target, line.worker, *lag, _state(line), line.at)


def _state(line: SubscriptionRow) -> str:
    states = {
        "elsewhere": line.elsewhere,
        "paused": line.paused,
        "replaying": line.phase == "again",
        "unheld": line.worker is None and not line.paused,
    }
    return ", ".join(name for name, true in states.items() if true) or "reading"


async def _act(service: Service, arguments: argparse.Namespace) -> None:
    action = arguments.action
    if action in _QUESTIONS:
        await _check_name(service, arguments.name)
        args.confirm(arguments, _QUESTIONS[action].format(name=arguments.name))
    reason: str | None = getattr(arguments, "reason", None)
    await _change(service, arguments, action, **({"reason": reason} if reason else {}))
    table.print_done(arguments, _MESSAGES[action])


async def _replay(service: Service, arguments: argparse.Namespace) -> None:
    given = {name: getattr(arguments, name, None) for name in ("since", "after")}
    first = await _change(service, arguments, "replay", **given)
    if first is None:
        table.print_done(arguments, "nothing was published since: nothing to hand over again", after=None)
    else:
        message = f"hands over again what came after event {first}, and then goes on"
        table.print_done(arguments, message, after=first)


async def _rebase(service: Service, arguments: argparse.Namespace) -> None:
    named: str = getattr(arguments, "name", "")
    every = getattr(arguments, "all", False)
    if bool(named) == every:
        raise CommandError("name one subscription, or give --all", status=2)
    lines = await service.read(list_subscriptions())
    away = list(dict.fromkeys(line.name for line in lines if line.elsewhere))
    if named:
        await _check_name(service, named)
        if named not in away:
            raise CommandError(f"{named} was not restored from another server: to hand events over again, `replay` it")
    done = [(name, await _rebased(service, name)) for name in (away if every else [named])]
    if arguments.json:
        table.print_json([{"name": name, "action": "rebase", "first": first} for name, first in done])
        return
    for name, first in done:
        again = "nothing was unread" if first is None else f"hands over from event {first} on, some again"
        print(f"{name}: reads on this server now; {again}")
    if not done:
        print("No subscription came from another server.")


async def _rebased(service: Service, name: str) -> int | None:
    try:
        return await service.change_subscription(name, "rebase", session.person())
    except psycopg.errors.LockNotAvailable as error:
        raise CommandError(
            f"{name}: events are being published now: stop the publishers for a moment and try again"
        ) from error


async def _repartition(service: Service, arguments: argparse.Namespace) -> None:
    await _change(service, arguments, "repartition", partitions=arguments.partitions)
    message = f"has {counted(arguments.partitions, 'partition')}; some events may be handed over again"
    table.print_done(arguments, message)


async def _parked(service: Service, arguments: argparse.Namespace) -> None:
    subscription = await _check_name(service, arguments.name)
    after = getattr(arguments, "after", 0)
    found = await service.read(list_parked(subscription, after=after, limit=_MOST_PARKED))
    if arguments.json:
        table.print_json([dict(line) for line in found])
    elif found:
        table.print_table(_PARKED_COLUMNS, [_parked_line(line) for line in found])
        if len(found) == _MOST_PARKED:
            print(f"The first {_MOST_PARKED}. There may be more: --after {found[-1].event_id}")
    else:
        print(f"{arguments.name}: nothing is parked.")


def _parked_line(line: ParkedLine) -> tuple[object, ...]:
    state = "not taken" if line.error_code else "behind its key"
    error = line.error or line.error_code
    return line.event_id, line.topic, line.key, line.parked_at, state, line.released_at, error


async def _release(service: Service, arguments: argparse.Namespace) -> None:
    key = getattr(arguments, "key", None)
    released = 0
    for _ in range(_PIECES):
        freed = await _change(service, arguments, "release", key=key, limit=_PIECE) or 0
        released += freed
        if freed < _PIECE:
            break
    of = f" of the key {key}" if key is not None else ""
    message = f"{counted(released, 'parked event')}{of} will be tried again, in order"
    table.print_done(arguments, message if released else f"nothing{of} is parked", released=released)


async def _change(
    service: Service, arguments: argparse.Namespace, action: SubscriptionChange, **given: Any
) -> int | None:
    return await service.change_subscription(arguments.name, action, session.person(), **given)


async def _check_name(service: Service, name: str) -> int:
    """Return the id of a subscription, or raise RequestRefused."""
    from holdfast._ops.actions import find_named

    async with service.reading() as transaction:
        return await find_named(transaction, name)
