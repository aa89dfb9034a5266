"""Makes jobs or events of rows of another table: each row once, in batches, so that it can be stopped at any time.

A batch is one transaction. It locks rows of the other table, records them in `holdfast.imported`, and enqueues or
publishes those that were not recorded before.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import psycopg

from holdfast._drivers import run_sync
from holdfast._logs.failure import Failure
from holdfast._model.codec import WRAPPED, JsonCodec, adapter_of, from_json, parse_json
from holdfast._model.errors import HoldfastError, InvalidEvent, InvalidJob, PayloadTooLarge
from holdfast._model.event import NewEvent
from holdfast._model.kind import Kind
from holdfast._model.new_job import Envelope, NewJob
from holdfast._store.enqueue import enqueue_jobs
from holdfast._store.event import publish_events
from holdfast._store.inspect import limit_time
from holdfast._store.statement import read_path, restore_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from holdfast._app.app import Holdfast
    from holdfast._store.outbox import OutboxColumn, OutboxRow, OutboxTable, TypeCount

    Progressing: TypeAlias = Callable[["Tally"], None]

To: TypeAlias = Literal["job", "event"]

# The longest time of a statement, in seconds: counting the rows of a large table takes a while.
SECONDS = 600.0
HEADER = "imported-from"
"""The header of an imported job or event: the table and the id of its row."""
# An import that runs while the old system still adds rows ends after so many passes over the table.
_MOST_PASSES = 10
_MOST_REFUSALS = 20
_MOST_SAMPLES = 3
_REFUSED = (InvalidJob, InvalidEvent, PayloadTooLarge, psycopg.DataError, psycopg.errors.RaiseException)


class Imported(NamedTuple):
    """A row and the job or event that is made of it."""

    row: OutboxRow
    new: NewJob[Any] | NewEvent


class RefusedRow(NamedTuple):
    """A row that cannot be imported, and why."""

    id: str
    type: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Conversion:
    """How rows become jobs or events: which kind or topic each type becomes, and how payloads are checked."""

    source: str
    to: To
    names: Mapping[str, str] = field(default_factory=dict)
    """Kinds or topics by type."""
    app: Holdfast | None = None
    """Its kinds and topics check the payloads."""

    @property
    def types(self) -> list[str] | None:
        """The types that can be imported; None: all."""
        if self.app is None:
            return None if self.to == "event" else list(self.names)
        return list(dict.fromkeys([*self.names, *self.known]))

    @property
    def known(self) -> Mapping[str, Any]:
        """The application's kinds, or its topics."""
        if self.app is None:
            return {}
        return self.app.kinds if self.to == "job" else self.app.topics

    def target(self, type_: str | None) -> str | None:
        """Return the kind or topic that rows of this type become; None if they are left."""
        if type_ is None or ((types := self.types) is not None and type_ not in types):
            return None
        return self.names.get(type_, type_)

    def make(self, row: OutboxRow) -> NewJob[Any] | NewEvent:
        """Return the job or event of a row; raises a HoldfastError if it is not valid."""
        name = self.names.get(row.type or "", row.type or "")
        headers = {HEADER: f"{self.source} {row.id}"}
        if self.to == "event":
            return self._event(name, row, headers)
        return self._job(name, row).options(
            order_key=row.key or None, at=None if row.due is None else _time(row.due), headers=headers
        )

    def _job(self, name: str, row: OutboxRow) -> NewJob[Any]:
        kind = self.known.get(name)
        payload = self._payload(name, row)
        if not isinstance(parse_json(self._text(row)), dict):
            raise InvalidJob(f"{name}: the payload is not a JSON object")
        if kind is None:
            return NewJob(Envelope(name), payload)
        if isinstance(kind, Kind):
            kind.arguments(payload, kind.version)
        else:
            from_json(name, adapter_of(name, kind.model), self._text(row))
        return NewJob(kind.envelope, payload)

    def _event(self, name: str, row: OutboxRow, headers: dict[str, str]) -> NewEvent:
        topic = self.known.get(name)
        payload = self._payload(name, row)
        if topic is None:
            return NewEvent(name, payload, key=row.key or None, headers=headers)
        topic.read(payload)
        return NewEvent(name, payload, version=topic.version, key=row.key or None, headers=headers)

    def _payload(self, name: str, row: OutboxRow) -> str:
        """Return the payload as the application's codec stores it.

        The text stays as it is where the codec would only write the same value again: numbers keep all their digits.
        """
        text = self._text(row)
        codec = JsonCodec() if self.app is None else self.app.codec
        encoded = codec.encode(parse_json(text), kind=name)
        return text if type(codec) is JsonCodec and not encoded.startswith(f'{{"{WRAPPED}"') else encoded

    def _text(self, row: OutboxRow) -> str:
        """Return the payload as JSON text. A job without one has no arguments."""
        if row.payload is None:
            return "{}" if self.to == "job" else "null"
        try:
            return row.payload.decode() if isinstance(row.payload, bytes) else row.payload
        except UnicodeDecodeError:
            raise InvalidJob("the payload is not UTF-8") from None


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidJob(f"the time {text} is out of the calendar") from None


