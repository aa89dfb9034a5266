"""The result of a drain: one entry per attempt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from holdfast._engine.jobs.held_jobs import Fate, fate
from holdfast._model.errors import AbortReason, InvalidJob
from holdfast._model.job import Completed, Failed, Released, Retried
from holdfast._store.lease import ClaimAnswer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast._model.job import Outcome
    from holdfast._model.kind import Kind
    from holdfast._store.claim import ClaimedJob

Ended: TypeAlias = Literal["completed", "retry", "reschedule", "failed", "cancelled", "released", "lost"]

_WORDS: dict[Fate, Ended] = {
    "job_completed": "completed",
    "job_retried": "retry",
    "job_rescheduled": "reschedule",
    "job_released": "released",
    "job_failed": "failed",
    "job_cancelled": "cancelled",
}


@dataclass(frozen=True, slots=True)
class Ran:
    """One attempt of a job, and its outcome."""

    id: int
    kind: str
    attempt: int
    outcome: Ended
    result: Any = None
    """The handler's return value in its declared type; plain JSON if it does not fit that type."""
    error_code: str | None = None
    error: str | None = None
    """Normalized and bounded, as stored in the database."""
    exception: BaseException | None = None
    """The exception that the handler raised."""

    def __str__(self) -> str:
        ended = self.outcome if self.error_code is None else f"{self.outcome}: {self.error_code}: {self.error}"
        return f"{self.kind} (job {self.id}, attempt {self.attempt}) {ended}"


@dataclass(frozen=True, slots=True)
class Drained:
    """The attempts of a drain in order. Its lists contain job ids."""

    attempts: tuple[Ran, ...]

    def __iter__(self) -> Iterator[Ran]:
        return iter(self.attempts)

    def __len__(self) -> int:
        return len(self.attempts)

    @property
    def completed(self) -> list[int]:
        """Completed by their handlers."""
        return self._ids("completed")

    @property
    def retried(self) -> list[int]:
        """Failed, and waiting for another attempt."""
        return self._ids("retry")

    @property
    def rescheduled(self) -> list[int]:
        """Postponed by their handlers."""
        return self._ids("reschedule")

    @property
    def released(self) -> list[int]:
        """Given back without counting the attempt: Busy, or a payload that the handler does not accept."""
        return self._ids("released")

    @property
    def failed(self) -> list[int]:
        """Dead letters."""
        return self._ids("failed")

    @property
    def cancelled(self) -> list[int]:
        """Cancelled, or expired before they started."""
        return self._ids("cancelled")

    @property
    def lost(self) -> list[int]:
        """Their lease expired, or another worker ended them while they ran."""
        return self._ids("lost")

    def _ids(self, outcome: Ended) -> list[int]:
        return [ran.id for ran in self.attempts if ran.outcome == outcome]


def ran_of(job: ClaimedJob, outcome: Outcome | None, answer: ClaimAnswer, kind: Kind[..., Any]) -> Ran:
    """Return the entry for an attempt, given the database's `answer` to its outcome."""
    failure = getattr(outcome, "failure", None)
    text = outcome.result if isinstance(outcome, Completed) else None
    return Ran(
        job.id,
        job.kind,
        job.attempt,
        _ended(outcome, answer),
        result=None if text is None else _result(kind, text),
        error_code=None if failure is None else failure.code,
        error=None if failure is None else failure.text,
        exception=getattr(outcome, "exception", None),
    )


def error_of(outcome: Outcome | None, ran: Ran) -> BaseException | None:
    """Return the error for a test to fail with: the handler's exception, or the reason why it did not run."""
    match outcome:
        case Failed() | Retried():
            return ran.exception or AssertionError(str(ran))
        case Released() if ran.error_code is not None:
            return AssertionError(str(ran))
    return None


def _result(kind: Kind[..., Any], text: str) -> object:
    try:
        return kind.read_result(text)
    except InvalidJob:
        # As in a worker, this is no failure of the job.
        return kind.codec.decode(text)


def _ended(outcome: Outcome | None, answer: ClaimAnswer) -> Ended:
    if answer is ClaimAnswer.busy:
        raise AssertionError("another connection has the row of this job locked, so that its ending cannot be written")
    if outcome is None or isinstance(ended := fate(outcome, answer), AbortReason):
        return "lost"
    return _WORDS[ended]
