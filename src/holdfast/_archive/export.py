"""Has periods exported and verified in a child process, and records each step.

Every step can be repeated: a period has one name in the bucket, an upload is visible when it is complete, and its
record is written with a token that a later export replaces. A period that was not verified is exported anew.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Self

from holdfast._archive.incomplete import Incomplete
from holdfast._archive.location import ArchiveError, object_name
from holdfast._drivers import run
from holdfast._logs.failure import Failure
from holdfast._store.archive import (
    FAMILIES,
    ID_COLUMN,
    Upload,
    record_export_error,
    record_upload,
    record_verified,
    report_export,
    start_export,
)
from holdfast._store.schema import migrations
from holdfast._store.worker import read_identity

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import psycopg

    from holdfast._archive.location import Location
    from holdfast._store.archive import Period

# Families in which an id occurs once and has an index that starts with it.
_UNIQUE_ID = ("job_history", "job_failed", "event")
# Seconds between two records of the progress.
_PACE = 1.0
# Seconds without any line after which the child counts as lost. It writes one every five seconds.
SILENCE = 60.0
# Called with the name of each step that ended. Only tests set it.
on_step: Callable[[str], None] | None = None


class ExportTaken(ArchiveError):  # noqa: N818 - names describe what happened
    """Another process exports this period, or has done so.

    Cure: None is needed. `holdfast archive status` shows its progress.
    """


class Exporter:
    """Exports periods of one database in its block of `async with`: one child process serves all of them."""

    def __init__(
        self, conn: psycopg.AsyncConnection[Any], url: str, location: Location, *, background: bool = False
    ) -> None:
        """`conn`: for the record, in autocommit mode. `url`: with which the child connects to read the rows.

        `background`: use only processor time that no other process wants. Default: False, as for a command.
        """
        self._conn = conn
        self._url = url
        self._location = location
        self._background = background
        self._child: ExportProcess | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._child is not None:
            await self._child.end()

    async def export(
        self, period: Period, *, keep_ms: int | None = None, on_rows: Callable[[int], None] | None = None
    ) -> Upload:
        """Export and verify one period, and return its file.

        `keep_ms`: how long a month of a table is kept from then on. `on_rows`: called with the number of rows so far.
        Raises ExportTaken if another process exports it, and ArchiveError if it failed; its record says why.
        """
        token = await run(self._conn, start_export(period))
        if token is None:
            raise ExportTaken(f"{period.source} of {period.starts_on} is exported by another process, or is verified")
        _step("started")
        try:
            return await self._follow(period, token, keep_ms=keep_ms, on_rows=on_rows or (lambda _: None))
        except (Exception, asyncio.CancelledError) as exc:
            # The record of a stopped export is released too, so that the next process need not wait for its lease.
            reason = "the export was stopped" if isinstance(exc, asyncio.CancelledError) else Failure.of(exc).text
            with suppress(Exception):
                incomplete = isinstance(exc, Incomplete)
                await run(self._conn, record_export_error(period, token, reason, incomplete=incomplete))
            raise

    async def _follow(
        self, period: Period, token: int, *, keep_ms: int | None, on_rows: Callable[[int], None]
    ) -> Upload:
        """Ask the child, and record what it reports."""
        identity = await run(self._conn, read_identity())
        done, reported, upload = 0, time.monotonic(), None
        request = self._request(period, token, identity)
        async with self._asked(request) as lines:
            async for line in lines:
                if "uploaded" in line:
                    upload = Upload(**line["uploaded"])
                    _step("uploaded")
                    uploaded = record_upload(period, token, upload, schema_version=request["about"]["schema_version"])
                    await self._record(uploaded, period)
                    _step("recorded")
                elif "verified" in line:
                    _step("verified")
                    etag = line["verified"].pop("etag")
                    if upload is None or line["verified"] != {key: getattr(upload, key) for key in line["verified"]}:
                        raise ArchiveError("the file was replaced before it was verified")
                    await self._record(record_verified(period, token, etag=etag, keep_ms=keep_ms), period)
                    _step("done")
                else:
                    done = line.get("rows", done)
                    on_rows(done)
                    _step("rows")
                    if time.monotonic() >= reported + _PACE:
                        await self._record(report_export(period, token, rows_done=done), period)
                        reported = time.monotonic()
        assert upload is not None  # noqa: S101 - for the type checker: a file is uploaded before it is verified
        return upload

    @asynccontextmanager
    async def _asked(self, request: dict[str, Any]) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        """Yield the lines of a child. One whose export failed in any way serves no other."""
        found, self._child = self._child, None
        child = found if found is not None and found.runs else await ExportProcess.start()
        try:
            await child.ask(request)
            yield child.lines()
        except BaseException:
            await child.end()
            raise
        self._child = child

    async def _record(self, statement: Any, period: Period) -> None:
        if not await run(self._conn, statement):
            raise ExportTaken(f"{period.source} of {period.starts_on} was taken over by another process")

    def _request(self, period: Period, token: int, identity: str) -> dict[str, Any]:
        family = period.source in FAMILIES
        about = {"source": period.source, "part": period.part, "schema_version": len(migrations())}
        days = {"starts_on": period.starts_on.isoformat(), "ends_on": period.ends_on.isoformat()}
        name = object_name(identity, period.source, period.starts_on, period.part, monthly=not family)
        rows = {
            "relation": period.relation,
            "at": period.at,
            **days,
            "id": ID_COLUMN.get(period.source, "id") if family else period.id,
            "unique": period.source in _UNIQUE_ID,
            "late": family,
        }
        location = asdict(self._location)
        return {
            "url": self._url,
            "location": location,
            "object": name,
            "about": about,
            "period": days,
            "rows": rows,
            "token": token,
            "background": self._background,
        }


class ExportProcess:
    """The child process, while it runs."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls) -> Self:
        return cls(
            await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "holdfast._archive.child",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        )

    @property
    def runs(self) -> bool:
        return self._process.returncode is None

    async def ask(self, request: dict[str, Any]) -> None:
        assert self._process.stdin is not None  # noqa: S101 - for the type checker
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        with suppress(ConnectionError):  # the lines say how it ended
            await self._process.stdin.drain()

    async def lines(self) -> AsyncIterator[dict[str, Any]]:
        """Yield what it writes until the period is verified. Raises ArchiveError if that failed."""
        assert self._process.stdout is not None  # noqa: S101 - for the type checker
        while True:
            try:
                async with asyncio.timeout(SILENCE):
                    text = await self._process.stdout.readline()
            except TimeoutError:
                raise ArchiveError(f"the process of the export wrote nothing for {SILENCE:.0f} seconds") from None
            if not text:
                break
            line = json.loads(text)
            if "error" in line:
                raise (Incomplete if line["incomplete"] else ArchiveError)(line["error"])
            yield line
            if "verified" in line:
                return
        status = await self._process.wait()
        killed = f"was killed by signal {-status}: if that is 9, the machine may lack memory"
        raise ArchiveError(f"the process of the export {killed if status < 0 else f'ended with status {status}'}")

    async def end(self) -> None:
        """Kill it, unless it has ended."""
        if self.runs:
            with suppress(ProcessLookupError):
                self._process.kill()
        await self._process.wait()


def _step(name: str) -> None:
    if on_step is not None:
        on_step(name)
