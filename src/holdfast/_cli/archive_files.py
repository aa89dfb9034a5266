"""`holdfast archive verify`, `restore` and `query`: commands that read the files of the archive."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast._archive.child import verify as read_back
from holdfast._archive.location import ArchiveError, BucketUnavailable, manifest_name, object_name, translated
from holdfast._archive.restore import TargetTable
from holdfast._archive.restore import restore as load_file
from holdfast._archive.search import find
from holdfast._cli import bucket, session, table
from holdfast._cli.progress import ProgressLine
from holdfast._cli.session import CommandError
from holdfast._drivers import run_sync
from holdfast._ops.caller import audit_entry
from holdfast._ops.wording import counted
from holdfast._store.archive import FAMILIES, JOB_FAMILIES, exports_with_id, find_export
from holdfast._store.catalog import table_exists
from holdfast._store.inspect import read_job
from holdfast._store.worker import read_identity

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence
    from datetime import date

    import psycopg
    from obstore.store import ObjectStore

    from holdfast._archive.location import Location
    from holdfast._archive.manifest import Manifest
    from holdfast._archive.search import Found
    from holdfast._store.archive import Export

NOT_READ_STATUS = 3
"""The exit status of `verify` if no file differs, and one could not be read."""
# Files in a row after which the bucket counts as away.
_UNREAD = 3
_TABLE = re.compile(r"(?:([a-z_][a-z0-9_$]*)\.)?([a-z_][a-z0-9_$]*)")
# Files that a search for an id reads at most.
_MOST_FILES = 10_000
# Parts of a period that are looked for. Each is an export of rows that came after the one before was dropped.
_MOST_PARTS = 1_000
# Files of `verify` above which only those that differ are printed.
_MOST_SHOWN = 1_000
_ATTEMPTS = ("attempt", "outcome", "ended", "ran ms", "worker", "error", "file")
_DELIVERIES = ("subscription", "attempt", "status", "answered", "answer", "file")


class _Read(NamedTuple):
    """A file, and what came of reading it back."""

    export: Export
    difference: str | None = None
    """From its manifest or its record."""
    not_read: str | None = None
    """Why the bucket could not be read. Nothing is known about the file then."""

    @property
    def result(self) -> str:
        return f"not read: {self.not_read}" if self.not_read else self.difference or "as recorded"


def verify(arguments: argparse.Namespace) -> int:
    """Read files back; return 1 if one differs from its manifest or its record, else 3 if one could not be read."""
    location = bucket.find()
    with session.opened(session.chosen(arguments)) as conn:
        identity = session.run(conn, read_identity())
        exports = _to_verify(conn, arguments)
    with ProgressLine(arguments) as progress:
        found = _read_all(location, identity, exports, progress)
    if arguments.json:
        table.print_json(
            [one.export._asdict() | {"difference": one.difference, "not_read": one.not_read} for one in found]
        )
    elif not found:
        print("No file is archived yet.")
    else:
        _print_read(found, location)
    if any(one.difference for one in found):
        return 1
    return NOT_READ_STATUS if any(one.not_read for one in found) else 0


def _read_all(location: Location, identity: str, exports: Sequence[Export], progress: ProgressLine) -> list[_Read]:
    """Read files back. After a few in a row that the bucket does not give, the rest is not tried."""
    found: list[_Read] = []
    try:
        store = location.open()
    except BucketUnavailable as exc:
        return [_Read(export, not_read=str(exc)) for export in exports]
    for number, export in enumerate(exports):
        last = [one.not_read for one in found[-_UNREAD:]]
        if len(last) == _UNREAD and last[-1] and all(last):
            found.append(_Read(export, not_read=last[-1]))
            continue
        what = f"{export.source} {bucket.period(export)}, {number + 1} of {len(exports)}"
        progress.show(number / len(exports), f"reading {what}")
        try:
            found.append(_Read(export, _difference(store, identity, export)))
        except BucketUnavailable as exc:
            found.append(_Read(export, not_read=str(exc)))
    return found


def _print_read(found: Sequence[_Read], location: Location) -> None:
    bad = [one for one in found if one.difference or one.not_read]
    columns = ("source", "period", "rows", "size", "result")
    shown = found if len(found) <= _MOST_SHOWN else bad[:_MOST_SHOWN]
    table.print_table(columns, [(*_about(one.export), one.result) for one in shown])
    differing, unread = sum(one.difference is not None for one in found), sum(one.not_read is not None for one in found)
    read = f"{counted(len(found) - unread, 'file')} read from {location.address}"
    if len(found) > unread:
        read += f": {f'{differing:,} not as recorded' if differing else 'all as recorded'}"
    print(f"\n{read}{f'; {unread:,} not read' if unread else ''}.")


def _to_verify(conn: psycopg.Connection[Any], arguments: argparse.Namespace) -> list[Export]:
    if arguments.source is not None:
        bucket.check_source(conn, arguments.source)
    day = arguments.day
    exports = bucket.whole_files(conn, arguments.source, day)
    if day is not None and not exports:
        raise _not_archived(conn, arguments.source, day)
    if day is None and not arguments.all:
        # Oldest first, and those with rows after those without.
        order = sorted(exports, key=lambda export: (export.object is not None, export.starts_on, export.part))
        newest = {export.source: export for export in order}
        return [newest[source] for source in sorted(newest)]
    return exports


def _difference(store: ObjectStore, identity: str, export: Export) -> str | None:
    """Read a file back. Return how it differs from its manifest or its record; None if it does not.

    Raises BucketUnavailable if the bucket cannot be read.
    """
    monthly = export.source not in FAMILIES
    # A file keeps its name if the schema gets another identity. Of a period without rows, only the manifest has one.
    name = export.object or object_name(identity, export.source, export.starts_on, export.part, monthly=monthly)
    try:
        with translated():
            found = read_back(store, manifest_name(name), export)
    except BucketUnavailable:
        raise
    except ArchiveError as exc:
        return str(exc)
    if export.etag is not None and found["etag"] != export.etag:
        return f"etag: {found['etag']} in the bucket, and {export.etag} in the record"
    return None


def restore(arguments: argparse.Namespace) -> None:
    """Load all parts of a period into a table, in one transaction."""
    location = bucket.find()
    with session.opened(session.chosen(arguments)) as conn:
        files = _by_manifests(location.open(), arguments) if arguments.identity else _by_records(conn, arguments)
        first = files[0]
        target = _target(conn, arguments, first)
        store = location.open()
        detail = {"source": first.source, "starts_on": first.starts_on.isoformat()}
        if arguments.identity:
            detail["identity"] = arguments.identity
        with ProgressLine(arguments) as line, translated(), conn.transaction():
            run_sync(conn, audit_entry(session.person(), "archive.restore", target=".".join(target), detail=detail))
            rows = sum(load_file(conn, store, file, target, on_rows=_rows_of(line, file)) for file in files)
    period = f"{first.source} {bucket.period(first)}"
    if arguments.json:
        table.print_json({"source": first.source, "day": arguments.day, "table": ".".join(target), "rows": rows})
    elif not rows:
        print(f"{period}: has no rows, and no table was made")
    else:
        print(f"{period}: {counted(rows, 'row')} in the table {'.'.join(target)}")
        if arguments.identity:
            print("The files are as their manifests say. No record of the database proves that these are the original.")


def _by_records(conn: psycopg.Connection[Any], arguments: argparse.Namespace) -> Sequence[Export]:
    """Return the files of a period by their records in the database."""
    bucket.check_source(conn, arguments.source)
    exports = bucket.whole_files(conn, arguments.source, arguments.day)
    if not exports:
        raise _not_archived(conn, arguments.source, arguments.day)
    return exports


def _by_manifests(store: ObjectStore, arguments: argparse.Namespace) -> Sequence[Manifest]:
    """Return the files of a period that a database with another identity has exported."""
    from holdfast._archive.recorded import find_manifest

    source, monthly = arguments.source, arguments.source not in FAMILIES
    starts_on = arguments.day.replace(day=1) if monthly else arguments.day
    found: list[Manifest] = []
    with translated():
        for part in range(1, _MOST_PARTS + 1):
            name = manifest_name(object_name(arguments.identity, source, starts_on, part, monthly=monthly))
            manifest = find_manifest(store, name)
            if manifest is None:
                break
            if (manifest.source, manifest.starts_on, manifest.part) != (source, starts_on, part):
                raise ArchiveError(f"{name} describes another period")
            found.append(manifest)
    if not found:
        raise CommandError(f"{name} is not in the bucket: look there for the identity, the day and the source")
    return found


def _rows_of(line: ProgressLine, export: Export | Manifest) -> Callable[[int], None]:
    what = f"rows of {export.source} {bucket.period(export)}"
    return lambda done: line.show(done / max(1, export.rows or 0), f"{done:,} {what}")


def _target(conn: psycopg.Connection[Any], arguments: argparse.Namespace, export: Export | Manifest) -> TargetTable:
    if arguments.into is not None:
        found = _TABLE.fullmatch(arguments.into)
        if found is None:
            raise CommandError(f"--into: {arguments.into!r} is no table: write schema.table", status=2)
        if found[1] == "holdfast":
            raise CommandError("--into: the schema holdfast is Holdfast's own: choose another", status=2)
        return TargetTable(found[1] or "public", found[2])
    target = TargetTable("archive", f"{export.source.replace('.', '_')}_{export.starts_on:%Y%m%d}")
    if session.run(conn, table_exists(target.quoted.as_string(conn))):
        raise CommandError(f"the table {'.'.join(target)} exists already: drop it, or give another one with --into")
    return target


def _not_archived(conn: psycopg.Connection[Any], source: str | None, day: Any) -> CommandError:
    """Return an error for a day without a verified file."""
    if source is None:
        return CommandError(f"no file of {day} is archived: see `holdfast archive status`")
    starts_on = day if source in FAMILIES else day.replace(day=1)
    found = session.run(conn, find_export(source, starts_on))
    if found:
        why = f": {found[-1].error}" if found[-1].error else ""
        return CommandError(
            f"{source} of {day} is not archived yet, its export is {found[-1].state}{why}. Try again later"
        )
    return CommandError(f"{source} of {day} is not archived: see `holdfast archive status`")


def query(arguments: argparse.Namespace) -> None:
    """Find a job or an event."""
    location = bucket.find()
    what, id_ = ("job", arguments.job) if arguments.job is not None else ("event", arguments.event)
    own, others = (JOB_FAMILIES, ("attempt",)) if what == "job" else (("event",), ("delivery",))
    since, until = arguments.since, arguments.until
    with session.opened(session.chosen(arguments)) as conn:
        files = _may_hold(conn, own, id_, since, until)
        with translated():
            found = _find_first(location, files, id_)
            if found:
                began, ended = _days_of(what, found[0])
                since = began if since is None else max(since, began)
                until = ended if until is None else min(until, ended or until)
            if more := _may_hold(conn, others, id_, since, until):
                found += find(location.open(), more, id_)
        if not found:
            raise _not_found(conn, what, id_)
    if arguments.json:
        table.print_json([{"source": f.export.source, "file": f.export.object, "row": dict(f.row)} for f in found])
    else:
        _print_found(what, id_, found, location)


def _find_first(location: Location, files: Sequence[Export], id_: int) -> list[Found]:
    """Return the row with an id that occurs once: files after its own are not read."""
    if not files:
        return []
    store = location.open()
    return next((rows for file in files if (rows := find(store, [file], id_))), [])


def _may_hold(
    conn: psycopg.Connection[Any], sources: Sequence[str], id_: int, since: date | None, until: date | None
) -> list[Export]:
    """Return all files of these days that may hold an id, the likeliest first."""
    files = session.run(conn, exports_with_id(sources, id_, since=since, until=until, limit=_MOST_FILES + 1))
    if len(files) > _MOST_FILES:
        raise CommandError(f"more than {_MOST_FILES:,} files may hold {id_}: give --since and --until")
    return files


def _days_of(what: str, found: Found) -> tuple[date, date | None]:
    """Return the first and the last day on which attempts at a job, or deliveries of an event, may have ended."""
    if what == "event":
        return found.row["published_at"].date(), None
    return found.row["created_at"].date(), found.row["finished_at"].date()


def _not_found(conn: psycopg.Connection[Any], what: str, id_: int) -> CommandError:
    if what == "job" and session.run(conn, read_job(id_)) is not None:
        return CommandError(f"job {id_} is still in the database, and in no file: see `holdfast jobs show {id_}`")
    return CommandError(
        f"{what} {id_} is in no file of these days: it is not archived yet, was deleted before, or never existed. "
        "See `holdfast archive status`"
    )


def _print_found(what: str, id_: int, found: Sequence[Found], location: Location) -> None:
    own = JOB_FAMILIES if what == "job" else ("event",)
    for one in (one for one in found if one.export.source in own):
        status = f", {one.row['status']}," if one.row.get("status") else ""
        print(f"{what} {id_}{status} in {location.address.rstrip('/')}/{one.export.object}")
        table.print_table(("field", "value"), [(name, value) for name, value in one.row.items() if value is not None])
    if what == "job":
        _print_attempts([one for one in found if one.export.source == "attempt"])
    elif deliveries := [one for one in found if one.export.source == "delivery"]:
        _print_deliveries(deliveries)


def _print_attempts(found: Sequence[Found]) -> None:
    if not found:
        print("\nNo attempt is archived: a job that completes at its first attempt has no row of attempts.")
        return
    print(f"\nAttempts ({len(found)})")
    rows = sorted(found, key=lambda one: one.row["attempt"])
    table.print_table(
        _ATTEMPTS,
        [
            (row["attempt"], row["outcome"], row["ended_at"], row["ran_ms"], row["worker_id"],
             row["error"] or row["error_code"], export.object)
            for export, row in rows
        ],
    )  # fmt: skip


def _print_deliveries(found: Sequence[Found]) -> None:
    print(f"\nDeliveries ({len(found)})")
    names = ("subscription_id", "attempt", "status", "answered_at", "answer")
    rows = sorted(found, key=lambda one: one.row["answered_at"])
    table.print_table(_DELIVERIES, [(*(one.row[name] for name in names), one.export.object) for one in rows])


def _about(export: Export) -> tuple[object, ...]:
    rows = None if export.rows is None else f"{export.rows:,}"
    return export.source, bucket.period(export), rows, bucket.size(export.bytes)
