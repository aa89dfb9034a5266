"""What the log says of jobs: each attempt that ended badly, as far as a log bears it; everything else at DEBUG only."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from holdfast import logs
from holdfast.logs import Log
from holdfast.outcome import Fail, Failed, Released, Retried
from holdfast.trace import id_of, trace_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.engine.attempt import Attempt
    from holdfast.engine.transition import Name
    from holdfast.outcome import Outcome
    from holdfast.store.claim import ClaimedJob

# Of a flood, so many are said in a second, and then how many were not: a traceback takes milliseconds.
MOST_A_SECOND = 10
SECOND = 1.0

# Kinds and versions of payloads that cannot be read: of more, nothing is said.
MOST_UNREAD = 1_000

log = Log(__name__)


class Flood:
    """Lets so many lines a second through, and counts the others."""

    def __init__(self, sum_up: Callable[[int], None]) -> None:
        """`sum_up(count)` is called a second after the first line that was left out, with how many there were."""
        self._sum_up = sum_up
        self._since = float("-inf")
        self._said = 0
        self._left_out = 0

    def may_say(self) -> bool:
        now = time.monotonic()
        if now - self._since >= SECOND:
            self._since, self._said = now, 0
        self._said += 1
        if self._said <= MOST_A_SECOND:
            return True
        if not self._left_out:
            asyncio.get_running_loop().call_later(SECOND, self.sum_up)
        self._left_out += 1
        return False

    def sum_up(self) -> None:
        """Say how many were left out."""
        left_out, self._left_out = self._left_out, 0
        if left_out:
            self._sum_up(left_out)


class Journal:
    """The lines of one worker about the jobs of one database."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._flood = Flood(self._left_out)
        self._unread: set[tuple[str, int]] = set()

    def failed(self, job: ClaimedJob, outcome: Outcome, *, will_retry: bool) -> None:
        """Say why an attempt ended badly, and where in the handler."""
        if not isinstance(outcome, Retried | Failed) or not self._flood.may_say():
            return
        error = outcome.exception
        extra: dict[str, object] = {
            "attempt": job.attempt,
            "max_attempts": job.max_attempts,
            "error": outcome.failure.code,
            "why": outcome.failure.text,
        }
        # What a handler chose to say needs no traceback.
        trace = None if isinstance(error, Fail) else error
        with self._bound(job):
            if will_retry and isinstance(outcome, Retried):
                extra["again_in"] = round(outcome.delay.total_seconds(), 1)
                log.warning("an attempt failed", extra=extra, exc_info=trace)
            else:
                log.error("a job failed", extra=extra, exc_info=trace)

    def lost(self, attempt: Attempt) -> None:
        """Say that what a handler did was not written down, since the job was no longer ours."""
        if attempt.begun and self._flood.may_say():
            with self._bound(attempt.claimed):
                extra = {"attempt": attempt.claimed.attempt, "reason": str(attempt.signal.reason)}
                log.warning("a claim was lost", extra=extra)

    def released(self, job: ClaimedJob, outcome: Outcome) -> None:
        """Say, once for each kind and version, that payloads cannot be read here and are given back uncounted."""
        if not isinstance(outcome, Released) or outcome.failure is None:
            return
        of = job.kind, job.payload_version
        if of not in self._unread and len(self._unread) < MOST_UNREAD:
            self._unread.add(of)
            extra = {"payload_version": job.payload_version, "error": outcome.failure.code, "why": outcome.failure.text}
            with self._bound(job):
                log.warning("a payload does not fit its handler: its job is given back, uncounted", extra=extra)

    def ended(self, names: Sequence[Name], attempts: Sequence[Attempt]) -> None:
        if log.isEnabledFor(logging.DEBUG):
            for name, attempt in zip(names, attempts, strict=True):
                with self._bound(attempt.claimed):
                    log.debug(name, extra={"attempt": attempt.claimed.attempt})

    def sum_up(self) -> None:
        """Say how many were not said."""
        self._flood.sum_up()

    def _left_out(self, attempts: int) -> None:
        extra = {"worker": self._worker, "attempts": attempts}
        log.error("more attempts ended badly than are logged one by one", extra=extra)

    def _bound(self, job: ClaimedJob) -> logs.bound:
        fields: logs.Fields = {"job": job.id, "kind": job.kind, "chain": job.chain_id, "worker": self._worker}
        if job.headers and (trace := trace_in(job.read_headers())) is not None:
            fields["trace"] = id_of(trace)
        return logs.bound(**fields)
