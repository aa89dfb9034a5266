"""Print every setting with its value and source, and look at the archive and the databases: schema, rights, LISTEN.

The source is `argument` (the application's address, `--queues`), a variable, `alias` and a variable, or `default`.
With several databases, each is checked, with whether it is draining and how much work is left there.
`--server` instead checks every feature that Holdfast needs from the server, also before `holdfast migrate`.
Changes nothing. Exit status: 0 when a worker could run so, 1 when something is wrong or missing.
"""

from __future__ import annotations

import os
from collections import Counter
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg

from holdfast._archive.location import Location
from holdfast._cli import bucket, load, server_features, session, table
from holdfast._cli.pooler import listening, pooling
from holdfast._cli.session import CommandError
from holdfast._cli.worker import queues
from holdfast._distribution import missing
from holdfast._engine.runner import left_out
from holdfast._engine.worker import uncovered
from holdfast._model.errors import HoldfastError
from holdfast._model.kind import Kind
from holdfast._model.settings import Settings
from holdfast._model.settings_table import SETTINGS
from holdfast._model.work import Lease
from holdfast._ops.wording import counted
from holdfast._store import schema
from holdfast._store.archive import read_retention
from holdfast._store.inspect import (
    MOST_COUNTED,
    count_live_jobs,
    list_roles,
    read_census,
    read_rights,
    read_server,
)
from holdfast._store.subscription import list_subscriptions
from holdfast._store.worker import list_workers, read_queues, unserved

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator

    from holdfast._app.app import Holdfast
    from holdfast._cli.pooler import CheckResult, Verdict
    from holdfast._cli.session import Database
    from holdfast._store.inspect import Rights


class Finding(NamedTuple):
    """The result of a check of one subject of one database."""

    verdict: Verdict
    database: str
    subject: str
    message: str


def configure(parser: argparse.ArgumentParser) -> None:
    load.configure(parser, optional=True)
    parser.add_argument(
        "--queues", type=queues, metavar="NAME=N,…", default={}, help="the queues that the worker will serve"
    )
    parser.add_argument(
        "--server", action="store_true", help="check only what Holdfast needs from the server; needs no schema"
    )
    parser.add_argument("--database", metavar="NAME", help="check only this one of several databases")
    table.configure(parser)


def run(arguments: argparse.Namespace) -> int:
    app = load.load(arguments.app) if arguments.app else None
    given = {
        "database_urls": (app.url,) if app and app.has_own_database else None,
        "queue_concurrency": arguments.queues,
    }
    settings = Settings.load(os.environ, **given)
    if arguments.server:
        findings = [*_databases(app, settings, server_features.check, arguments.database)]
    else:
        findings = [
            *_coverage(app, arguments.queues),
            *_settings(app, settings),
            *_archive(app, settings),
            *_databases(app, settings, _database, arguments.database),
        ]
    bad = any(finding.verdict == "wrong" for finding in findings)
    if arguments.json:
        shown = {} if arguments.server else _described(settings, app)
        table.print_json({"ok": not bad, **shown, "findings": [finding._asdict() for finding in findings]})
    else:
        if not arguments.server:
            _print(settings, app)
        table.print_table(("verdict", "database of", "subject", "message"), findings)
        if bad:
            print("\nSomething is wrong.")
    return 1 if bad else 0


def _coverage(app: Holdfast | None, named: Iterable[str]) -> Iterator[Finding]:
    if app is None:
        return
    handled = {name: kind for name, kind in app.kinds.items() if isinstance(kind, Kind)}
    for message in uncovered(handled, named):
        yield Finding("note", "-", "kinds", message)
    for name, kind in sorted(handled.items()):
        if kind.envelope.max_attempts is None:
            message = f"{name} has no limit of attempts: failing never makes a dead letter of its jobs"
            yield Finding("note", "-", "kinds", message)


def _settings(app: Holdfast | None, settings: Settings) -> Iterator[Finding]:
    """Check the settings against the application."""
    if app is not None:
        for message in left_out(settings, [*app.runners, *app.archive_names(settings)]):
            yield Finding("note", "-", "runners", message)
    for name, kind in sorted(app.kinds.items()) if app is not None else ():
        if isinstance(kind, Kind) and kind.work.lease is not None:
            for message in settings.too_long_for(f"kind {name}", kind.work.lease.duration):
                yield Finding("wrong", "-", "settings", message)


