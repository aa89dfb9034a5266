"""Print every setting with its value and source, and look at the archive and the databases: schema, rights, LISTEN.

The source is `argument` (the application's address, `--queues`), a variable, `alias` and a variable, or `default`.
Changes nothing. Exit status: 0 when a worker could run so, 1 when something is wrong.
"""

from __future__ import annotations

import os
from collections import Counter
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from holdfast._archive.location import Location
from holdfast._cli import bucket, load, session, table
from holdfast._cli.session import CommandError
from holdfast._cli.worker import queues
from holdfast._distribution import missing
from holdfast._engine.link import too_strict
from holdfast._engine.pipeline import headroom
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
from holdfast._store.inspect import list_roles, read_census, read_isolation, read_rights, read_server
from holdfast._store.subscription import list_subscriptions
from holdfast._store.worker import list_workers, read_queues, unserved

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator

    import psycopg

    from holdfast._app.app import Holdfast
    from holdfast._store.inspect import ServerInfo

Verdict: TypeAlias = Literal["ok", "note", "wrong"]
Said: TypeAlias = tuple[Verdict, str, str]

_OLDEST, _NEWEST = 15, 18
_CHANNEL = "holdfast_check"
# A notification takes about a millisecond; after this time it is lost.
_LISTEN_SECONDS = 5.0


class Finding(NamedTuple):
    """The result of one check."""

    verdict: Verdict
    database: str
    subject: str
    says: str


def configure(parser: argparse.ArgumentParser) -> None:
    load.configure(parser, optional=True)
    parser.add_argument(
        "--queues", type=queues, metavar="NAME=N,…", default={}, help="the queues that the worker will serve"
    )
    table.configure(parser)


def run(arguments: argparse.Namespace) -> int:
    app = load.load(arguments.app) if arguments.app else None
    given = {"database_urls": (app.url,) if app and app.url else None, "queue_concurrency": arguments.queues}
    settings = Settings.load(os.environ, **given)
    findings = [
        *_coverage(app, arguments.queues),
        *_settings(app, settings),
        *_archive(app, settings),
        *_databases(app, settings),
    ]
    wrong = any(finding.verdict == "wrong" for finding in findings)
    if arguments.json:
        _print_json(settings, app, findings, ok=not wrong)
    else:
        _print(settings, app, findings, wrong=wrong)
    return 1 if wrong else 0


def _coverage(app: Holdfast | None, named: Iterable[str]) -> Iterator[Finding]:
    if app is None:
        return
    handled = {name: kind for name, kind in app.kinds.items() if isinstance(kind, Kind)}
    for says in uncovered(handled, named):
        yield Finding("note", "-", "kinds", says)
    for name, kind in sorted(handled.items()):
        if kind.envelope.max_attempts is None:
            says = f"{name} has no limit of attempts: failing never makes a dead letter of its jobs"
            yield Finding("note", "-", "kinds", says)


def _settings(app: Holdfast | None, settings: Settings) -> Iterator[Finding]:
    """Check the settings against the application."""
    if app is not None:
        for says in left_out(settings, [*app.runners, *app.archive_names(settings)]):
            yield Finding("note", "-", "runners", says)
    for name, kind in sorted(app.kinds.items()) if app is not None else ():
        if isinstance(kind, Kind) and kind.work.lease is not None:
            for says in settings.too_long_for(f"kind {name}", kind.work.lease.duration):
                yield Finding("wrong", "-", "settings", says)


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


def _databases(app: Holdfast | None, settings: Settings) -> Iterator[Finding]:
    try:
        named = load.addresses(app, settings)
    except CommandError as stop:
        yield Finding("wrong", "-", "database", str(stop))
        return
    for source, url in named.items():
        for verdict, subject, says in _database(source, url, settings):
            yield Finding(verdict, source, subject, says)


def _database(source: str, url: str, settings: Settings) -> Iterator[Said]:
    try:
        with load.connected(source, url) as conn, session.translated(conn):
            server = session.run(conn, read_server())
            major = server.version // 10_000
            known = _OLDEST <= major <= _NEWEST
            yield "ok" if known else "note", "database", _address(conn, major, known=known)
            try:
                schema.check(conn)
            except HoldfastError as error:
                yield "wrong", "schema", str(error)
            else:
                yield "ok", "schema", f"up to date: {schema.migrations()[-1].name}"
                yield _rights(conn, server)
                yield from _waiting(conn)
                yield from _leases(conn, settings)
                yield from _kept_days(conn, settings)
            yield _roles(conn)
            yield _isolation(conn)
            yield _connections(server, settings)
            yield _listening(conn, source, url, server, settings)
    except CommandError as stop:
        yield "wrong", "database", str(stop)


def _address(conn: psycopg.Connection[Any], major: int, *, known: bool) -> str:
    where = f"{conn.info.user} at {conn.info.host}:{conn.info.port}, database {conn.info.dbname}, PostgreSQL {major}"
    return where if known else f"{where}: Holdfast is tried with {_OLDEST} to {_NEWEST}"


