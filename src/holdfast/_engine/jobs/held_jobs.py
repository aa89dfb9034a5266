"""The jobs that a worker holds in one database, from the claim until the outcome is written, and their results."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypeAlias, assert_never

from holdfast._engine.jobs.reap import REAPED
from holdfast._engine.report.transition import EndedBatch
from holdfast._logs.failure import Failure
from holdfast._model.errors import AbortReason
from holdfast._model.outcome import Cancelled, Completed, Failed, Released, Rescheduled, Retried
from holdfast._store.lease import ClaimAnswer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast._engine.attempt import Attempt
    from holdfast._engine.report.transition import Name, Transitions
    from holdfast._engine.session import Session
    from holdfast._model.outcome import Outcome
    from holdfast._store.lease import DeadWorker, Held, ReapedJob


Fate: TypeAlias = Literal[
    "job_completed", "job_retried", "job_rescheduled", "job_released", "job_failed", "job_cancelled"
]
"""The name of a written outcome in counts, in the log and for listeners."""


NO_IDS: Mapping[int, int] = MappingProxyType({})


class HeldJobs:
    """The held jobs. The heartbeat renews everything in `held`. Transitions are reported from here."""

    def __init__(self, session: Session, transitions: Transitions) -> None:
        self._session = session
        self._transitions = transitions
        self.held = session.held
        self.counts = session.counts

    def add(self, attempts: Sequence[Attempt]) -> None:
        self.counts["claimed"] += len(attempts)
        for attempt in attempts:
            self.held[attempt.held] = attempt
        self._transitions.claimed(attempts)

    def written(
        self, batch: Sequence[Attempt], answers: Mapping[Held, ClaimAnswer], next_ids: Mapping[int, int] = NO_IDS
    ) -> None:
        """Release jobs whose outcome the database has received. A job without an answer is completed.

        `next_ids`: the ids of the next jobs in their chains, where known, by the id of the completed job.
        All jobs are released before any listener is called, so no listener runs in the middle of the bookkeeping.
        """
        names: list[Name] = []
        outcomes: list[Outcome | None] = []
        report = self._session.report
        for attempt in batch:
            outcome = attempt.outcome
            self.held.pop(attempt.held, None)
            answer = answers.get(attempt.held, ClaimAnswer.completed) if answers else ClaimAnswer.completed
            if answer is ClaimAnswer.completed and type(outcome) is Completed:
                name: Fate | AbortReason = "job_completed"
            elif attempt.completed and answer is ClaimAnswer.already_completed:
                # The handler completed the job in its own transaction, which has committed.
                name = "job_completed"
            else:
                name = fate(outcome, answer)
            if isinstance(name, AbortReason):
                attempt.signal.abort(name)
                self.counts["job_lost"] += 1
                names.append(_loss(attempt))
                outcomes.append(None)
            else:
                self.counts[name] += 1
                names.append(name)
                outcomes.append(outcome)
                if type(outcome) is not Completed or report.errors:
                    self._report(attempt, outcome)
        self._transitions.ended(EndedBatch(names, batch, outcomes))
        followers = [
            attempt.follower._replace(id=next_ids.get(attempt.held.id))
            for name, attempt in zip(names, batch, strict=True)
            if attempt.follower is not None and name == "job_completed"
        ]
        self._transitions.enqueued(followers, "chain")

    def _report(self, attempt: Attempt, outcome: Outcome) -> None:
        claimed, report = attempt.claimed, self._session.report
        match outcome:
            case Completed():
                report.completed(claimed.queue, claimed.kind)
            case Retried() | Failed():
                report.failed(claimed.queue, claimed.kind, outcome.failure, retried=isinstance(outcome, Retried))
            case Released(failure=failure) if failure is not None:
                report.could_not_read(claimed.kind, claimed.payload_version, attempt.kind.version, failure)

    def refused(self, attempt: Attempt) -> None:
        """Release a job whose outcome the database does not accept. The reaper recovers it."""
        attempt.signal.abort(AbortReason.error)
        self.forget(attempt)

    def forget(self, attempt: Attempt) -> None:
        """Release a job whose claim is lost."""
        self.held.pop(attempt.held, None)
        self.counts["job_lost"] += 1
        self._transitions.ended(EndedBatch([_loss(attempt)], [attempt], [None]))

    def abort_overdue(self, why: str) -> int:
        """Abort running jobs, with `why` as the error of their attempts. Return how many."""
        started = [attempt for attempt in self.held.values() if attempt.has_started]
        running = [attempt for attempt in started if not attempt.over and not attempt.signal.aborted]
        for attempt in running:
            attempt.overran = why
            attempt.abort(AbortReason.timeout)
        return len(running)

    def reaped(self, jobs: Sequence[ReapedJob]) -> None:
        self.counts["job_reaped"] += len(jobs)
        self.counts["reaped_failed"] += sum(job.answer == "failed" for job in jobs)
        for job in jobs:
            if job.answer == "failed":
                failure = Failure(job.error_code, job.error)
                self._session.report.failed("", job.kind, failure, retried=False)
        self._session.reaped.update(REAPED[job.answer] for job in jobs if job.answer in REAPED)
        self._transitions.reaped(jobs)

    def died(self, lost: DeadWorker) -> None:
        """Report another worker that died."""
        self._transitions.died(lost)


def _loss(attempt: Attempt) -> Name:
    return "job_completed_elsewhere" if attempt.signal.reason is AbortReason.already_completed else "job_lost"


def fate(outcome: Outcome, answer: ClaimAnswer) -> Fate | AbortReason:
    """Return what an outcome became, or why it was lost. Every pair is covered.

    If the answer is a status that the outcome cannot lead to, it was lost: another party decided about the job.
    """
    match answer:
        case ClaimAnswer.taken_by_another_worker | ClaimAnswer.already_completed | ClaimAnswer.not_found:
            return AbortReason(answer)
        case ClaimAnswer.busy:
            # A busy outcome is written again, except when its claim is already lost.
            return AbortReason.taken_by_another_worker
        case ClaimAnswer.completed:
            return "job_completed" if isinstance(outcome, Completed) else AbortReason.already_completed
        case ClaimAnswer.pending:
            return _sent_back(outcome)
        case ClaimAnswer.failed:
            return "job_failed" if isinstance(outcome, Failed | Retried) else AbortReason.taken_by_another_worker
        case ClaimAnswer.cancelled:
            # A completion or a failure wins over a request to cancel. This answer means: the job was cancelled before.
            return AbortReason.cancelled if isinstance(outcome, Completed | Failed) else "job_cancelled"
        case never:
            assert_never(never)


def _sent_back(outcome: Outcome) -> Fate | AbortReason:
    match outcome:
        case Retried():
            return "job_retried"
        case Rescheduled():
            return "job_rescheduled"
        case Released():
            return "job_released"
        case Completed() | Failed() | Cancelled():
            return AbortReason.taken_by_another_worker
        case never:
            assert_never(never)