@dataclass(slots=True)
class Tally:
    """The results of an import so far, or of a preview."""

    imported: Counter[str] = field(default_factory=Counter)
    """Rows by kind or topic."""
    refused: int = 0
    refusals: list[RefusedRow] = field(default_factory=list)
    """The first refused rows of the last pass."""
    samples: list[Imported] = field(default_factory=list)
    """The first rows of a preview."""
    started: float = field(default_factory=time.monotonic)

    @property
    def rows(self) -> int:
        return self.imported.total()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    def refuse(self, row: OutboxRow, error: Exception) -> None:
        self.refused += 1
        if len(self.refusals) < _MOST_REFUSALS:
            self.refusals.append(RefusedRow(row.id, row.type, Failure.of(error).text))

    def add(self, made: Sequence[Imported]) -> None:
        self.imported.update(_name(one) for one in made)
        self.samples += made[: _MOST_SAMPLES - len(self.samples)]


def _name(made: Imported) -> str:
    return made.new.kind if isinstance(made.new, NewJob) else made.new.topic


@dataclass(frozen=True, slots=True)
class Importer:
    """Imports the rows of one table on one connection."""

    conn: psycopg.Connection[Any]
    table: OutboxTable
    conversion: Conversion
    batch: int = 500
    limit: int | None = None
    """The most rows to import. Default: all."""
    values: tuple[tuple[OutboxColumn, str], ...] = ()
    """Columns of an imported row to set, in the same transaction."""
    delete: bool = False
    """Whether an imported row is deleted, in the same transaction."""

    def count(self) -> list[TypeCount]:
        """Count the rows that are not imported yet, by type."""
        with self._batch():
            return run_sync(self.conn, self.table.count_rows())

    def preview(self, progress: Progressing) -> Tally:
        """Read and check every row that would be imported, and write nothing."""
        tally = Tally()
        self._walk(tally, progress, write=False)
        return tally

    def apply(self, progress: Progressing) -> Tally:
        """Import the rows. Rows that were committed late, or locked, are found by another pass over the table."""
        tally = Tally()
        for _ in range(_MOST_PASSES):
            before, tally.refused = tally.rows, 0
            tally.refusals.clear()
            self._walk(tally, progress, write=True)
            if tally.rows in {before, self.limit}:
                break
        return tally

    def _walk(self, tally: Tally, progress: Progressing, *, write: bool) -> None:
        """Take the rows in order, each batch in its own transaction."""
        after: OutboxRow | None = None
        while size := self._size(tally):
            with self._batch() as path:
                page = self.table.read_rows(types=self.conversion.types, after=after, limit=size, lock=write)
                if not (rows := run_sync(self.conn, page)):
                    return
                done = set(run_sync(self.conn, self.table.imported_rows([row.id for row in rows])))
                made = self._valid(tally, [row for row in rows if row.id not in done])
                if write:
                    made = self._write(tally, made)
                    self._mark([one.row.id for one in made], path)
            tally.add(made)
            progress(tally)
            after = rows[-1]

    def _size(self, tally: Tally) -> int:
        return self.batch if self.limit is None else max(0, min(self.batch, self.limit - tally.rows))

    @contextmanager
    def _batch(self) -> Iterator[str]:
        """Run the block in a transaction with pinned names; yield the search_path of the session."""
        with self.conn.transaction():
            path = run_sync(self.conn, read_path())
            run_sync(self.conn, limit_time(SECONDS))
            yield path

    def _mark(self, ids: list[str], path: str) -> None:
        """Set or delete imported rows in the other table, last in the transaction: its triggers need their path."""
        if ids and (self.delete or self.values):
            run_sync(self.conn, restore_path(path))
            delete, mark = self.table.delete_rows, self.table.mark_rows
            run_sync(self.conn, delete(ids) if self.delete else mark(ids, self.values))

    def _valid(self, tally: Tally, rows: list[OutboxRow]) -> list[Imported]:
        made = []
        for row in rows:
            try:
                made.append(Imported(row, self.conversion.make(row)))
            except HoldfastError as error:
                tally.refuse(row, error)
        return made

    def _write(self, tally: Tally, made: list[Imported]) -> list[Imported]:
        """Record and write the rows; return those that were written.

        If the database refuses a batch, its halves are written one after the other, down to the row that it refuses.
        """
        if not made:
            return []
        try:
            with self.conn.transaction():
                new = set(run_sync(self.conn, self.table.record_imports([one.row.id for one in made])))
                fresh = [one for one in made if one.row.id in new]
                self._send(fresh)
        except _REFUSED as error:
            if len(made) == 1:
                tally.refuse(made[0].row, error)
                return []
            half = len(made) // 2
            return self._write(tally, made[:half]) + self._write(tally, made[half:])
        return fresh

    def _send(self, made: list[Imported]) -> None:
        if jobs := [one.new for one in made if isinstance(one.new, NewJob)]:
            run_sync(self.conn, enqueue_jobs(jobs))
        if events := [one.new for one in made if isinstance(one.new, NewEvent)]:
            run_sync(self.conn, publish_events(events))
