"""The log lines about jobs: failed attempts, with a limit per second; everything else at DEBUG only."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from holdfast._engine.report.transition import FAILURES, Observer
from holdfast._logs import log as logs
from holdfast._logs.log import Log, id_of, trace_in
from holdfast._model.outcome import Fail, Failed, Released, Retried

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast._engine.attempt import Attempt
    from holdfast._engine.report.transition import EndedBatch
    from holdfast._model.outcome import Outcome

# At most this many failures per second are logged, then the number of the others: a traceback takes milliseconds.
MOST_A_SECOND = 10
SECOND = 1.0

# The largest number of kinds and versions with unreadable payloads that are logged.
MOST_UNREAD = 1_000

log = Log(__name__)


class Flood:
    """Lets a limited number of lines per second through, and counts the others."""

    def __init__(self, sum_up: Callable[[int], None]) -> None:
        """`sum_up(count)` is called one second after the first omitted line, with the number of omitted lines."""
        self._sum_up = sum_up
        self._since = float("-inf")
        self._passed = 0
        self._left_out = 0

    def may_say(self) -> bool:
        now = time.monotonic()
        if now - self._since >= SECOND:
            self._since, self._passed = now, 0
        self._passed += 1
        if self._passed <= MOST_A_SECOND:
            return True
        if not self._left_out:
            asyncio.get_running_loop().call_later(SECOND, self.sum_up)
        self._left_out += 1
        return False

    def sum_up(self) -> None:
        """Report how many lines were omitted."""
        left_out, self._left_out = self._left_out, 0
        if left_out:
            self._sum_up(left_out)


class JobLog(Observer):
    """The log lines of one worker about its jobs."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._flood = Flood(self._left_out)
        self._unread: set[tuple[str, int]] = set()

    def ended(self, worker: str, batch: EndedBatch) -> None:  # noqa: ARG002 - as every observer takes it
        debug = log.isEnabledFor(logging.DEBUG)
        if not debug and batch.names.count("job_completed") == len(batch.names):
            return
        for name, attempt, outcome in zip(*batch, strict=True):
            if outcome is None:
                self._lost(attempt)
            elif name in FAILURES:
                self._failed(attempt, outcome, will_retry=name == "job_retried")
            elif name == "job_released":
                self._released(attempt, outcome)
            if debug and outcome is not None:
                with self._bound(attempt):
                    log.debug(name)

    def _failed(self, attempt: Attempt, outcome: Outcome, *, will_retry: bool) -> None:
        """Log why an attempt failed, with the traceback of the handler."""
        if not isinstance(outcome, Retried | Failed) or not self._flood.may_say():
            return
        job, error = attempt.claimed, outcome.exception
        extra: dict[str, object] = {
            **({} if job.max_attempts is None else {"max_attempts": job.max_attempts}),
            "error": outcome.failure.code,
            "why": outcome.failure.text,
        }
        # A handler that raises Fail has given its own explanation.
        trace = None if isinstance(error, Fail) else error
        with self._bound(attempt):
            if will_retry and isinstance(outcome, Retried):
                extra["again_in"] = round(outcome.delay.total_seconds(), 1)
                log.warning("an attempt failed", extra=extra, exc_info=trace)
            else:
                log.error("a job failed", extra=extra, exc_info=trace)

    def _lost(self, attempt: Attempt) -> None:
        """Log that the outcome of a handler was not written, because its claim was lost."""
        if attempt.entered and self._flood.may_say():
            with self._bound(attempt):
                log.warning("a claim was lost", extra={"reason": str(attempt.signal.reason)})

    def _released(self, attempt: Attempt, outcome: Outcome) -> None:
        """Log, once per kind and version, that payloads cannot be read here and are given back without counting."""
        if not isinstance(outcome, Released) or outcome.failure is None:
            return
        job = attempt.claimed
        of = job.kind, job.payload_version
        if of not in self._unread and len(self._unread) < MOST_UNREAD:
            self._unread.add(of)
            extra = {"payload_version": job.payload_version, "error": outcome.failure.code, "why": outcome.failure.text}
            with self._bound(attempt):
                log.warning("a payload does not fit its handler: its job is given back, uncounted", extra=extra)

    def sum_up(self) -> None:
        """Log how many lines were omitted."""
        self._flood.sum_up()

    def _left_out(self, attempts: int) -> None:
        extra = {"worker": self._worker, "attempts": attempts}
        log.error("more attempts ended badly than are logged one by one", extra=extra)

    def _bound(self, attempt: Attempt) -> logs.bound:
        job = attempt.claimed
        fields: logs.Fields = {"job": job.id, "kind": job.kind, "chain": job.chain_id, "worker": self._worker}
        fields["attempt"] = job.attempt
        if job.headers and (trace := trace_in(job.read_headers())) is not None:
            fields["trace"] = id_of(trace)
        if label := attempt.completer.label:
            fields["database"] = label
        return logs.bound(**fields)
