"""What a drain did: a line for every attempt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from holdfast.abort import AbortReason
from holdfast.engine.holding import Fate, fate
from holdfast.outcome import Completed, Failed, Released, Retried
from holdfast.store.answer import Answer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.codec import JsonCodec
    from holdfast.outcome import Outcome
    from holdfast.store.claim import ClaimedJob

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
    """One attempt of a job, and how it ended."""

    id: int
    kind: str
    attempt: int
    outcome: Ended
    result: Any = None
    """What the handler returned, as the database has it: JSON."""
    error_code: str | None = None
    error: str | None = None
    """Normalized and bounded, as it stands in the database."""
    exception: BaseException | None = None
    """What the handler raised."""

    def __str__(self) -> str:
        ended = self.outcome if self.error_code is None else f"{self.outcome}: {self.error_code}: {self.error}"
        return f"{self.kind} (job {self.id}, attempt {self.attempt}) {ended}"


@dataclass(frozen=True, slots=True)
class Drained:
    """The attempts of a drain in their order. The lists are of job ids."""

    attempts: tuple[Ran, ...]

    def __iter__(self) -> Iterator[Ran]:
        return iter(self.attempts)

    def __len__(self) -> int:
        return len(self.attempts)

    @property
    def completed(self) -> list[int]:
        return self._ids("completed")

    @property
    def retried(self) -> list[int]:
        """Failed, and waiting for another attempt."""
        return self._ids("retry")

    @property
    def rescheduled(self) -> list[int]:
        return self._ids("reschedule")

    @property
    def released(self) -> list[int]:
        """Given back uncounted: Busy, or a payload that the handler does not take."""
        return self._ids("released")

    @property
    def failed(self) -> list[int]:
        """Dead letters."""
        return self._ids("failed")

    @property
    def cancelled(self) -> list[int]:
        """Called off, or expired before they started."""
        return self._ids("cancelled")

    @property
    def lost(self) -> list[int]:
        """Their lease was taken away, or somebody else ended them while they ran."""
        return self._ids("lost")

    def _ids(self, outcome: Ended) -> list[int]:
        return [ran.id for ran in self.attempts if ran.outcome == outcome]


def ran_of(job: ClaimedJob, outcome: Outcome | None, answer: Answer, codec: JsonCodec) -> Ran:
    """Return the line for an attempt whose ending the database answered with `answer`."""
    failure = getattr(outcome, "failure", None)
    text = outcome.result if isinstance(outcome, Completed) else None
    return Ran(
        job.id,
        job.kind,
        job.attempt,
        _ended(outcome, answer),
        result=None if text is None else codec.decode(text),
        error_code=None if failure is None else failure.code,
        error=None if failure is None else failure.text,
        exception=getattr(outcome, "exception", None),
    )


def error_of(outcome: Outcome | None, ran: Ran) -> BaseException | None:
    """Return what a test should fail with: what the handler raised, or why it never came to that."""
    match outcome:
        case Failed() | Retried():
            return ran.exception or AssertionError(str(ran))
        case Released() if ran.error_code is not None:
            return AssertionError(str(ran))
    return None


def _ended(outcome: Outcome | None, answer: Answer) -> Ended:
    if answer is Answer.busy:
        raise AssertionError("another connection has the row of this job locked, so that its ending cannot be written")
    if outcome is None or isinstance(ended := fate(outcome, answer), AbortReason):
        return "lost"
    return _WORDS[ended]
