"""The file of databases while it is watched: it is read again whenever it has changed."""

from __future__ import annotations

import time
from pathlib import Path

from holdfast._logs.log import Log
from holdfast._model.databases import Databases
from holdfast._model.settings import SettingsError

log = Log(__name__)

# A changed file is read when it has stayed the same for this many seconds: it may be half written.
SETTLE_SECONDS = 0.25


class DatabasesFile:
    """A file of databases by name, such as `HOLDFAST_DATABASES_FILE` names."""

    def __init__(self, path: str, known: Databases | None = None) -> None:
        """`known`: the databases that were read from it before. Defaults to reading it now."""
        self._path = Path(path)
        self.known = Databases.read(path) if known is None else known
        """The databases that were read last."""
        self._read: tuple[int, ...] | None = None
        self._seen: tuple[int, ...] | None = None
        self._seen_at = 0.0
        self.settling: bool = True
        """Whether the file has changed since it was read: look again soon."""

    def look(self) -> Databases | None:
        """Return the databases if the file has changed to others. Raise SettingsError, once for each change."""
        stamp, now = self._stamp(), time.monotonic()
        if stamp != self._seen:
            self._seen, self._seen_at = stamp, now
        self.settling = stamp != self._read
        if not self.settling or now - self._seen_at < SETTLE_SECONDS:
            return None
        self._read, self.settling = stamp, False
        databases = Databases.read(self._path)
        if databases == self.known:
            return None
        self.known = databases
        return databases

    def current(self) -> Databases:
        """Return the databases of the file, or the last ones if it cannot be used now: that is logged."""
        try:
            self.look()
        except SettingsError as refused:
            extra = {"why": "; ".join(refused.problems)}
            log.error("the file of databases cannot be used", extra=extra)  # noqa: TRY400 - the cause is in `why`
        return self.known

    def _stamp(self) -> tuple[int, ...]:
        """Return what changes with the file; empty without one. A link that Kubernetes replaces leads to another."""
        try:
            found = self._path.stat()
        except OSError:
            return ()
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
