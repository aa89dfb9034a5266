"""The log of `holdfast dev` and `holdfast demo`: one short line per event, with the job and how long it took."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast._engine.report.transition import Observer
from holdfast._logs import log as logs
from holdfast._logs.log import HumanFormatter
from holdfast._logs.masking import mask
from holdfast._model.job import Fail, Failed, Retried
from holdfast._ops.wording import span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast._engine.attempt import Attempt
    from holdfast._engine.report.transition import EndedBatch, Name
    from holdfast._model.job import Outcome

log = logging.getLogger("holdfast.dev")

# At most this many lines about jobs per second; the others are counted.
MOST_A_SECOND = 30
# Of a traceback, this many of the last lines.
_TRACE_LINES = 12
_MARKS: dict[Name, tuple[str, str]] = {
    "job_completed": ("✓", "32"),
    "job_retried": ("↻", "33"),
    "job_rescheduled": ("→", "36"),
    "job_failed": ("✗", "31"),
    "job_cancelled": ("■", "2"),
    "job_released": ("←", "2"),
}
_LEVELS = {"WARNING": "33", "ERROR": "31", "CRITICAL": "1;31"}
_DIM = "2"
# Frames of Holdfast itself are left out of tracebacks.
_OURS = str(Path(__file__).parent.parent)


class CompactFormatter(HumanFormatter):
    """Formats a record as `12:03:44 who  what`; records of other libraries too."""

    def __init__(self, *, colour: bool) -> None:
        super().__init__()
        self._coloured = colour

    def format(self, record: logging.LogRecord) -> str:
        clock = self.in_colour(_DIM, time.strftime("%H:%M:%S", time.localtime(record.created)))
        if record.name == log.name:
            return f"{clock} {record.getMessage()}"
        # Without the time, the level and the logger, with which the long form begins.
        message = super().format(record).partition(": ")[2]
        who = record.name.removeprefix("holdfast.")
        return f"{clock} {self.in_colour(_LEVELS.get(record.levelname, _DIM), f'{who:<9}')} {message}"

    def in_colour(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._coloured else text


def start_log(level: str) -> CompactFormatter:
    """Log to standard error in the compact form. The lines about jobs replace those of a worker."""
    handler = logs.configure("human", level)
    terminal = sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    formatter = CompactFormatter(colour=terminal)
    handler.setFormatter(formatter)
    logging.getLogger("holdfast.job_log").setLevel(logging.CRITICAL)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    return formatter


class JobLines(Observer):
    """Writes a line for each attempt that ended: kind, id, outcome and duration."""

    def __init__(self, formatter: CompactFormatter, *, only_failures: bool = False) -> None:
        """`only_failures`: write nothing for jobs that completed. Default: False."""
        self._in = formatter.in_colour
        self._only_failures = only_failures
        self._second = 0
        self._written = 0
        self._left_out = 0

    def ended(self, worker: str, batch: EndedBatch) -> None:  # noqa: ARG002 - as every observer takes it
        names: Sequence[Name] = batch.names
        for name, attempt, outcome in zip(names, batch.attempts, batch.outcomes, strict=True):
            if outcome is None or name not in _MARKS or (self._only_failures and name == "job_completed"):
                continue
            if self._may_write():
                log.info("%s", self._line(name, attempt, outcome))

    def _may_write(self) -> bool:
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._written = second, 0
        self._written += 1
        if self._written <= MOST_A_SECOND:
            return True
        if not self._left_out:
            asyncio.get_running_loop().call_later(1.0, self._sum_up)
        self._left_out += 1
        return False

    def _sum_up(self) -> None:
        left_out, self._left_out = self._left_out, 0
        log.info("%s", self._in(_DIM, f"… and {left_out:,} more jobs ended in this second"))

    def _line(self, name: Name, attempt: Attempt, outcome: Outcome) -> str:
        mark, colour = _MARKS[name]
        claimed = attempt.claimed
        parts = [
            self._in(colour, f"{mark} {_safe(claimed.kind):<20}"),
            self._in(_DIM, f"{f'#{claimed.id}':<8}"),
            f"{_took(attempt):>8}",
        ]
        if name != "job_completed":
            parts.append(self._in(colour, name.removeprefix("job_")))
        if isinstance(outcome, Retried | Failed):
            limit = "" if claimed.max_attempts is None else f" of {claimed.max_attempts}"
            parts.append(
                f"attempt {claimed.attempt}{limit}: {_safe(outcome.failure.code)}: {_safe(outcome.failure.text)}"
            )
        if isinstance(outcome, Retried):
            parts.append(self._in(_DIM, f"again in {span(outcome.delay.total_seconds())}"))
        return "  ".join(parts) + self._trace(outcome)

    def _trace(self, outcome: Outcome) -> str:
        error: Any = getattr(outcome, "exception", None)
        # A handler that raises Fail has given its own explanation. In the demo the failures are meant.
        if error is None or isinstance(error, Fail) or self._only_failures:
            return ""
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
            trace = trace.tb_next
        lines = mask("".join(traceback.format_exception(type(error), error, trace))).splitlines()[-_TRACE_LINES:]
        return "".join(f"\n    {self._in(_DIM, _safe(line))}" for line in lines)


def _safe(text: str) -> str:
    """Mask secrets, and replace characters that control a terminal."""
    return "".join(sign if sign.isprintable() else "?" for sign in mask(text))


def _took(attempt: Attempt) -> str:
    return "-" if attempt.seconds is None else span(attempt.seconds)