def _rights(conn: psycopg.Connection[Any], server: ServerInfo) -> Said:
    rights = session.run(conn, read_rights())
    if rights.work:
        return "ok", "rights", f"{server.user} may work"
    may = "may look but not work" if rights.look else "may neither look nor work"
    return "wrong", "rights", f"{server.user} {may}: GRANT holdfast_worker TO {server.user}"


def _waiting(conn: psycopg.Connection[Any]) -> Iterator[Said]:
    """Report due jobs without a worker and parked events, if this user may read them."""
    if not session.run(conn, read_rights()).look:
        return
    for line in unserved(session.run(conn, read_census()), session.run(conn, list_workers(latest=0))):
        due = counted(line.due, "due job")
        yield "note", "kinds", f"no live worker takes {line.kind} from the queue {line.queue}: {due}"
    parked: Counter[str] = Counter()
    for subscription in session.run(conn, list_subscriptions()):
        parked[subscription.name] += subscription.parked
    for name, events in (+parked).items():
        yield "note", "events", f"{counted(events, 'parked event')} of {name}: holdfast events parked {name}"


def _leases(conn: psycopg.Connection[Any], settings: Settings) -> Iterator[Said]:
    """Check the leases that operators set on queues, if this user may read them."""
    if not session.run(conn, read_rights()).look:
        return
    for queue in session.run(conn, read_queues()):
        if queue.lease_ms is not None:
            for says in settings.too_long_for(f"queue {queue.name}", timedelta(milliseconds=queue.lease_ms)):
                yield "note", "leases", says


def _kept_days(conn: psycopg.Connection[Any], settings: Settings) -> Iterator[Said]:
    """Warn of days that are kept for an archive that this worker does not have, if this user may read that."""
    if settings.archive_bucket or not session.run(conn, read_rights()).look:
        return
    if any(line.archived for line in session.run(conn, read_retention())):
        says = "days are kept until they are archived, and no bucket is set: set HOLDFAST_ARCHIVE_BUCKET for a worker"
        yield "note", "archive", f"{says}, or give the archive up with `holdfast archive disable`"


def _roles(conn: psycopg.Connection[Any]) -> Said:
    roles = session.run(conn, list_roles())
    held = [role.name for role in roles if role.held]
    if missing := schema.missing_roles(conn):
        return "note", "roles", f"missing: {', '.join(missing)}; a user who may create roles runs `holdfast migrate`"
    return "ok", "roles", f"all there; this user has {', '.join(held) or 'none of them'}"


def _isolation(conn: psycopg.Connection[Any]) -> Said:
    said = too_strict(session.run(conn, read_isolation()))
    return ("ok", "isolation", "READ COMMITTED by default") if said is None else ("wrong", "isolation", said)


def _connections(server: ServerInfo, settings: Settings) -> Said:
    found = headroom(server, settings)
    return "ok" if found.fits == "yes" else "wrong", "connections", found.says


def _listening(conn: psycopg.Connection[Any], source: str, url: str, server: ServerInfo, settings: Settings) -> Said:
    if not settings.listen:
        return "note", "listen", f"off ({settings.label('listen')}): idle workers find jobs by polling"
    if server.backend_pid != conn.info.backend_pid:
        return "wrong", "listen", _no_notification("another program answers for the server: a pooler")
    with load.connected(source, url) as other:
        conn.execute(f"LISTEN {_CHANNEL}")
        other.execute(f"NOTIFY {_CHANNEL}")
        arrived = list(conn.notifies(timeout=_LISTEN_SECONDS, stop_after=1))
        conn.execute(f"UNLISTEN {_CHANNEL}")
    if not arrived:
        return "wrong", "listen", _no_notification("a notification that was sent did not arrive")
    return "ok", "listen", "works: idle workers are woken"


def _no_notification(why: str) -> str:
    return f"{why}. Give workers a direct address, or set HOLDFAST_LISTEN=false and let them poll."


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
    """Return the time limit of each handler."""
    lease = Lease(settings.lease.total_seconds())
    handled = {name: kind.work for name, kind in sorted(app.kinds.items()) if isinstance(kind, Kind)}
    return [
        f"{name} {work.longest(work.lease or lease):g} s{' (3 leases)' if work.max_runtime is None else ''}"
        for name, work in handled.items()
    ]


def _print(settings: Settings, app: Holdfast | None, findings: list[Finding], *, wrong: bool) -> None:
    table.print_table(("setting", "value", "source"), [(row.name, row.value, row.source) for row in settings.rows()])
    for note in settings.notes:
        print(f"note: {note}")
    if app is not None:
        print()
        for what, names in _application(app, settings).items():
            print(f"{counted(len(names), what.removesuffix('s'))}: {', '.join(names) or '-'}")
    print()
    table.print_table(("verdict", "database of", "subject", "says"), findings)
    if wrong:
        print("\nSomething is wrong.")


def _print_json(settings: Settings, app: Holdfast | None, findings: list[Finding], *, ok: bool) -> None:
    units = {setting.name: setting.unit for setting in SETTINGS}
    table.print_json(
        {
            "ok": ok,
            "settings": [row._asdict() | {"unit": units[row.name]} for row in settings.rows()],
            "notes": settings.notes,
            "application": app and _application(app, settings),
            "findings": [finding._asdict() for finding in findings],
        }
    )
