"""Make jobs or events of the rows of another table in the same database, such as a hand-written outbox.

Without --apply it is a preview: it reads and checks every row, and writes nothing. With --apply each row is imported
once, in batches, even if this command is killed and run again, or runs twice at once. A row that cannot be imported is
reported and left. Exit status: 0 if no row is left, else 1.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, TypeAlias

from psycopg import IsolationLevel

from holdfast._cli import arguments as args
from holdfast._cli import load, session, table
from holdfast._cli.importing import SECONDS, Conversion, Importer
from holdfast._cli.progress import ProgressLine
from holdfast._cli.session import CommandError
from holdfast._drivers import run_sync
from holdfast._model.codec import parse_json
from holdfast._model.new_job import NewJob
from holdfast._ops.caller import audit_entry
from holdfast._ops.redaction import Redaction
from holdfast._ops.wording import counted
from holdfast._store import schema
from holdfast._store.outbox import OutboxTable, list_columns, list_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import psycopg

    from holdfast._app.app import Holdfast
    from holdfast._cli.importing import Imported, Progressing, Tally
    from holdfast._store.outbox import Condition, OutboxColumn, TypeCount

    Find: TypeAlias = Callable[[str, str], OutboxColumn]

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "procrastinate": {
        "table": "procrastinate_jobs",
        "type": "task_name",
        "payload": "args",
        "at": "scheduled_at",
        "key": "lock",
        "where": [("status", "todo")],
        "set": [("status", "cancelled")],
    },
    "pgqueuer": {
        "table": "pgqueuer",
        "type": "entrypoint",
        "at": "execute_after",
        "where": [("status", "queued")],
        "delete": True,
    },
    "oban": {
        "table": "oban_jobs",
        "type": "worker",
        "payload": "args",
        "at": "scheduled_at",
        "where": [("state", "available"), ("state", "scheduled"), ("state", "retryable")],
        "set": [("state", "cancelled"), ("cancelled_at", "now")],
    },
}
_DEFAULTS = {"id": "id", "type": "type", "payload": "payload"}
_IDS = ("smallint", "integer", "bigint", "numeric", "uuid", "text", "character varying", "character")
_TIMES = ("date", "timestamp with time zone", "timestamp without time zone")
_LARGEST_BATCH = 10_000


def configure(parser: argparse.ArgumentParser) -> None:
    load.configure(parser, optional=True)
    args.configure(parser)
    source = parser.add_argument_group("the other table")
    source.add_argument("--preset", choices=PRESETS, help="the table of this library; options win over it")
    source.add_argument("--table", metavar="NAME", help="schema.table; the schema is public by default")
    source.add_argument("--id", metavar="COLUMN", help="unique and not null (default: id)")
    source.add_argument("--type", metavar="COLUMN", help="what kind or topic a row becomes (default: type)")
    source.add_argument("--payload", metavar="COLUMN", help="JSON: json, jsonb, text or bytea (default: payload)")
    source.add_argument("--key", metavar="COLUMN", help="the order key of jobs, the key of events (default: none)")
    source.add_argument("--at", metavar="COLUMN", help="when a job is due; without a time zone, UTC (default: now)")
    source.add_argument("--created", metavar="COLUMN", help="import the oldest first (default: by id)")
    where = "only rows whose column has this value; repeat it for other values or columns"
    source.add_argument("--where", type=_pair, action="append", metavar="COLUMN=VALUE", help=where)
    source.add_argument("--where-null", action="append", metavar="COLUMN", help="only rows whose column is null")
    after = source.add_mutually_exclusive_group()
    after.add_argument("--set", type=_pair, action="append", metavar="COLUMN=VALUE", help="set it in imported rows")
    after.add_argument("--delete", action="store_true", default=None, help="delete imported rows")
    made = parser.add_argument_group("what rows become")
    made.add_argument("--to", choices=("job", "event"), default="job", help="default: job")
    made.add_argument("--map", type=_pair, action="append", default=[], metavar="TYPE=NAME", help="the kind or topic")
    parser.add_argument("--apply", action="store_true", help="import; without it, only a preview")
    batch = args.whole(1, _LARGEST_BATCH)
    parser.add_argument("--batch", type=batch, default=500, metavar="N", help="rows per transaction (default: 500)")
    parser.add_argument("--limit", type=args.whole(1, args.LARGEST_ID), metavar="N", help="import at most N rows")


def run(arguments: argparse.Namespace) -> int:
    app = load.load(arguments.app) if arguments.app else None
    if app is not None:
        load.choose(arguments, app)
    with session.connect(session.chosen(arguments)) as conn, session.translated(conn, seconds=SECONDS):
        schema.check(conn)
        conn.isolation_level = IsolationLevel.READ_COMMITTED
        conn.read_only = not arguments.apply
        importer = _importer(arguments, conn, app)
        return _apply(arguments, importer) if arguments.apply else _preview(arguments, importer)


def _preview(arguments: argparse.Namespace, importer: Importer) -> int:
    counts = importer.count()
    with ProgressLine(arguments) as line:
        tally = importer.preview(_progress(line, _importable(importer, counts), "checked"))
    if arguments.json:
        table.print_json(_as_json(importer, counts, tally))
    else:
        _print_preview(importer, counts, tally)
    return 1 if tally.refused or _unknown(importer, counts) else 0


def _apply(arguments: argparse.Namespace, importer: Importer) -> int:
    options = {"to": importer.conversion.to, "map": dict(importer.conversion.names), "batch": importer.batch}
    with session.bounded(importer.conn):
        entry = audit_entry(session.person(), "outbox.import", target=importer.table.source, detail=options)
        run_sync(importer.conn, entry)
    with ProgressLine(arguments) as line:
        tally = importer.apply(_progress(line, _importable(importer, importer.count()), "imported"))
    left = importer.count()
    if arguments.json:
        table.print_json(_as_json(importer, left, tally))
    else:
        _print_applied(importer, left, tally)
    return 1 if left else 0


def _importer(arguments: argparse.Namespace, conn: psycopg.Connection[Any], app: Holdfast | None) -> Importer:
    given = _options(arguments)
    schema_name, name, find = _columns(conn, given["table"])
    outbox = _table(schema_name, name, given, find)
    return Importer(
        conn,
        outbox,
        Conversion(outbox.source, arguments.to, _names(arguments, app), app),
        batch=arguments.batch,
        limit=arguments.limit,
        values=tuple((find("--set", name), value) for name, value in given["set"] or ()),
        delete=bool(given["delete"]),
    )


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options of the other table: what is given, then the preset, then the defaults."""
    names = ("table", "id", "type", "payload", "key", "at", "created", "where", "where_null", "set", "delete")
    chosen = _DEFAULTS | dict(PRESETS.get(arguments.preset, {}))
    given = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    if given.keys() & {"set", "delete"}:
        chosen = {name: value for name, value in chosen.items() if name not in {"set", "delete"}}
    chosen = dict.fromkeys(names) | chosen | given
    if not chosen["table"]:
        raise CommandError("say which table: --table schema.name, or --preset", status=2)
    if arguments.to == "event" and chosen["at"]:
        raise CommandError("--at is for jobs: an event has no time at which it is due", status=2)
    return chosen


