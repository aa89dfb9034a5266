"""Look at the archive; export, verify, restore or search its files, or stop keeping days for it.

The bucket is HOLDFAST_ARCHIVE_BUCKET. Exit status: 0 done, 1 if a file is not as it should be, 2 called
wrongly, 3 if the bucket could not be read.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast._archive.location import Location
from holdfast._cli import arguments as args
from holdfast._cli import bucket, session, table
from holdfast._drivers import run_sync
from holdfast._model.settings import Settings
from holdfast._ops.caller import audit_entry
from holdfast._store.archive import archive_totals, read_retention, set_archived, unfinished_exports

if TYPE_CHECKING:
    import argparse

    from holdfast._store.archive import ArchiveSource, Export, Retention

_TOTALS = ("source", "periods", "rows", "size", "first", "last", "unfinished", "verified", "dropped", "next drop")
_UNFINISHED = ("source", "period", "state", "progress", "started", "error")
_INCOMPLETE = ("source", "period", "error")
_DAY = timedelta(days=1)


def configure(parser: argparse.ArgumentParser) -> None:
    args.configure(parser)
    actions = parser.add_subparsers(dest="action", metavar="action")

    def add(name: str, help_: str) -> argparse.ArgumentParser:
        return args.add_action(actions, name, help_, inherits=True)

    def source(own: argparse.ArgumentParser, nargs: str | None = "?") -> None:
        own.add_argument("source", metavar="SOURCE", nargs=nargs, default=None, help="e.g. job_history, public.orders")

    add("status", "show what is archived, and what is not finished (the default)")
    own = add("export", "export closed days and months now")
    source(own)
    own.add_argument(
        "--day", type=args.day, default=None, metavar="DAY", help="only this day, or the month that has it"
    )
    own.add_argument("--app", default=None, metavar="APP", help="the application, for its own tables: module:attribute")
    own = add(
        "verify", "read files back and compare them with their records; by default the newest with rows of each source"
    )
    source(own)
    which = own.add_mutually_exclusive_group()
    which.add_argument("--day", type=args.day, default=None, metavar="DAY", help="the files of this day")
    which.add_argument("--all", action="store_true", default=False, help="every file")
    own = add("restore", "load a day or a month into a table")
    source(own, None)
    own.add_argument("day", type=args.day, metavar="DAY", help="e.g. 2026-03-14; of a month, any day of it")
    own.add_argument("--into", default=None, metavar="TABLE", help="default: archive.SOURCE_YYYYMMDD, a new table")
    own.add_argument("--identity", default=None, metavar="ID", help="of a lost database: the first folder of its files")
    own = add("query", "find a job or an event in the files")
    asked = own.add_mutually_exclusive_group(required=True)
    id_ = args.whole(1, args.LARGEST_ID, "an id")
    asked.add_argument("--job", type=id_, default=None, metavar="ID", help="its row, its attempts, and their files")
    asked.add_argument("--event", type=id_, default=None, metavar="ID", help="its row, and the answers of webhooks")
    own.add_argument("--since", type=args.day, default=None, metavar="DAY", help="only files from this day on")
    own.add_argument("--until", type=args.day, default=None, metavar="DAY", help="only files up to this day, inclusive")
    own = add("disable", "no longer keep days until they are archived")
    own.add_argument("--yes", action="store_true", default=False, help="do not ask")


def run(arguments: argparse.Namespace) -> int | None:
    match arguments.action:
        case "export":
            from holdfast._cli.archive_export import export

            return export(arguments)
        case "verify" | "restore" | "query" as action:
            from holdfast._cli import archive_files

            act = {"verify": archive_files.verify, "restore": archive_files.restore, "query": archive_files.query}
            return act[action](arguments)
        case "disable":
            _disable(arguments)
        case _:
            _status(arguments)
    return None


def _status(arguments: argparse.Namespace) -> None:
    location = Location.of(Settings.load(os.environ))
    with session.opened(session.chosen(arguments)) as conn:
        retention = session.run(conn, read_retention())
        totals = session.run(conn, archive_totals())
        unfinished = session.run(conn, unfinished_exports())
    archived = any(line.archived for line in retention)
    if arguments.json:
        table.print_json(
            {
                "bucket": location and location.address,
                "archived": archived,
                "retention": [line._asdict() for line in retention],
                "sources": [_total(total) for total in totals],
                "unfinished": [export._asdict() for export in unfinished if not export.incomplete],
                "incomplete": [export._asdict() for export in unfinished if export.incomplete],
            }
        )
        return
    print(f"archive: {bucket.NO_BUCKET if location is None else location.address}")
    print(_kept(retention, has_bucket=location is not None))
    if totals:
        print()
        table.print_table(_TOTALS, [_line(total) for total in totals])
    else:
        print("Nothing is archived yet.")
    if waiting := [_unfinished(export) for export in unfinished if not export.incomplete]:
        print("\nNot finished, and tried again by the runner archiveExport or `holdfast archive export`:")
        table.print_table(_UNFINISHED, waiting)
    if incomplete := [export for export in unfinished if export.incomplete]:
        print("\nKept until you decide, since the database has fewer rows than the file:")
        lines = [(export.source, bucket.period(export), export.error) for export in incomplete]
        table.print_table(_INCOMPLETE, lines)


def _kept(retention: list[Retention], *, has_bucket: bool) -> str:
    """Return how long days are kept, in words."""
    days = {line.family: line.days for line in retention}
    names = {"job_history": "completed", "job_failed": "failed", "event": "events", "run": "runs"}
    kept = ", ".join(f"{name} {days[family]} days" for family, name in names.items())
    if not any(line.archived for line in retention):
        return f"retention: {kept}. Days are dropped then, and not archived."
    if has_bucket:
        return f"retention: {kept}, and until they are archived."
    why = "set HOLDFAST_ARCHIVE_BUCKET, or give the archive up with `holdfast archive disable`"
    return f"retention: {kept}, and until they are archived, which nothing does without a bucket: {why}."


def _total(total: ArchiveSource) -> dict[str, Any]:
    shown = dict(total)
    shown["last_day"] = shown.pop("ends_on") - _DAY
    return shown


def _line(total: ArchiveSource) -> tuple[object, ...]:
    days = (total.first_day, total.ends_on - _DAY)
    states = (total.unfinished, total.verified, total.dropped)
    return total.source, total.periods, f"{total.rows:,}", bucket.size(total.bytes), *days, *states, total.next_drop


def _unfinished(export: Export) -> tuple[object, ...]:
    state = f"{export.state} now" if export.running else "waiting"
    progress = None
    if export.running and export.state == "exporting":
        progress = f"{export.rows_done:,} rows"
        if export.rows_expected:
            part = min(1.0, export.rows_done / export.rows_expected)
            progress = f"{export.rows_done:,} of about {export.rows_expected:,} rows, {part:.0%}"
    return export.source, bucket.period(export), state, progress, export.started_at, export.error


def _disable(arguments: argparse.Namespace) -> None:
    args.confirm(
        arguments, "No longer keep days until they are archived? Days past their retention are dropped without a copy."
    )
    with session.opened(session.chosen(arguments)) as conn, session.bounded(conn):
        run_sync(conn, set_archived(archived=False))
        run_sync(conn, audit_entry(session.person(), "archive.disable"))
    if arguments.json:
        table.print_json({"action": "disable", "archived": False})
        return
    print("Days are no longer kept until they are archived. Files in the bucket stay.")
    print("A worker with HOLDFAST_ARCHIVE_BUCKET keeps them again: remove the variable.")
