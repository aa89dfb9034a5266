"""`holdfast archive export`: exports closed periods now, and shows how far it is."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from holdfast._archive.export import Exporter, ExportTaken
from holdfast._archive.runners import ArchiveRunners
from holdfast._cli import bucket, load, session, table
from holdfast._cli.progress import ProgressLine
from holdfast._cli.session import CommandError
from holdfast._drivers import run
from holdfast._logs.failure import Failure
from holdfast._ops.caller import audit_entry
from holdfast._ops.wording import counted
from holdfast._store.archive import (
    FAMILIES,
    archive_totals,
    export_as_it_is,
    find_export,
    read_retention,
    set_archived,
    unfinished_exports,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator, Sequence
    from datetime import date

    import psycopg

    from holdfast._archive.location import Location
    from holdfast._archive.tables import Archive
    from holdfast._store.archive import Period

    Chosen = Sequence[tuple[Period, int | None]]

_COLUMNS = ("source", "period", "rows", "size", "result")


class _Done(NamedTuple):
    period: Period
    result: Literal["verified", "taken", "failed"]
    """`taken`: another process exports it."""
    rows: int | None = None
    bytes: int | None = None
    error: str | None = None


def export(arguments: argparse.Namespace) -> int:
    """Export; return 1 if a period failed."""
    location = bucket.find()
    archives: Sequence[Archive] = ()
    if arguments.app is not None:
        app = load.load(arguments.app)
        archives = app.archives
        load.choose(arguments, app)
    done = session.run_async(_export(arguments, location, archives))
    if arguments.json:
        table.print_json([_object(one) for one in done])
    elif done:
        _print(done, location)
    return 1 if any(one.error for one in done) else 0


async def _export(arguments: argparse.Namespace, location: Location, archives: Sequence[Archive]) -> list[_Done]:
    async with session.opened_async(session.chosen(arguments)) as conn:
        await _check_source(conn, arguments.source, archives)
        await _keep_days(arguments, conn)
        await _replace_incomplete(arguments, conn)
        chosen = await _choose(arguments, conn, archives)
        if not chosen:
            await _explain(arguments, conn)
            return []
        async with Exporter(conn, session.chosen(arguments).url, location) as exporter:
            with ProgressLine(arguments) as line:
                return await _export_all(exporter, chosen, line)


async def _export_all(exporter: Exporter, chosen: Chosen, line: ProgressLine) -> list[_Done]:
    done: list[_Done] = []
    for number, (period, keep_ms) in enumerate(chosen):

        def show(rows: int, number: int = number, period: Period = period) -> None:
            expected = period.rows_expected
            part = min(1.0, rows / expected) if expected else 0.0
            about = f" of about {expected:,}" if expected else ""
            what = f"{period.source} {bucket.period(period)}, {number + 1} of {len(chosen)}"
            line.show((number + part) / len(chosen), f"{what}: {rows:,}{about} rows")

        show(0)
        try:
            upload = await exporter.export(period, keep_ms=keep_ms, on_rows=show)
        except ExportTaken:
            done.append(_Done(period, "taken"))
        except Exception as exc:  # noqa: BLE001 - the others are exported all the same
            done.append(_Done(period, "failed", error=Failure.of(exc).text))
        else:
            done.append(_Done(period, "verified", upload.rows, upload.bytes))
    return done


async def _check_source(conn: psycopg.AsyncConnection[Any], source: str | None, archives: Sequence[Archive]) -> None:
    declared = [archive.source for archive in archives]
    if source is None or source in FAMILIES or source in declared:
        return
    if any(total.source == source for total in await run(conn, archive_totals())):
        raise CommandError(f"SOURCE: {source} is a table of the application: give --app module:attribute", status=2)
    known = [*FAMILIES, *declared]
    more = "; for a table of the application give --app module:attribute" if "." in source and not declared else ""
    raise CommandError(f"SOURCE: nothing is archived as {source}: {session.meant(source, known)}{more}", status=2)


async def _keep_days(arguments: argparse.Namespace, conn: psycopg.AsyncConnection[Any]) -> None:
    """Keep days until they are archived from now on, as a worker with a bucket does, and record the command."""
    detail = {"source": arguments.source, "day": None if arguments.day is None else arguments.day.isoformat()}
    off = not any(line.archived for line in await run(conn, read_retention()))
    async with conn.transaction():
        await run(conn, audit_entry(session.person(), "archive.export", detail=detail))
        if off:
            await run(conn, set_archived(archived=True))
    if off and not arguments.json:
        print("From now on days are kept until they are archived; `holdfast archive disable` ends that.")


async def _replace_incomplete(arguments: argparse.Namespace, conn: psycopg.AsyncConnection[Any]) -> None:
    """Export a named period also if it has fewer rows than its file: the person who names it has decided that."""
    if arguments.source is None or arguments.day is None:
        return
    parts = await run(conn, export_as_it_is(arguments.source, _first_day(arguments)))
    if parts and not arguments.json:
        print(f"The file of {arguments.source} {arguments.day} is replaced by one with fewer rows.")


def _first_day(arguments: argparse.Namespace) -> date:
    """Return the first day of the period that was named."""
    day: date = arguments.day
    return day if arguments.source in FAMILIES else day.replace(day=1)


async def _choose(
    arguments: argparse.Namespace, conn: psycopg.AsyncConnection[Any], archives: Sequence[Archive]
) -> Chosen:
    @asynccontextmanager
    async def connected() -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        yield conn

    runners = ArchiveRunners(session.chosen(arguments).url, connected, location=bucket.find(), archives=archives)
    return [
        (period, keep_ms)
        async for period, keep_ms in runners.periods(conn)
        if (arguments.source is None or period.source == arguments.source)
        and (arguments.day is None or period.starts_on <= arguments.day < period.ends_on)
    ]


async def _explain(arguments: argparse.Namespace, conn: psycopg.AsyncConnection[Any]) -> None:
    """Print why there is nothing to export. A day that was named and is nowhere is an error."""
    if arguments.source is not None and arguments.day is not None:
        found = await run(conn, find_export(arguments.source, _first_day(arguments)))
        if not found:
            raise CommandError(
                f"{arguments.source} has no closed period of {arguments.day}: a day can be exported from 01:00 UTC of "
                "the next day on, while it is in the database. See `holdfast archive status`"
            )
        if not arguments.json:
            states = ", ".join(f"{bucket.period(one)} is {one.state}" for one in found)
            print(f"Nothing to export: {arguments.source} {states}.")
    elif not arguments.json:
        unfinished = await run(conn, unfinished_exports())
        running = [one for one in unfinished if one.running]
        names = ", ".join(f"{one.source} {bucket.period(one)}" for one in running)
        why = f"another process exports {names}" if running else "every closed day is archived"
        if not running and any(one.incomplete for one in unfinished):
            why = "periods with fewer rows than their files are kept: see `holdfast archive status`"
        print(f"Nothing to export: {why}.")


def _object(done: _Done) -> dict[str, Any]:
    period = {name: getattr(done.period, name) for name in ("source", "starts_on", "ends_on", "part")}
    return period | {"rows": done.rows, "bytes": done.bytes, "result": done.result, "error": done.error}


def _print(done: Sequence[_Done], location: Location) -> None:
    labels = {"verified": "verified", "taken": "exported by another process"}
    lines = [
        (
            one.period.source,
            bucket.period(one.period),
            None if one.rows is None else f"{one.rows:,}",
            bucket.size(one.bytes),
            f"failed: {one.error}" if one.error else labels[one.result],
        )
        for one in done
    ]
    table.print_table(_COLUMNS, lines)
    good = [one for one in done if one.rows is not None]
    rows, size = sum(one.rows or 0 for one in good), bucket.size(sum(one.bytes or 0 for one in good))
    print(f"\n{counted(len(good), 'period')} with {counted(rows, 'row')}, {size}, archived in {location.address}")
    if failed := sum(one.error is not None for one in done):
        print(f"{counted(failed, 'export')} failed, and nothing of these periods is dropped: run it again.")
