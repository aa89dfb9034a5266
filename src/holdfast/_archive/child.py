"""The process that exports periods and verifies them, one after the other: `python -m holdfast._archive.child`.

It is a process of its own so that its memory and its processor time are not the worker's: it runs with low priority,
and an export that is killed takes no job with it. It reads requests, each a line of JSON, from standard input. For each
it writes lines of JSON to standard output: the rows so far, then what was uploaded, then that it was verified, or an
error. When standard input ends, the process that started it has died or needs it no more, and it ends too.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from contextlib import ExitStack, suppress
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from holdfast._archive import parquet, stream
from holdfast._archive.incomplete import Incomplete, explain
from holdfast._archive.location import ArchiveError, Location, manifest_name, translated
from holdfast._archive.manifest import Manifest
from holdfast._archive.throttle import ExportThrottle
from holdfast._drivers import run_sync
from holdfast._logs.failure import Failure
from holdfast._store.archive import EXPORTS, least_rows
from holdfast._store.own_tables import PeriodRows

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from holdfast._store.archive import Export

NICE = 10
# The lowest priority.
NICEST = 19
# Of Linux: the share of a session, which is divided between its processes only then.
_SESSION = Path("/proc/self/autogroup")
# Bytes of a part of an upload.
PART = 8 * 1024 * 1024
# Seconds between two lines at most.
ALIVE_SECONDS = 5.0

_line = threading.Lock()
_serving = threading.Event()


def main() -> None:
    """Serve requests until standard input ends."""
    requests: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests,), daemon=True).start()
    request = json.loads(requests.get())
    _give_way(request["background"])
    threading.Thread(target=_report_alive, daemon=True).start()
    while True:
        serve(request)
        request = json.loads(requests.get())


def serve(request: dict[str, Any]) -> None:
    """Export one period and verify it. The last line that this writes has `verified` or `error`."""
    _serving.set()
    try:
        store = Location(**request["location"]).open(create=True)
        with translated():
            _report(uploaded=export(request, store))
            verified = verify(store, manifest_name(request["object"]))
    except Exception as exc:  # noqa: BLE001 - the parent records it
        _report(last=True, error=Failure.of(exc).text, incomplete=isinstance(exc, Incomplete))
    else:
        _report(last=True, verified=verified)


def export(request: dict[str, Any], store: ObjectStore) -> dict[str, Any]:
    """Write the rows into an object, then its manifest. Until the upload is complete, the object does not exist."""
    import obstore

    name, rows = request["object"], PeriodRows(**request["rows"])
    with _connected(request) as conn, ExitStack() as ends:
        columns = stream.read_columns(conn, rows)
        metadata = {"holdfast": json.dumps(request["about"])}
        throttle = ExportThrottle(ends.enter_context(_connected(request))) if request["background"] else None

        def on_rows(done: int) -> None:
            _report(rows=done)
            if throttle is not None:
                throttle.wait()

        while True:
            upload = obstore.open_writer(store, name, buffer_size=PART, max_concurrency=2)
            file = parquet.Digest(upload)
            try:
                written = parquet.write(conn, rows, columns, file, metadata=metadata, on_rows=on_rows)
                break
            except parquet.Unfit as unfit:
                # Anew, with these columns as text. The upload is not completed, so it leaves no object.
                columns = [
                    column._replace(as_text=column.as_text or column.name in unfit.columns) for column in columns
                ]
        _check_replaced(conn, request, written.rows)
    if written.rows:
        upload.close()
    days: dict[str, Any] = {key: date.fromisoformat(day) for key, day in request["period"].items()}
    manifest = Manifest(
        **days,
        **request["about"],
        object=name if written.rows else None,
        rows=written.rows,
        bytes=file.bytes if written.rows else 0,
        checksum=file.hexdigest() if written.rows else None,
        min_id=written.min_id,
        max_id=written.max_id,
        columns=tuple((column.name, column.type) for column in columns),
    )
    obstore.put(store, manifest_name(name), manifest.text())
    return {key: getattr(manifest, key) for key in ("object", "rows", "bytes", "min_id", "max_id", "checksum")}


def verify(store: ObjectStore, manifest: str, record: Export | None = None) -> dict[str, Any]:
    """Read a file back and compare it with its manifest: size, checksum, and the number of rows that it declares.

    `record`: of the database, which the manifest must repeat. Default: none is there yet, the file was just written.
    Raises ArchiveError with the difference. An error of the object store is raised as it is.
    """
    import pyarrow.parquet as pq

    from holdfast._archive.filesystem import open_file
    from holdfast._archive.recorded import check, parsing, read_manifest

    described = read_manifest(store, manifest)
    for what in ("object", "rows", "bytes", "checksum"):
        recorded = getattr(record, what, None)
        if recorded is not None and getattr(described, what) != recorded:
            raise ArchiveError(f"{what}: {getattr(described, what)} in the bucket, and {recorded} in the record")
    if described.object is None:
        return {"object": None, "rows": 0, "bytes": 0, "checksum": None, "etag": None}
    found = check(store, described)
    with parsing(described.object):
        rows = pq.ParquetFile(open_file(found)).metadata.num_rows
    if rows != described.rows:
        raise ArchiveError(f"{described.object} has {rows:,} rows, and its manifest says {described.rows:,}")
    return {
        "object": described.object,
        "rows": rows,
        "bytes": found.size,
        "checksum": described.checksum,
        "etag": found.etag,
    }


def _connected(request: dict[str, Any]) -> psycopg.Connection[Any]:
    return psycopg.connect(
        request["url"], autocommit=True, application_name=EXPORTS, client_encoding="UTF8", prepare_threshold=None
    )


def _check_replaced(conn: psycopg.Connection[Any], request: dict[str, Any], rows: int) -> None:
    """Raise ArchiveError if the file of this name must stay: it is another export's, or it has more rows.

    The file may be the only copy of rows that the database has lost.
    """
    about, days = request["about"], request["period"]
    least = run_sync(conn, least_rows(about["source"], days["starts_on"], about["part"], request["token"]))
    if least is None:
        raise ArchiveError("the export was taken over by another process")
    if rows < least:
        starts_on = date.fromisoformat(days["starts_on"])
        raise Incomplete(explain(about["source"], starts_on, found=rows, rows=least))


def _give_way(background: bool) -> None:  # noqa: FBT001 - as in the request
    """Run with lower priority; in the background, use only processor time that no other process wants.

    It applies to threads that start from now on. PostgreSQL sends no faster than this process reads, so its part of the
    work gives way too.
    """
    if not background:
        with suppress(OSError):
            os.nice(NICE)
        return
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except (AttributeError, OSError):  # not Linux, or not allowed
        with suppress(OSError):
            os.nice(NICEST)
    with suppress(OSError):
        _SESSION.write_text(f"{NICEST}\n")


def _report_alive() -> None:
    """Write a line now and then while a request is served: an upload or a download may take a while."""
    while True:
        time.sleep(ALIVE_SECONDS)
        _serving.wait()
        _report()


def _report(*, last: bool = False, **line: Any) -> None:
    """Write a line, unless the last one of the request was written."""
    with _line:
        if _serving.is_set():
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()
        if last:
            _serving.clear()


def _read(requests: queue.SimpleQueue[str]) -> None:
    """Read requests as they come, so that the end of standard input is noticed at once."""
    for request in sys.stdin:
        requests.put(request)
    os._exit(1)


if __name__ == "__main__":
    main()
