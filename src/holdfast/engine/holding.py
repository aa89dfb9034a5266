"""What a worker holds of one database, from the claim until the ending is written; and what became of it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from holdfast.abort import AbortReason
from holdfast.engine.journal import Journal
from holdfast.outcome import Cancelled, Completed, Failed, Released, Rescheduled, Retried
from holdfast.store.lease import Held

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.engine.attempt import Attempt
    from holdfast.engine.finish import Ended
    from holdfast.engine.hook import Hooks
    from holdfast.engine.transition import Name, Transitions
    from holdfast.outcome import Outcome
    from holdfast.store.finish import Answer
    from holdfast.store.reap import ReapedJob


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
        """Let go of what the database has heard of; what has no answer is completed."""
        names: list[Name] = []
        attempts: list[Attempt] = []
        for attempt, outcome in batch:
            answer = answers.get(attempt.held, "completed") if answers else "completed"
            itself = attempt.completed and answer is AbortReason.already_completed
            if isinstance(answer, AbortReason) and not itself:
                attempt.signal.abort(answer)
                self.forget(attempt)
                continue
            self.held.pop(attempt.held, None)
            name: Name = "job_completed" if itself else _NAMES[type(outcome), answer]
            names.append(name)
            attempts.append(attempt)
            if name in _BAD:
                self._failed(attempt, outcome, will_retry=name == "job_retried")
            if self._transitions:
                self._transitions.tell(name, attempt.claimed.id, attempt.claimed.kind, outcome=outcome)
        self.counts.update(names)
        self.journal.ended(names, attempts)
        self._transitions.ended(names, attempts)

    def _failed(self, attempt: Attempt, outcome: Outcome, *, will_retry: bool) -> None:
        self.journal.failed(attempt.claimed, outcome, will_retry=will_retry)
        if self._hooks:
            self._hooks.failed(attempt.claimed, outcome, will_retry=will_retry)

    def forget(self, attempt: Attempt) -> None:
        """Let go of what is no longer ours."""
        self.held.pop(attempt.held, None)
        self.counts["job_lost"] += 1
        self.journal.lost(attempt)
        self._transitions.tell("job_lost", attempt.claimed.id, attempt.claimed.kind, reason=attempt.signal.reason)
        self._transitions.ended(["job_lost"], [attempt])

    def told(self, text: str) -> None:
        """Hear an ownership-lost notification: `lost ID TOKEN REASON`."""
        _, job_id, token, reason = text.split(" ", 3)
        attempt = self.held.get(Held(int(job_id), int(token)))
        if attempt is not None:
            attempt.abort(AbortReason(reason))

    def abort_all(self, reason: AbortReason) -> None:
        for attempt in list(self.held.values()):
            attempt.abort(reason)

    def reaped(self, jobs: Sequence[ReapedJob]) -> None:
        self.counts["job_reaped"] += len(jobs)
        self._transitions.reaped(jobs)
        self._hooks.reaped(jobs)


_BAD = frozenset({"job_retried", "job_failed"})
_NAMES: dict[tuple[type[Outcome], str], Name] = {
    (Completed, "completed"): "job_completed",
    (Retried, "pending"): "job_retried",
    (Rescheduled, "pending"): "job_rescheduled",
    (Released, "pending"): "job_released",
    (Failed, "failed"): "job_failed",
    (Retried, "failed"): "job_failed",
    (Cancelled, "cancelled"): "job_cancelled",
    (Retried, "cancelled"): "job_cancelled",
    (Rescheduled, "cancelled"): "job_cancelled",
    (Released, "cancelled"): "job_cancelled",
}
