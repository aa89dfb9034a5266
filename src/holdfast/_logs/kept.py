"""The log that is kept with an attempt: the last records of its handler, bounded and masked."""

from __future__ import annotations

import logging
from collections import deque
from contextvars import ContextVar
from threading import Lock
from typing import TYPE_CHECKING, Any

from holdfast._logs.log import FIELDS, HumanFormatter

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_RECORDS = 200
MOST_BYTES = 16_384
# Of a longer record, the beginning and the end are kept.
LONGEST_RECORD = 4_096

job_logger = logging.getLogger("holdfast.job")
"""The logger of all jobs, which carry their fields."""

_current: ContextVar[KeptLog | None] = ContextVar("holdfast.logs.kept", default=None)


class KeptLog(logging.Logger):
    """The logger of one attempt, which keeps its last records and passes them on. Safe from any thread."""

    def __init__(self, least: int) -> None:
        """`least`: the lowest level that is kept."""
        super().__init__(job_logger.name, logging.DEBUG)
        self._least = least
        self._lock = Lock()
        self._records: deque[bytes] = deque()
        self._bytes = 0
        self._left_out = 0

    def handle(self, record: logging.LogRecord) -> None:
        self.keep(record)
        if job_logger.isEnabledFor(record.levelno):
            job_logger.handle(record)

    def keep(self, record: logging.LogRecord) -> None:
        if record.levelno < self._least:
            return
        text = _stored(record)
        with self._lock:
            self._records.append(text)
            self._bytes += len(text) + 1
            while len(self._records) > MOST_RECORDS or self._bytes > MOST_BYTES:
                self._bytes -= len(self._records.popleft()) + 1
                self._left_out += 1

    def text(self) -> str | None:
        """Return the kept records, oldest first; None if there are none."""
        with self._lock:
            records = list(self._records)
            if self._left_out:
                records.insert(0, f"... {self._left_out} earlier records are not kept".encode())
        return b"\n".join(records).decode() or None


def kept_from(level: str) -> KeptLog:
    """Keep what is logged from this level up, in this context and those that are copied from it."""
    # An application may replace the handlers of the root logger at any time.
    if _handler not in logging.root.handlers:
        logging.root.addHandler(_handler)
    kept = KeptLog(logging.getLevelNamesMapping()[level.upper()])
    _current.set(kept)
    return kept


class _Formatter(HumanFormatter):
    """Leaves out the fields of the attempt, which the record is kept with."""

    def fields(self, record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
        return (field for field in super().fields(record) if field[0] not in FIELDS)


_formatter = _Formatter()


def _stored(record: logging.LogRecord) -> bytes:
    """Return a record as text that PostgreSQL stores."""
    try:
        text = _formatter.format(record)
    except Exception:  # noqa: BLE001 - a record that cannot be printed must not end the handler
        text = f"<a record of {record.name} that cannot be printed>"
    stored = text.replace("\0", "").encode("utf-8", "backslashreplace")
    if len(stored) <= LONGEST_RECORD:
        return stored
    # A character that was cut in two is left out.
    parts = stored[: LONGEST_RECORD // 2], stored[-LONGEST_RECORD // 2 :]
    return b"\n...\n".join(part.decode("utf-8", "ignore").encode() for part in parts)


class _Handler(logging.Handler):
    """Hands the records that reach the root logger to the log of the attempt that runs."""

    def emit(self, record: logging.LogRecord) -> None:
        kept, last = _current.get(), logging.lastResort
        if kept is not None and record.name != kept.name:
            kept.keep(record)
        # Without other handlers, logging writes warnings to stderr, and this one shall not change that.
        if logging.root.handlers == [self] and last is not None and record.levelno >= last.level:
            last.handle(record)


_handler = _Handler()