def _archive(app: Holdfast | None, settings: Settings) -> Iterator[Finding]:
    """Check whether the bucket of the archive answers."""
    location = Location.of(settings)
    if location is None:
        tables = ", ".join(archive.source for archive in app.archives) if app is not None else ""
        stay = f"; old rows of {tables} stay in the schema archive" if tables else ""
        yield Finding("ok", "-", "archive", f"{bucket.NO_BUCKET}{stay}")
        return
    if absent := [library for library in bucket.LIBRARIES if find_spec(library) is None]:
        yield Finding("wrong", "-", "archive", missing(location.address, "archive", *absent))
        return
    why = bucket.answer(location)
    yield Finding("wrong" if why else "ok", "-", "archive", f"{location.address}: {why or 'the bucket answers'}")


def _databases(
    app: Holdfast | None,
    settings: Settings,
    look: Callable[[Database, Settings], Iterator[CheckResult]],
    name: str | None,
) -> Iterator[Finding]:
    """Look at every database, or at that of this name, and continue with the next one where a look fails."""
    try:
        found = load.databases(app)
    except CommandError as stop:
        yield Finding("wrong", "-", "database", str(stop))
        return
    several = len(found) > 1
    for database in found if name is None else [session.named(name, found)]:
        of = database.name if several else database.source
        try:
            for verdict, subject, message in look(database, settings):
                yield Finding(verdict, of, subject, message)
            if several:
                yield Finding("note" if database.draining else "ok", of, "placement", _placement(database))
        except CommandError as stop:
            yield Finding("wrong", of, "database", str(stop))


def _placement(database: Database) -> str:
    """Return whether a database of several takes new keys, and how much is left to do there."""
    takes = "is draining and takes no new keys" if database.draining else "takes new keys"
    with session.connect(database) as conn, session.translated(conn):
        try:
            jobs = session.run(conn, count_live_jobs())
            lines = session.run(conn, list_subscriptions())
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName, psycopg.errors.InsufficientPrivilege):
            return takes
    events = sum(line.parked for line in lines)
    for name in {line.name for line in lines}:
        events += max(line.events for line in lines if line.name == name)
    least = "at least " if jobs == MOST_COUNTED else ""
    left = f"{least}{counted(jobs, 'unfinished job')}, {counted(events, 'event')} not handed over"
    return f"{takes}: nothing is left to do" if not jobs + events and database.draining else f"{takes}: {left}"


def _database(database: Database, settings: Settings) -> Iterator[CheckResult]:
    with session.connect(database) as conn, session.translated(conn):
        server = session.run(conn, read_server())
        major = server.version // 10_000
        known = server_features.OLDEST <= major <= server_features.NEWEST
        yield "ok" if known else "note", "database", _address(conn, major, known=known)
        encoding = schema.encoding(conn)
        if encoding == "SQL_ASCII":
            yield "wrong", "encoding", f"the database {schema.SQL_ASCII}"
            return
        if encoding not in {"UTF8", None}:
            yield "note", "encoding", f"the database has {encoding}: texts with other characters are refused"
        try:
            schema.check(conn)
        except HoldfastError as error:
            yield "wrong", "schema", str(error)
        else:
            yield "ok", "schema", f"up to date: {schema.migrations()[-1].name}"
            rights = session.run(conn, read_rights())
            yield _rights(server.user, rights)
            if rights.look:
                yield from _waiting(conn)
                yield from _leases(conn, settings)
                yield from _kept_days(conn, settings)
        yield _roles(conn)
        with session.connect(database) as other:
            how = pooling(conn, other)
            yield server_features.isolation(conn)
            yield server_features.connections(conn, how, settings)
            yield listening(conn, other, how, settings)


def _address(conn: psycopg.Connection[Any], major: int, *, known: bool) -> str:
    where = f"{conn.info.user} at {conn.info.host}:{conn.info.port}, database {conn.info.dbname}, PostgreSQL {major}"
    return where if known else f"{where}: Holdfast is tried with {server_features.OLDEST} to {server_features.NEWEST}"