def _columns(conn: psycopg.Connection[Any], given: str) -> tuple[str, str, Find]:
    """Return the schema and the name of the other table, and what finds one of its columns for an option."""
    schema_name, dot, name = given.rpartition(".")
    schema_name = schema_name if dot else "public"
    source = f"{schema_name}.{name}"
    columns = {column.name: column for column in session.run(conn, list_columns(schema_name, name))}
    if not columns:
        meant = session.meant(source, session.run(conn, list_tables()))
        raise CommandError(f"--table: there is no table {source}: {meant}", status=2)

    def find(option: str, column: str) -> OutboxColumn:
        if column not in columns:
            meant = session.meant(column, list(columns))
            raise CommandError(f"{option}: {source} has no column {column}: {meant}", status=2)
        return columns[column]

    return schema_name, name, find


def _table(schema_name: str, name: str, given: Mapping[str, Any], find: Find) -> OutboxTable:
    id_ = find("--id", given["id"])
    if id_.plain_type not in _IDS:
        raise CommandError(f"--id: {id_.name} is of type {id_.type}, and can be one of {', '.join(_IDS)}", status=2)
    if not id_.unique or not id_.required:
        raise CommandError(f"--id: {id_.name} must be NOT NULL and have a unique index of its own", status=2)
    for option in ("created", "at"):
        if given[option] and (column := find(f"--{option}", given[option])).plain_type not in _TIMES:
            raise CommandError(f"--{option}: {column.name} is of type {column.type}, and not a time", status=2)

    def optional(option: str) -> OutboxColumn | None:
        return find(f"--{option}", given[option]) if given[option] else None

    return OutboxTable(
        schema_name,
        name,
        id=id_,
        type=find("--type", given["type"]),
        payload=find("--payload", given["payload"]),
        key=optional("key"),
        due=optional("at"),
        created=optional("created"),
        conditions=_conditions(given, find),
    )


def _conditions(given: Mapping[str, Any], find: Find) -> tuple[Condition, ...]:
    """Return the conditions: values of one column are alternatives, and all columns must match."""
    values: dict[str, tuple[str, ...]] = {}
    for name, value in given["where"] or ():
        values[name] = (*values.get(name, ()), value)
    matching: list[Condition] = [(find("--where", name), any_of) for name, any_of in values.items()]
    return (*matching, *((find("--where-null", name), None) for name in given["where_null"] or ()))


