"""What a worker holds of one database, from the claim until the ending is written; and what became of it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal, TypeAlias, assert_never

from holdfast.abort import AbortReason
from holdfast.engine.journal import Journal
from holdfast.outcome import Cancelled, Completed, Failed, Released, Rescheduled, Retried
from holdfast.store.answer import Answer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.engine.attempt import Attempt
    from holdfast.engine.finish import Ended
    from holdfast.engine.hook import Hooks
    from holdfast.engine.transition import Name, Transitions
    from holdfast.outcome import Outcome
    from holdfast.store.lease import Held
    from holdfast.store.reap import ReapedJob

Fate: TypeAlias = Literal[
    "job_completed", "job_retried", "job_rescheduled", "job_released", "job_failed", "job_cancelled"
]
"""What a written ending is called in counts, in the log and for listeners."""


class Holding:
    """Everything in `held` is renewed by the heartbeat. The log, listeners and hooks are told from here."""

    def __init__(self, transitions: Transitions, hooks: Hooks) -> None:
        self._transitions = transitions
        self._hooks = hooks
        self.journal = Journal(transitions.worker)
        self.held: dict[Held, Attempt] = {}
        self.counts: Counter[str] = Counter()

    def add(self, attempts: Sequence[Attempt]) -> None:
        self.counts["claimed"] += len(attempts)
        for attempt in attempts:
            self.held[attempt.held] = attempt
        if self._transitions:
            for claimed in (attempt.claimed for attempt in attempts):
                self._transitions.tell("job_claimed", claimed.id, claimed.kind, attempt=claimed.attempt)

    def written(self, batch: Sequence[Ended], answers: Mapping[Held, Answer]) -> None:
        """Let go of what the database has heard of; what has no answer is completed.

        All of it is let go of before anybody is told: no listener comes between an ending and its bookkeeping.
        """
        names: list[Fate] = []
        attempts: list[Attempt] = []
        lost: list[Attempt] = []
        told: list[tuple[Fate, Attempt, Outcome]] = []
        one_by_one = bool(self._transitions)
        for attempt, outcome in batch:
            self.held.pop(attempt.held, None)
            answer = answers.get(attempt.held, Answer.completed) if answers else Answer.completed
            if answer is Answer.completed and type(outcome) is Completed:
                name: Fate | AbortReason = "job_completed"
            elif attempt.completed and answer is Answer.already_completed:
                # Its handler completed it in a transaction of its own, and that has committed.
                name = "job_completed"
            else:
                name = fate(outcome, answer)
            if isinstance(name, AbortReason):
                attempt.signal.abort(name)
                lost.append(attempt)
                continue
            names.append(name)
            attempts.append(attempt)
            if one_by_one or name in _TOLD:
                told.append((name, attempt, outcome))
        self.counts.update(names)
        for attempt in lost:
            self.forget(attempt)
        for name, attempt, outcome in told:
            if name in _BAD:
                self._failed(attempt, outcome, will_retry=name == "job_retried")
            elif name == "job_released":
                self.journal.released(attempt.claimed, outcome)
            self._transitions.tell(name, attempt.claimed.id, attempt.claimed.kind, outcome=outcome)
        self.journal.ended(names, attempts)
        self._transitions.ended(names, attempts)

    def refused(self, attempt: Attempt) -> None:
        """Let go of an ending that the database does not accept; the reaper takes the job."""
        attempt.signal.abort(AbortReason.error)
        self.forget(attempt)

    def _failed(self, attempt: Attempt, outcome: Outcome, *, will_retry: bool) -> None:
        self.journal.failed(attempt.claimed, outcome, will_retry=will_retry)
        if self._hooks:
            self._hooks.failed(attempt.claimed, outcome, will_retry=will_retry)

    def forget(self, attempt: Attempt) -> None:
        """Let go of what is no longer ours."""
        self.held.pop(attempt.held, None)
        self.counts["job_lost"] += 1
        self.journal.lost(attempt)
        reason = attempt.signal.reason
        name: Name = "job_completed_elsewhere" if reason is AbortReason.already_completed else "job_lost"
        self._transitions.tell(name, attempt.claimed.id, attempt.claimed.kind, reason=reason)
        self._transitions.ended(["job_lost"], [attempt])

    def abort_all(self, reason: AbortReason) -> None:
        for attempt in list(self.held.values()):
            attempt.abort(reason)

    def outlasted(self, why: str) -> int:
        """Abort what runs, with this as the error of its attempts; return how many there were."""
        running = [each for each in self.held.values() if each.started and not each.over and not each.signal.aborted]
        for attempt in running:
            attempt.overran = why
            attempt.abort(AbortReason.timeout)
        return len(running)

    def reaped(self, jobs: Sequence[ReapedJob]) -> None:
        self.counts["job_reaped"] += len(jobs)
        self.counts["reaped_failed"] += sum(job.answer == "failed" for job in jobs)
        self._transitions.reaped(jobs)
        self._hooks.reaped(jobs)


_BAD = frozenset({"job_retried", "job_failed"})
_TOLD = _BAD | {"job_released"}


def fate(outcome: Outcome, answer: Answer) -> Fate | AbortReason:
    """Return what an ending became, or why it was lost. Every pair has a meaning.

    An ending that is answered with a status it cannot lead to was lost: somebody else decided about the job.
    """
    match answer:
        case Answer.taken_by_another_worker | Answer.already_completed | Answer.not_found:
            return AbortReason(answer)
        case Answer.busy:
            # Only a claim that is known to be lost is not asked for again.
            return AbortReason.taken_by_another_worker
        case Answer.completed:
            return "job_completed" if isinstance(outcome, Completed) else AbortReason.already_completed
        case Answer.pending:
            return _sent_back(outcome)
        case Answer.failed:
            return "job_failed" if isinstance(outcome, Failed | Retried) else AbortReason.taken_by_another_worker
        case Answer.cancelled:
            # A completion or a failure stands even when somebody asked to cancel: then it was cancelled before.
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
