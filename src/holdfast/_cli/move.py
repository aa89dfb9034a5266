"""Move waiting jobs from one database to another, each exactly once.

It first finishes a move that was interrupted, then moves jobs in batches until none of those that were there can move,
and says what is left and why: jobs that run, jobs that wait for one that runs, and events, which never move. It can be
killed and run again at any time. Exit status: 0 if no job is left, else 1.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from psycopg import IsolationLevel

from holdfast._cli import arguments as args
from holdfast._cli import load, session, table
from holdfast._cli.mover import BATCH, MovePlace, Mover
from holdfast._cli.progress import ProgressLine
from holdfast._cli.session import CommandError, Database
from holdfast._ops.caller import written
from holdfast._ops.wording import counted
from holdfast._store import moving, schema
from holdfast._store.moving import MovableCount, MovedLane, Which
from holdfast._store.schema import applied_migrations
from holdfast._store.subscription import list_subscriptions

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from holdfast._cli.mover import MoveTally

_NEW_IDENTITY = "UPDATE holdfast.identity SET id = gen_random_uuid()"
_LARGEST_BATCH = 10_000
_MOVABLE = "movable"
_WHY = {
    "running": "running: they end here",
    "key_running": "in an order key of which a job is running",
    "key_stopped": "in an order key that a failed job has stopped, or that moves to another database",
    "awaits_chain": "after a chain that has not ended or moved",
    _MOVABLE: "enqueued or locked meanwhile, or beyond --limit: run it again",
}


def configure(parser: argparse.ArgumentParser) -> None:
    load.configure(parser, optional=True)
    parser.add_argument("--from", dest="source", required=True, metavar="NAME", help="the database with the jobs")
    parser.add_argument("--to", dest="destination", required=True, metavar="NAME", help="the database that gets them")
    parser.epilog = "The names are those of the application's databases, else of the settings; an address is one too."
    table.configure(parser)
    many = "; repeat it for others (default: all)"
    parser.add_argument("--queue", action="append", metavar="NAME", help=f"only jobs of this queue{many}")
    parser.add_argument("--kind", action="append", metavar="NAME", help=f"only jobs of this kind{many}")
    parser.add_argument("--limit", type=args.whole(1, args.LARGEST_ID), metavar="N", help="move at most N jobs")
    batch = args.whole(1, _LARGEST_BATCH)
    parser.add_argument("--batch", type=batch, default=BATCH, metavar="N", help=f"jobs per batch (default: {BATCH})")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--dry-run", action="store_true", help="count what would move, and write nothing")
    what.add_argument("--back", action="store_true", help="take back what has left and not arrived, and move nothing")


def run(arguments: argparse.Namespace) -> int:
    if arguments.source == arguments.destination:
        # Not the text itself: an address may have a password.
        both = f"both {arguments.source}" if _is_name(arguments.source) else "the same address"
        raise CommandError(f"--from and --to are {both}: jobs move from one database to another", status=2)
    known = _databases(arguments.app) if _is_name(arguments.source) or _is_name(arguments.destination) else []
    with ExitStack() as stack:
        source = _opened(stack, "--from", arguments.source, known)
        destination = _opened(stack, "--to", arguments.destination, known)
        _check(source, destination)
        mover = Mover(
            source,
            destination,
            Which(_names(arguments.queue), _names(arguments.kind)),
            batch=arguments.batch,
            limit=arguments.limit,
        )
        if arguments.dry_run:
            return _preview(arguments, mover)
        _record(arguments, mover)
        return _call_back(arguments, mover) if arguments.back else _move(arguments, mover)


def _databases(app: str | None) -> list[Database]:
    """Return the databases of the application, else those of the environment."""
    if app is not None and (loaded := load.load(app)).url:
        return session.of_databases("the application", loaded.databases)
    return session.of_environment()


def _is_name(given: str) -> bool:
    return "://" not in given and "=" not in given


def _opened(stack: ExitStack, option: str, given: str, known: Sequence[Database]) -> MovePlace:
    """Connect to a database that is given by its name or its address."""
    database = session.named(given, known) if _is_name(given) else Database("", option, given)
    conn = stack.enter_context(session.connect_to(database))
    conn.isolation_level = IsolationLevel.READ_COMMITTED
    with session.translated(conn):
        schema.check(conn)
    return MovePlace(database.name or conn.info.dbname, conn)


def _check(source: MovePlace, destination: MovePlace) -> None:
    """Raise CommandError if jobs cannot move from one to the other."""
    if not source.identity or not destination.identity:
        raise CommandError("the table holdfast.identity is empty: INSERT INTO holdfast.identity DEFAULT VALUES")
    if source.identity == destination.identity:
        raise CommandError(
            f"--from and --to have the same identity, {source.identity}: they are one database, or one is a copy of "
            f"the other. Give the copy its own: {_NEW_IDENTITY}",
            status=2,
        )
    newer = len(source.run(applied_migrations())) - len(destination.run(applied_migrations()))
    if newer > 0:
        raise CommandError(
            f"the schema of {destination.name} lacks {counted(newer, 'migration')} that {source.name} has: run "
            "`holdfast migrate` there with the newest version in use"
        )


def _record(arguments: argparse.Namespace, mover: Mover) -> None:
    """Write the audit of both, before anything moves: a database that only reads is found here."""
    detail = {"queue": arguments.queue, "kind": arguments.kind, "limit": arguments.limit, "back": arguments.back}
    names = f"{mover.source.name} to {mover.destination.name}"
    for place in (mover.destination, mover.source):
        place.run(written(session.person(), "jobs.move", target=names, detail=detail))


def _preview(arguments: argparse.Namespace, mover: Mover) -> int:
    counts = _counts(mover)
    unserved = _unserved(mover, counts)
    if arguments.json:
        table.print_json({"jobs": [count._asdict() for count in counts], "events": _events(mover)})
    elif not counts:
        print(f"{mover.source.name}: no job is left to move.")
    else:
        lines = [(count.queue, count.kind, count.jobs, _state(count)) for count in counts]
        table.print_table(("queue", "kind", "jobs", "state"), lines)
        print(f"\nNothing was written. {counted(_movable(counts), 'job')} would move to {mover.destination.name}.")
        _print_unserved(mover, unserved)
    return 0


def _move(arguments: argparse.Namespace, mover: Mover) -> int:
    counts = _counts(mover)
    if not arguments.json:
        _print_unserved(mover, _unserved(mover, counts))
    with _JobsLine(arguments, mover, _movable(counts)):
        tally = mover.move()
    left, events = _counts(mover), _events(mover)
    if arguments.json:
        table.print_json(_as_json(tally, left, events))
    else:
        _print_moved(mover, tally, left, events)
    return 1 if left else 0


def _call_back(arguments: argparse.Namespace, mover: Mover) -> int:
    tally = mover.call_back()
    if arguments.json:
        table.print_json({"returned": tally.returned, "duplicates": tally.duplicates, "arrived": tally.arrived})
    else:
        print(f"{mover.source.name}: took back {counted(tally.returned, 'job')}{_duplicates(tally)}")
        if tally.arrived:
            print(f"{counted(tally.arrived, 'job')} had arrived in {mover.destination.name}, and stay there.")
    return 0


class _JobsLine(ProgressLine):
    """Shows how many jobs have moved."""

    def __init__(self, arguments: argparse.Namespace, mover: Mover, total: int) -> None:
        super().__init__(arguments)
        self._total = total
        mover.progress = self

    def __call__(self, _step: str, tally: MoveTally) -> None:
        done = tally.arrived + tally.duplicates
        total = max(self._total, done)
        self.show(done / max(total, 1), f"moved {done:,} of {total:,}, {done / tally.seconds:,.0f} jobs/s")


def _counts(mover: Mover) -> list[MovableCount]:
    last = mover.source.run(moving.last_job_id())
    return mover.source.run(moving.count_movable(mover.destination.identity, mover.which, last=last))


def _movable(counts: Sequence[MovableCount]) -> int:
    return sum(count.jobs for count in counts if count.stays == _MOVABLE)


def _state(count: MovableCount) -> str:
    return "moves" if count.stays == _MOVABLE else _WHY[count.stays]


def _events(mover: Mover) -> int:
    """Return how many events the subscriptions of the source have not read, the furthest behind of each counted."""
    behind: dict[str, int] = {}
    for line in mover.source.run(list_subscriptions()):
        behind[line.name] = behind.get(line.name, 0) + line.events
    return sum(behind.values())


def _unserved(mover: Mover, counts: Sequence[MovableCount]) -> list[MovedLane]:
    lanes = sorted({MovedLane(count.queue, count.kind) for count in counts if count.stays != "running"})
    return mover.destination.run(moving.unserved_there(lanes)) if lanes else []


def _print_unserved(mover: Mover, lanes: Sequence[MovedLane]) -> None:
    if lanes:
        named = ", ".join(f"{lane.kind} ({lane.queue})" for lane in lanes[:10])
        more = f" and {len(lanes) - 10} more" if len(lanes) > 10 else ""  # noqa: PLR2004 - enough to see which
        print(f"No live worker of {mover.destination.name} takes {named}{more}.")


def _duplicates(tally: MoveTally) -> str:
    return f"; {counted(tally.duplicates, 'job')} had a unique key of a live job" if tally.duplicates else ""


def _print_moved(mover: Mover, tally: MoveTally, left: Sequence[MovableCount], events: int) -> None:
    done = tally.arrived + tally.duplicates
    rate = f"{done / tally.seconds:,.0f} jobs/s"
    names = f"{mover.source.name} to {mover.destination.name}"
    print(f"{names}: moved {counted(tally.arrived, 'job')} in {tally.seconds:.1f} s, {rate}{_duplicates(tally)}")
    if tally.returned:
        print(f"{counted(tally.returned, 'job')} came back: another run with --back has called them back.")
    if left:
        print(f"\nLeft in {mover.source.name}:\n")
        table.print_table(("jobs", "why"), [(jobs, _WHY[stays]) for stays, jobs in _by_reason(left).items()])
    else:
        print(f"\nNo job is left in {mover.source.name}.")
    if tally.held:
        keys = counted(tally.held, "order key")
        print(f"\n{mover.source.name} keeps {keys} stopped until the jobs that moved have ended: run it again then.")
    if events:
        print(
            f"\n{counted(events, 'event')} of {mover.source.name} not read yet: events do not move, workers relay them."
        )


def _by_reason(counts: Sequence[MovableCount]) -> dict[str, int]:
    return {stays: jobs for stays in _WHY if (jobs := sum(count.jobs for count in counts if count.stays == stays))}


def _as_json(tally: MoveTally, left: Sequence[MovableCount], events: int) -> dict[str, Any]:
    return {
        "arrived": tally.arrived,
        "duplicates": tally.duplicates,
        "returned": tally.returned,
        "seconds": round(tally.seconds, 3),
        "left": _by_reason(left),
        "keys_held": tally.held,
        "events_left": events,
    }


def _names(given: list[str] | None) -> tuple[str, ...] | None:
    return None if given is None else tuple(given)
