"""The jobs that a worker holds in one database, from the claim until the outcome is written, and their results."""

from __future__ import annotations

import asyncio
from collections import Counter
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypeAlias, assert_never

from holdfast._engine.attempt import Attempt, ReadyJobs
from holdfast._engine.jobs.complete import Completer
from holdfast._engine.jobs.finish import Finisher
from holdfast._engine.jobs.lending import Lending
from holdfast._engine.report.transition import EndedBatch
from holdfast._model.errors import AbortReason
from holdfast._model.job import Cancelled, Completed, Failed, Released, Rescheduled, Retried
from holdfast._model.work import Lease
from holdfast._store.lease import ClaimAnswer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from holdfast._engine.application import Application
    from holdfast._engine.jobs.dispatch import Dispatcher
    from holdfast._engine.link import Links
    from holdfast._engine.report.transition import Name, Transitions
    from holdfast._model.job import Blocker, Outcome
    from holdfast._store.claim import ClaimedJob
    from holdfast._store.finish import Answers
    from holdfast._store.lease import Held, ReapedJob


Fate: TypeAlias = Literal[
    "job_completed", "job_retried", "job_rescheduled", "job_released", "job_failed", "job_cancelled"
]
"""The name of a written outcome in counts, in the log and for listeners."""


NO_IDS: Mapping[int, int] = MappingProxyType({})


class Attempts:
    """Makes attempts of claimed jobs, gives them to the dispatcher, and their outcomes to the finisher."""

    def __init__(  # noqa: PLR0913 - the worker, and what it says of its database
        self,
        application: Application,
        dispatcher: Dispatcher,
        held_jobs: HeldJobs,
        links: Links,
        worker: int,
        *,
        schema: str,
        several: Callable[[], bool],
    ) -> None:
        """`several()`: whether the worker serves other databases too."""
        self._kinds = application.kinds
        self._dispatcher = dispatcher
        self._held_jobs = held_jobs
        self.on_written: Callable[[], None] = lambda: None
        """Called when outcomes were written, so that more jobs may be wanted."""
        lease = Lease(application.settings.lease.total_seconds())
        self.leases = {name: kind.work.lease or lease for name, kind in self._kinds.items()}
        """By kind."""
        self.queue_leases: Mapping[str, Lease] = {}
        """The leases of queues that have one of their own. They replace those of kinds."""
        self.paused: frozenset[str] = frozenset()
        """The queues that the control table pauses: none of their jobs start."""
        self._stopping = False
        self.ready = ReadyJobs(self.ended, self._give_back)
        self.finisher = Finisher(
            links.finish, worker, self._written, held_jobs.refused, tracebacks=application.settings.tracebacks
        )
        self.completer = Completer(
            links.finish, worker, application.codec, schema, database=links.name, several=several
        )
        self.lending = Lending(
            (links.claim, links.finish),
            dispatcher,
            held_jobs.held,
            database=links.name,
            give_back=self.give_back_waiting,
        )

    def hold(self, jobs: Sequence[ClaimedJob], blockers: Mapping[int, Sequence[Blocker]]) -> None:
        """Hold claimed jobs, and start those that have a slot. `blockers`: the ended chains they waited for, by id."""
        self._start(jobs, blockers, give_back=self._stopping or self._dispatcher.slots.closed)

    def hold_apart(self, jobs: Sequence[ClaimedJob], blockers: Mapping[int, Sequence[Blocker]]) -> None:
        """Hold and start claimed jobs, though the slots are closed for all others."""
        self._start(jobs, blockers, give_back=self._stopping)

    def _start(self, jobs: Sequence[ClaimedJob], blockers: Mapping[int, Sequence[Blocker]], *, give_back: bool) -> None:
        attempts = []
        for job in sorted(jobs, key=_URGENCY):
            waited_for = tuple(blockers.get(job.id, ()))
            attempts.append(Attempt(job, self._kinds[job.kind], self._lease(job), self.completer, waited_for))
        self._held_jobs.add(attempts)
        if give_back or not self.paused.isdisjoint(job.queue for job in jobs):
            # The worker was stopped or the queue paused while the claim was under way.
            left = [attempt for attempt in attempts if give_back or attempt.claimed.queue in self.paused]
            self._give_back(left)
            attempts = [attempt for attempt in attempts if attempt not in left]
        self._dispatcher.hold(self.ready, attempts)

    def _lease(self, job: ClaimedJob) -> Lease:
        return self.queue_leases.get(job.queue) or self.leases[job.kind]

    def use_queue_leases(self, leases: Mapping[str, Lease]) -> None:
        """Use these leases of queues from now on, also for jobs that are held."""
        self.queue_leases = leases
        for attempt in self._held_jobs.held.values():
            attempt.lease = self._lease(attempt.claimed)

    def stop(self) -> None:
        """Start nothing more, and give back jobs that have not started. Their attempts do not count."""
        self._stopping = True
        self.give_back_waiting()

    def give_back_waiting(self) -> None:
        """Give back jobs that have not started. Their attempts do not count."""
        self._dispatcher.give_back(self.ready)

    def _give_back(self, attempts: Iterable[Attempt]) -> None:
        for attempt in attempts:
            attempt.signal.abort(AbortReason.shutdown)
            self.ended(attempt, Released())

    def give_up_running(self) -> None:
        """Write the outcomes of aborted attempts whose handlers still run: these handlers are not waited for."""
        for attempt in list(self._held_jobs.held.values()):
            if attempt.has_started and not attempt.over and attempt.signal.aborted:
                attempt.over = True
                self.ended(attempt, self._dispatcher.handlers.aborted(attempt))

    def ended(self, attempt: Attempt, outcome: Outcome | None) -> None:
        """Hand the outcome of an attempt to the finisher, unless the claim is lost."""
        # From here on it waits for the database or for another transaction; its lease is renewed meanwhile.
        attempt.deadline = None
        self.lending.ended(attempt)
        if attempt.busy is not None:
            seconds = attempt.busy.retry_after.total_seconds()
            self._dispatcher.slots.rest(attempt.claimed.queue, seconds)
            self._dispatcher.give_back_shut()
            asyncio.get_running_loop().call_later(seconds, self._dispatcher.dispatch)
        if outcome is None:
            self._held_jobs.forget(attempt)
        else:
            attempt.outcome = outcome
            self.finisher.add(attempt)

    def _written(self, batch: Sequence[Attempt], answers: Answers) -> None:
        try:
            self._held_jobs.written(batch, answers, answers.next_ids)
        finally:
            self.on_written()