def _names(arguments: argparse.Namespace, app: Holdfast | None) -> dict[str, str]:
    names = dict(arguments.map)
    known = None if app is None else list(app.kinds if arguments.to == "job" else app.topics)
    what = "kind" if arguments.to == "job" else "topic"
    for name in names.values():
        if known is not None and name not in known:
            raise CommandError(f"--map: the application has no {what} {name}: {session.meant(name, known)}", status=2)
    if app is None and not names and arguments.to == "job":
        raise CommandError("say what rows become: give the application, or --map TYPE=KIND", status=2)
    return names


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals or not value:
        raise argparse.ArgumentTypeError(f"{text!r}: write NAME=VALUE")
    return name, value


def _importable(importer: Importer, counts: Sequence[TypeCount]) -> int:
    return sum(count.rows for count in counts if importer.conversion.target(count.type) is not None)


def _unknown(importer: Importer, counts: Sequence[TypeCount]) -> int:
    return sum(count.rows for count in counts) - _importable(importer, counts)


def _progress(line: ProgressLine, importable: int, done: str) -> Progressing:
    """Return what shows how many rows are done."""

    def show(tally: Tally) -> None:
        rows = tally.rows + tally.refused
        total = max(importable, rows)
        line.show(rows / max(total, 1), f"{done} {rows:,} of {total:,}, {rows / tally.seconds:,.0f} rows/s")

    return show


def _print_preview(importer: Importer, counts: Sequence[TypeCount], tally: Tally) -> None:
    source, to = importer.table.source, importer.conversion.to
    if not counts:
        print(f"{source}: no row is left to import.")
        return
    print(f"{source}: {counted(sum(count.rows for count in counts), 'row')} not imported yet\n")
    _print_types(importer, counts)
    if tally.samples:
        print(f"\nThe first {to}s:\n")
        table.print_table(("row", "kind" if to == "job" else "topic", "due", "key", "payload"), _sample_lines(tally))
    _print_refusals(tally)
    marked = importer.delete or importer.values
    if not marked:
        print("\nImported rows stay as they are: stop the old worker first, or mark them with --set or --delete.")
    print(f"\nNothing was written. --apply imports {counted(tally.rows, 'row')}.")


def _print_applied(importer: Importer, left: Sequence[TypeCount], tally: Tally) -> None:
    rate = f"{tally.rows / max(tally.seconds, 0.001):,.0f} rows/s"
    to = importer.conversion.to
    print(f"{importer.table.source}: imported {counted(tally.rows, 'row')} as {to}s in {tally.seconds:.1f} s, {rate}")
    if tally.imported:
        print()
        table.print_table(("kind" if to == "job" else "topic", "rows"), tally.imported.most_common())
    _print_refusals(tally)
    if left:
        print(f"\n{counted(sum(count.rows for count in left), 'row')} left, not imported:\n")
        _print_types(importer, left)
        if (more := _importable(importer, left) - tally.refused) > 0:
            print(f"\n{counted(more, 'row')} of them locked or added meanwhile, or beyond --limit: run it again.")
    else:
        print("\nNo row is left to import.")


def _print_types(importer: Importer, counts: Sequence[TypeCount]) -> None:
    becomes = [importer.conversion.target(count.type) or "unknown, left" for count in counts]
    lines = [(count.type, count.rows, name) for count, name in zip(counts, becomes, strict=True)]
    table.print_table(("type", "rows", "becomes"), lines)


def _print_refusals(tally: Tally) -> None:
    if tally.refused:
        more = f", the first {len(tally.refusals)}" if len(tally.refusals) < tally.refused else ""
        print(f"\nRefused and left: {counted(tally.refused, 'row')}{more}\n")
        table.print_table(("row", "type", "reason"), tally.refusals)


def _sample_lines(tally: Tally) -> list[tuple[object, ...]]:
    return [tuple(line.values()) for line in map(_sample, tally.samples)]


def _sample(made: Imported) -> dict[str, Any]:
    name = made.new.kind if isinstance(made.new, NewJob) else made.new.topic
    payload = Redaction().apply(name, parse_json(made.new.payload)).value
    return {"row": made.row.id, "name": name, "due": made.row.due, "key": made.row.key, "payload": payload}


def _as_json(importer: Importer, counts: Sequence[TypeCount], tally: Tally) -> dict[str, Any]:
    target = importer.conversion.target
    return {
        "table": importer.table.source,
        "to": importer.conversion.to,
        "applied": not importer.conn.read_only,
        "rows": tally.rows,
        "by_name": dict(tally.imported),
        "refused": tally.refused,
        "refusals": [refusal._asdict() for refusal in tally.refusals],
        "left": [count._asdict() | {"becomes": target(count.type)} for count in counts],
        "samples": [_sample(made) for made in tally.samples],
    }