def _rights(user: str, rights: Rights) -> CheckResult:
    if rights.work:
        return "ok", "rights", f"{user} may work"
    may = "may look but not work" if rights.look else "may neither look nor work"
    return "wrong", "rights", f"{user} {may}: GRANT holdfast_worker TO {user}"


def _waiting(conn: psycopg.Connection[Any]) -> Iterator[CheckResult]:
    """Report the live workers, due jobs without one and parked events."""
    workers = session.run(conn, list_workers(latest=0))
    live = sum(worker.state == "live" for worker in workers)
    yield "ok" if live else "note", "workers", f"{counted(live, 'live worker')}{'' if live else ': nothing runs'}"
    for line in unserved(session.run(conn, read_census()), workers):
        due = counted(line.due, "due job")
        yield "note", "kinds", f"no live worker takes {line.kind} from the queue {line.queue}: {due}"
    parked: Counter[str] = Counter()
    for subscription in session.run(conn, list_subscriptions()):
        parked[subscription.name] += subscription.parked
    for name, events in (+parked).items():
        yield "note", "events", f"{counted(events, 'parked event')} of {name}: holdfast events parked {name}"


def _leases(conn: psycopg.Connection[Any], settings: Settings) -> Iterator[CheckResult]:
    """Check the leases that operators set on queues."""
    for queue in session.run(conn, read_queues()):
        if queue.lease_ms is not None:
            for message in settings.too_long_for(f"queue {queue.name}", timedelta(milliseconds=queue.lease_ms)):
                yield "note", "leases", message


def _kept_days(conn: psycopg.Connection[Any], settings: Settings) -> Iterator[CheckResult]:
    """Warn of days that are kept for an archive that this worker does not have."""
    if not settings.archive_bucket and any(line.archived for line in session.run(conn, read_retention())):
        message = (
            "days are kept until they are archived, and no bucket is set: set HOLDFAST_ARCHIVE_BUCKET for a worker"
        )
        yield "note", "archive", f"{message}, or give the archive up with `holdfast archive disable`"


def _roles(conn: psycopg.Connection[Any]) -> CheckResult:
    held = [role for role, is_held in session.run(conn, list_roles()).items() if is_held]
    if missing := schema.missing_roles(conn):
        return "note", "roles", f"missing: {', '.join(missing)}; a user who may create roles runs `holdfast migrate`"
    return "ok", "roles", f"all there; this user has {', '.join(held) or 'none of them'}"


def _application(app: Holdfast, settings: Settings) -> dict[str, list[str]]:
    """Return the names that the application registers, by type."""
    queues = {kind.envelope.queue for kind in app.kinds.values()}
    return {
        "imports": list(app.imports),
        "kinds": sorted(app.kinds),
        "queues": sorted(queues),
        "runners": list(app.runners),
        "schedules": list(app.schedules),
        "time limits": _limits(app, settings),
    }


def _limits(app: Holdfast, settings: Settings) -> list[str]:
    lease = Lease(settings.lease.total_seconds())
    handled = {name: kind.work for name, kind in sorted(app.kinds.items()) if isinstance(kind, Kind)}
    return [
        f"{name} {work.longest(work.lease or lease):g} s{' (3 leases)' if work.max_runtime is None else ''}"
        for name, work in handled.items()
    ]


def _print(settings: Settings, app: Holdfast | None) -> None:
    table.print_table(("setting", "value", "source"), [(row.name, row.value, row.source) for row in settings.rows()])
    for note in settings.notes:
        print(f"note: {note}")
    if app is not None:
        print()
        for what, names in _application(app, settings).items():
            print(f"{counted(len(names), what.removesuffix('s'))}: {', '.join(names) or '-'}")
    print()


def _described(settings: Settings, app: Holdfast | None) -> dict[str, object]:
    units = {setting.name: setting.unit for setting in SETTINGS}
    return {
        "settings": [row._asdict() | {"unit": units[row.name]} for row in settings.rows()],
        "notes": settings.notes,
        "application": app and _application(app, settings),
    }