_URGENCY = attrgetter("priority", "available_at", "id")


class HeldJobs:
    """The held jobs. The heartbeat renews everything in `held`. Transitions are reported from here."""

    def __init__(self, transitions: Transitions) -> None:
        self._transitions = transitions
        self.held: dict[Held, Attempt] = {}
        self.counts: Counter[str] = Counter()

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
        self._transitions.ended(EndedBatch(names, batch, outcomes))
        followers = [
            attempt.follower._replace(id=next_ids.get(attempt.held.id))
            for name, attempt in zip(names, batch, strict=True)
            if attempt.follower is not None and name == "job_completed"
        ]
        self._transitions.enqueued(followers, "chain")

    def refused(self, attempt: Attempt) -> None:
        """Release a job whose outcome the database does not accept. The reaper recovers it."""
        attempt.signal.abort(AbortReason.error)
        self.forget(attempt)

    def forget(self, attempt: Attempt) -> None:
        """Release a job whose claim is lost."""
        self.held.pop(attempt.held, None)
        self.counts["job_lost"] += 1
        self._transitions.ended(EndedBatch([_loss(attempt)], [attempt], [None]))

    def abort_all(self, reason: AbortReason) -> None:
        for attempt in list(self.held.values()):
            attempt.abort(reason)

    def outlasted(self, why: str) -> int:
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
        self._transitions.reaped(jobs)


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
