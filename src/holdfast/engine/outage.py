"""What fails and is tried again for ever: said when it begins, once a minute while it lasts, and when it is over."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from holdfast.engine.link import pause, told
from holdfast.failure import Failure

if TYPE_CHECKING:
    from holdfast.logs import Log

SAY_EVERY = 60.0


class Outage:
    """The failures in a row of one thing. An hour without a database is a page of the log, and says why."""

    def __init__(self, log: Log, message: str, **extra: object) -> None:
        """`extra`: what each line carries besides."""
        self._log = log
        self._message = message
        self._extra = extra
        self._begun = 0.0
        self._said: dict[str, float] = {}
        self.failures = 0

    @property
    def seconds(self) -> float:
        """How long it has lasted; 0 when all is well."""
        return time.monotonic() - self._begun if self.failures else 0.0

    def failed(self, exc: BaseException) -> float:
        """Note a failure, and return how long to wait before the next try, in seconds."""
        now = time.monotonic()
        if not self.failures:
            self._begun = now
        self.failures += 1
        error = type(exc).__name__
        if now - self._said.get(error, -SAY_EVERY) >= SAY_EVERY:
            self._said[error] = now
            extra = {**self._extra, "error": error, "why": Failure.of(exc).text, "failures": self.failures}
            self._log.warning(self._message, extra=extra, exc_info=told(exc))
        return pause(self.failures - 1)

    def over(self) -> None:
        """Note that it went well."""
        if self.failures:
            extra = {**self._extra, "failures": self.failures, "seconds": round(self.seconds, 1)}
            self._log.info("%s: it works again", self._message, extra=extra)
            self.failures = 0
            self._said.clear()
