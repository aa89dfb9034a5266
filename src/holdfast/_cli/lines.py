"""The log of `holdfast dev` and `holdfast demo`: one short line per event, with the job and how long it took."""

from __future__ import annotations

import logging
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast._engine.report.job_log import Flood
from holdfast._engine.report.transition import Observer
from holdfast._logs import log as logs
from holdfast._logs.log import COLOURS, DIM, HumanFormatter
from holdfast._logs.masking import mask
from holdfast._model.outcome import Fail, Failed, Retried
from holdfast._ops.wording import span

if TYPE_CHECKING:
    from holdfast._engine.attempt import Attempt
    from holdfast._engine.report.transition import EndedBatch, Name
    from holdfast._model.outcome import Outcome

log = logging.getLogger("holdfast.dev")

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
# Frames of Holdfast itself are left out of tracebacks.
_OURS = str(Path(__file__).parent.parent)


class CompactFormatter(HumanFormatter):
    """Formats a record as `12:03:44 who  what`; records of other libraries too."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{self._clock(record)} {record.getMessage()}" if record.name == log.name else super().format(record)

    def head(self, record: logging.LogRecord) -> str:
        who = record.name.removeprefix("holdfast.")
        return f"{self._clock(record)} {self.in_colour(COLOURS.get(record.levelname, DIM), f'{who:<9}')}"

    def _clock(self, record: logging.LogRecord) -> str:
        return self.in_colour(DIM, time.strftime("%H:%M:%S", time.localtime(record.created)))


def start_log(level: str) -> CompactFormatter:
    """Log to standard error in the compact form. The lines about jobs replace those of a worker."""
    handler = logs.configure("human", level)
    formatter = CompactFormatter(colour=logs.is_colourful(sys.stderr))
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
        self._flood = Flood(self._sum_up)

    def ended(self, worker: str, batch: EndedBatch) -> None:  # noqa: ARG002 - as every observer takes it
        for name, attempt, outcome in zip(*batch, strict=True):
            if outcome is None or name not in _MARKS or (self._only_failures and name == "job_completed"):
                continue
            if self._flood.may_say():
                log.info("%s", self._line(name, attempt, outcome))

    def _sum_up(self, left_out: int) -> None:
        log.info("%s", self._in(DIM, f"… and {left_out:,} more jobs ended in this second"))

    def _line(self, name: Name, attempt: Attempt, outcome: Outcome) -> str:
        mark, colour = _MARKS[name]
        claimed = attempt.claimed
        parts = [
            self._in(colour, f"{mark} {_safe(claimed.kind):<20}"),
            self._in(DIM, f"{f'#{claimed.id}':<8}"),
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
            parts.append(self._in(DIM, f"again in {span(outcome.delay.total_seconds())}"))
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
        return "".join(f"\n    {self._in(DIM, _safe(line))}" for line in lines)


def _safe(text: str) -> str:
    """Mask secrets, and replace characters that control a terminal."""
    return "".join(sign if sign.isprintable() else "?" for sign in mask(text))


def _took(attempt: Attempt) -> str:
    return "-" if attempt.seconds is None else span(attempt.seconds)
