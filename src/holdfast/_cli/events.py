"""Look at subscriptions and how far behind they are; pause, replay, skip or rebase one; look at parked events."""

from __future__ import annotations

import argparse
import difflib
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import psycopg

from holdfast._cli import session, table
from holdfast._cli.operator import audited
from holdfast._cli.session import CommandError
from holdfast._drivers import run_sync
from holdfast._store.subscription import (
    MOST_PARTITIONS,
    clear_subscription,
    delete_subscription,
    find_subscription,
    list_parked,
    list_subscriptions,
    pause_subscription,
    rebase_subscription,
    release_parked,
    repartition_subscription,
    replay_subscription,
    skip_subscription,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from holdfast._store.statement import Statement
    from holdfast._store.subscription import ParkedRow, SubscriptionRow

T = TypeVar("T")

Connection: TypeAlias = "psycopg.Connection[Any]"
Act: TypeAlias = "Callable[[Connection, argparse.Namespace], Any]"

_COLUMNS = ("name", "partition", "target", "holder", "events behind", "seconds", "parked", "state", "moved")
_PARKED_COLUMNS = ("event", "topic", "key", "parked", "state", "tried again", "error")
_MOST_PARKED = 1_000
# Rows per transaction, and the most transactions, in case released events are refused at once again.
_PIECE, _PIECES = 10_000, 1_000
_LARGEST_ID = 2**63 - 1


def configure(parser: argparse.ArgumentParser) -> None:
    _configure(parser)
    actions = parser.add_subparsers(dest="action", metavar="action")
    _action(actions, "list", "list them all, each partition with how far it is (the default)", _list)
    _named(actions, "pause", "hand over nothing more of it", _pause)
    _named(actions, "resume", "go on where it was paused", _resume)
    replay = _named(actions, "replay", "hand over again what was published before", _replay)
    from_ = replay.add_mutually_exclusive_group(required=True)
    from_.add_argument("--since", type=_time, metavar="TIME", help="what was published since, e.g. 2026-11-15T07:30Z")
    from_.add_argument("--after", type=_id, metavar="ID", help="what came after the event of this id; 0: all there is")
    skip = _named(actions, "skip", "pass everything that has been published until now", _skip)
    delete = _named(actions, "delete", "forget a subscription, its position and what is parked", _delete)
    for own in (skip, delete):
        own.add_argument("--yes", action="store_true", help="do not ask")
    rebase = _action(actions, "rebase", "begin anew on this server, after a logical restore", _rebase)
    rebase.add_argument("name", metavar="NAME", nargs="?")
    rebase.add_argument("--all", action="store_true", help="every subscription that came from another server")
    repartition = _named(actions, "repartition", "cut a relay into so many partitions", _repartition)
    repartition.add_argument("partitions", type=_partitions, metavar="N")
    parked = _named(actions, "parked", "list the events that its sink refused, and what waits behind them", _parked)
    parked.add_argument("--after", type=_id, default=0, metavar="ID", help="the page that comes after this event")
    release = _named(actions, "release", "try parked events again, in order", _release)
    release.add_argument("--key", metavar="KEY", help="only those of this key")


def run(arguments: argparse.Namespace) -> None:
    with session.opened(arguments) as conn:
        act: Act = getattr(arguments, "act", _list)
        act(conn, arguments)


def _configure(parser: argparse.ArgumentParser) -> None:
    session.configure(parser)
    table.configure(parser)


def _action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser], name: str, help_: str, act: Act
) -> argparse.ArgumentParser:
    # Options given before the action must not be overwritten by defaults of the action.
    own = actions.add_parser(
        name, help=help_, description=f"{help_[0].upper()}{help_[1:]}.", argument_default=argparse.SUPPRESS
    )
    own.set_defaults(act=act)
    _configure(own)
    return own


def _named(
    actions: argparse._SubParsersAction[argparse.ArgumentParser], name: str, help_: str, act: Act
) -> argparse.ArgumentParser:
    own = _action(actions, name, help_, act)
    own.add_argument("name", metavar="NAME")
    return own


def _id(text: str) -> int:
    if not text.isdecimal() or int(text) > _LARGEST_ID:
        raise argparse.ArgumentTypeError(f"{text!r} is not the id of an event")
    return int(text)


def _partitions(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST_PARTITIONS:
        raise argparse.ArgumentTypeError(f"{text!r}: from 1 to {MOST_PARTITIONS}")
    return int(text)


def _time(text: str) -> datetime:
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        when = None
    if when is None or when.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no time with a zone, such as 2026-11-15T07:30Z")
    return when


def _list(conn: Connection, arguments: argparse.Namespace) -> None:
    lines = session.ask(conn, list_subscriptions())
    if arguments.json:
        table.print_json([line._asdict() for line in lines])
    elif lines:
        table.print_table(_COLUMNS, [_line(line) for line in lines])
        for name in dict.fromkeys(line.name for line in lines if line.elsewhere):
            print(f"{name} was restored from another server, and reads nothing: `holdfast events rebase {name}`")
    else:
        print("No subscription is stored: a worker stores those of its application when it starts.")


def _line(line: SubscriptionRow) -> tuple[object, ...]:
    return (
        line.name,
        line.partition,
        line.target,
        line.worker,
        line.events,
        line.seconds,
        line.parked,
        _state(line),
        line.at,
    )


def _state(line: SubscriptionRow) -> str:
    states = {
        "elsewhere": line.elsewhere,
        "paused": line.paused,
        "replaying": line.phase == "again",
        "unheld": line.worker is None and not line.paused,
    }
    return ", ".join(name for name, true in states.items() if true) or "reading"


def _pause(conn: Connection, arguments: argparse.Namespace) -> None:
    _act(conn, arguments, pause_subscription(_find(conn, arguments.name), paused=True))
    _say(arguments, "paused; who reads it stops within a lease")


def _resume(conn: Connection, arguments: argparse.Namespace) -> None:
    _act(conn, arguments, pause_subscription(_find(conn, arguments.name), paused=False))
    _say(arguments, "goes on where it was paused")


def _replay(conn: Connection, arguments: argparse.Namespace) -> None:
    given = {name: getattr(arguments, name, None) for name in ("since", "after")}
    first = _act(conn, arguments, replay_subscription(_find(conn, arguments.name), **given), detail=given)
    if first is None:
        _say(arguments, "nothing was published since: nothing to hand over again", after=None)
    else:
        _say(arguments, f"hands over again what came after event {first}, and then goes on", after=first)


def _skip(conn: Connection, arguments: argparse.Namespace) -> None:
    subscription = _find(conn, arguments.name)
    _sure(arguments, f"Pass everything that {arguments.name} has not read yet? These events will not be delivered.")
    _act(conn, arguments, skip_subscription(subscription))
    _say(arguments, "has passed everything published until now")


def _delete(conn: Connection, arguments: argparse.Namespace) -> None:
    subscription = _find(conn, arguments.name)
    _sure(
        arguments,
        f"Delete {arguments.name}, how far it has read, and what is parked? A worker that has it makes it anew.",
    )
    for _ in range(_PIECES):
        if session.ask(conn, clear_subscription(subscription, most=_PIECE)) < _PIECE:
            break
    _act(conn, arguments, delete_subscription(subscription))
    _say(arguments, "deleted; a worker whose application still has it makes it anew when it starts")


def _rebase(conn: Connection, arguments: argparse.Namespace) -> None:
    named: str = getattr(arguments, "name", "")
    every = getattr(arguments, "all", False)
    if bool(named) == every:
        raise CommandError("name one subscription, or give --all", status=2)
    lines = session.ask(conn, list_subscriptions())
    away = list(dict.fromkeys(line.name for line in lines if line.elsewhere))
    names = away if every else [named]
    for name in names:
        _find(conn, name)
        if name not in away:
            raise CommandError(f"{name} was not restored from another server: to hand events over again, `replay` it")
    done = [{"name": name, "action": "rebase", "first": _rebased(conn, name)} for name in names]
    if arguments.json:
        table.print_json(done)
        return
    for one in done:
        again = "nothing was unread" if one["first"] is None else f"hands over from event {one['first']} on, some again"
        print(f"{one['name']}: reads on this server now; {again}")
    if not done:
        print("No subscription came from another server.")


def _rebased(conn: Connection, name: str) -> int | None:
    try:
        return audited(conn, rebase_subscription(_find(conn, name)), "subscription.rebase", name)
    except psycopg.errors.LockNotAvailable as error:
        raise CommandError(
            f"{name}: events are being published now: stop the publishers for a moment and try again"
        ) from error


def _repartition(conn: Connection, arguments: argparse.Namespace) -> None:
    to = {"partitions": arguments.partitions}
    cutting = repartition_subscription(_find(conn, arguments.name), **to)
    if not _act(conn, arguments, cutting, undone=[False], detail=to):
        raise CommandError(f"{arguments.name} makes jobs, and those are shared already: only a relay is cut")
    _say(arguments, f"has {table.counted(arguments.partitions, 'partition')}; some events may be handed over again")


def _parked(conn: Connection, arguments: argparse.Namespace) -> None:
    found = session.ask(
        conn, list_parked(_find(conn, arguments.name), after=getattr(arguments, "after", 0), most=_MOST_PARKED)
    )
    if arguments.json:
        table.print_json([line._asdict() for line in found])
    elif found:
        table.print_table(_PARKED_COLUMNS, [_parked_line(line) for line in found])
        if len(found) == _MOST_PARKED:
            print(f"The first {_MOST_PARKED}. There may be more: --after {found[-1].event_id}")
    else:
        print(f"{arguments.name}: nothing is parked.")


def _parked_line(line: ParkedRow) -> tuple[object, ...]:
    state = "not taken" if line.error_code else "behind its key"
    error = line.error or line.error_code
    return line.event_id, line.topic, line.key, line.parked_at, state, line.released_at, error


def _release(conn: Connection, arguments: argparse.Namespace) -> None:
    subscription, key = _find(conn, arguments.name), getattr(arguments, "key", None)
    released = 0
    for _ in range(_PIECES):
        piece = release_parked(subscription, key=key, most=_PIECE)
        freed = _act(conn, arguments, piece, undone=[0], detail={"key": key})
        released += freed
        if freed < _PIECE:
            break
    of = f" of the key {key}" if key is not None else ""
    _say(
        arguments,
        f"{table.counted(released, 'parked event')}{of} will be tried again, in order"
        if released
        else f"nothing{of} is parked",
        released=released,
    )


def _act(
    conn: Connection,
    arguments: argparse.Namespace,
    statement: Statement[T],
    *,
    undone: Collection[object] = (),
    detail: Mapping[str, object] | None = None,
) -> T:
    given = {name: value for name, value in (detail or {}).items() if value is not None}
    return audited(conn, statement, f"subscription.{arguments.action}", arguments.name, undone=undone, detail=given)


def _find(conn: Connection, name: str) -> int:
    with session.bounded(conn):
        found = run_sync(conn, find_subscription(name))
        known = [] if found is not None else sorted({line.name for line in run_sync(conn, list_subscriptions())})
    if found is None:
        close: Sequence[str] = difflib.get_close_matches(name, known, n=1)
        meant = f"did you mean {close[0]}?" if close else f"there are {', '.join(known) or 'none'}"
        raise CommandError(f"no subscription is named {name}: {meant}")
    return found


def _sure(arguments: argparse.Namespace, question: str) -> None:
    """Ask for confirmation. Without a terminal, --yes is required."""
    if getattr(arguments, "yes", False):
        return
    if not sys.stdin.isatty():
        raise CommandError(f"this cannot be undone: give --yes ({question})", status=2)
    if input(f"{question} [y/N] ").strip().lower() not in {"y", "yes"}:
        raise CommandError("nothing was done")


def _say(arguments: argparse.Namespace, says: str, **more: object) -> None:
    if arguments.json:
        table.print_json({"name": arguments.name, "action": arguments.action, **more})
    else:
        print(f"{arguments.name}: {says}")
