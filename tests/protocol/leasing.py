"""The expected effects of claiming, renewing, finishing and reaping."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple, Protocol

from holdfast._model.outcome import Cancelled, Completed, Failed, Outcome, Released, Rescheduled, Retried
from holdfast._model.retry import Retry
from holdfast._model.work import Lease
from holdfast._store.claim import WHOLE, Lane, Shards
from tests.protocol import chaining
from tests.protocol.model import NO_TIME, AttemptRow, Delta, ModelJob, Span, State

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast._store.claim import Claim, ClaimedJob
    from holdfast._store.lease import ReapedJob
    from tests.protocol.observation import Observation
    from tests.protocol.producing import Spec

# So long that none ends by itself while a test runs.
LEASE = Lease(seconds=3600)
# A wide look may be narrowed to this when another worker does it for all.
SURE_REACH = 5.0
AGAIN_AFTER = timedelta(seconds=1)
RETRY = Retry.table([timedelta(0), timedelta(minutes=1)], jitter=timedelta(0))


@dataclass(frozen=True, slots=True)
class Request:
    """A claim to make."""

    slots: Mapping[str, int]
    kinds: tuple[str, ...]
    shards: Shards = WHOLE
    reach: float | None = None
    """Below the floors; None: claim without floors."""
    floors: Mapping[Lane, tuple[datetime, int]] = field(default_factory=dict)
    suspects: int = 0
    """So many at most of those that were lost with their worker, and no others; 0: only others."""

    def covers(self, job: ModelJob) -> bool:
        assert job.shard is not None
        fits = job.suspect is not None and (self.suspects == 1 or job.suspect == 0)
        return (
            job.status == "pending"
            and (fits if self.suspects else job.suspect is None)
            and job.queue in self.slots
            and job.kind in self.kinds
            and self.shards.first <= job.shard <= self.shards.last
        )

    def reaches(self, job: ModelJob, reach: float) -> bool:
        if (floor := self.floors.get(Lane(job.queue, job.kind, job.priority))) is None:
            return True
        since, last = floor
        return (_at(job), job.id) > ((since - timedelta(seconds=reach), 0) if reach else (since, last))


def claimed(
    view: State, request: Request, claim: Claim, seen: Observation, *, worker: int, low: datetime, exact: bool
) -> Delta:
    """`exact`: no other session has a lock, and time did not run out, so that no due job may be left."""
    delta = Delta()
    if all(job.order_key is None for job in view.jobs.values()):
        assert len({job.token for job in claim.jobs}) <= 1, "one token per call, and a new one after keys were locked"
    for taken in claim.jobs:
        job = view.jobs[taken.id]
        assert request.covers(job), f"not asked for: {job}"
        assert _at(job) <= seen.clock, f"not due: {job}"
        assert request.reaches(job, request.reach or 0)
        assert _is_head(view, job), f"out of order: {job}"
        assert (taken.attempt, taken.cancelled) == (job.attempt + 1, job.cancel)
        assert (taken.chain_id, taken.has_blockers) == (job.chain, job.blockers_left is not None)
        assert taken.blocker_failed == (job.blocker_failed and not job.run_anyway)
        delta.jobs[job.id] = job.becomes(
            "processing",
            attempt=job.attempt + 1,
            token=taken.token,
            holder=worker,
            locked_until=Span(low, LEASE.duration),
            suspect=job.suspect or 1 if request.suspects and len(claim.jobs) == 1 else job.suspect,
        )
    assert len(delta.jobs) == len(claim.jobs), "taken twice"
    for queue, slots in request.slots.items():
        assert sum(job.queue == queue for job in claim.jobs) <= slots
    if request.suspects:
        assert len(claim.jobs) <= request.suspects
        for job in view.live if exact and not claim.jobs else ():
            assert not request.covers(job) or _at(job) > low or not _is_head(view, job), f"left lying: {job}"
    elif exact:
        _check_nothing_left(view, request, claim.jobs, low)
    return delta.then(_parked(view, request, seen, low, delta))


def _check_nothing_left(view: State, request: Request, taken: Sequence[ClaimedJob], low: datetime) -> None:
    ids = {job.id for job in taken}
    for job in view.live:
        if job.id in ids or not request.covers(job) or _at(job) > low or not _is_head(view, job):
            continue
        if not request.reaches(job, min(request.reach or 0, SURE_REACH)):
            continue
        others = [view.jobs[other.id] for other in taken if other.queue == job.queue]
        assert len(others) == request.slots[job.queue], f"left lying: {job}"
        assert max(map(_turn, others), default=_turn(job)) <= _turn(job), f"passed over: {job}"


def _parked(view: State, request: Request, seen: Observation, low: datetime, taken: Delta) -> Delta:
    delta = Delta()
    for job in view.live:
        row = seen.live.get(job.id)
        if job.order_key is None or job.status != "pending" or job.id in taken.jobs or row is None:
            continue
        if row.status == "blocked":
            # Perhaps one that nobody asked for: what follows in the key is parked along.
            assert view.before(job) or job.order_key in view.stops, f"parked behind nobody: {job}"
            delta.jobs[job.id] = job.becomes("blocked")
        elif row.available_at != job.available_at:
            assert request.covers(job)
            assert not view.before(job)
            assert view.runs(job.order_key), f"sent away for nothing: {job}"
            delta.jobs[job.id] = job.becomes("pending", available_at=Span(low, AGAIN_AFTER))
    return delta


def _is_head(view: State, job: ModelJob) -> bool:
    if job.order_key is None:
        return True
    return not view.before(job) and not view.runs(job.order_key) and job.order_key not in view.stops


def _at(job: ModelJob) -> datetime:
    assert isinstance(job.available_at, datetime)
    return job.available_at


def _turn(job: ModelJob) -> tuple[int, datetime, int]:
    return job.priority, _at(job), job.id


class Seen(Protocol):
    @property
    def live(self) -> dict[int, ModelJob]: ...


@dataclass(frozen=True, slots=True)
class _Fake:
    live: dict[int, ModelJob]


@dataclass(frozen=True, slots=True)
class Write:
    """The end of an attempt, written by a worker that may or may not hold the job."""

    id: int
    token: int
    worker: int
    outcome: str
    delay: timedelta = NO_TIME
    following: Spec | None = None
    in_trial: bool = False
    """Lost among other suspects."""


def write_of(job: ClaimedJob, worker: int, outcome: Outcome, following: Spec | None = None) -> Write:
    names = {
        Completed: "completed",
        Retried: "retry",
        Rescheduled: "reschedule",
        Released: "released",
        Failed: "failed",
        Cancelled: "cancelled",
    }
    delay = getattr(outcome, "after", getattr(outcome, "delay", NO_TIME))
    return Write(job.id, job.token, worker, names[type(outcome)], delay, following)


def settled(
    view: State, writes: Sequence[Write], seen: Seen, low: datetime, busy: set[int]
) -> tuple[Delta, dict[Write, str]]:
    """Return what changes and what each write is answered. The rows of `busy` are locked by another session."""
    delta = Delta()
    answers: dict[Write, str] = {}
    for write in writes:
        now = view.plus(delta)
        job = now.jobs.get(write.id)
        if job is None or not job.held_by(write.worker, write.token):
            continue
        if write.id in busy:
            answers[write] = "busy"
            delta = delta.then(_marked(now, write, seen))
            continue
        answers[write] = _verdict(job, write.outcome)
        delta = delta.then(_ended(now, job, write, seen, low))
    after = view.plus(delta)
    return delta, {write: answers.get(write) or after.lost_reason(write.id) for write in writes}


class Refusal(NamedTuple):
    """Whether a batch may, and whether it must be refused for what would follow in its chains."""

    possible: bool
    sure: bool


def refusal(view: State, phases: Sequence[Sequence[Write]], low: datetime) -> Refusal:
    writes = [write for writes in phases for write in writes]
    going_on = [
        (job, write.following)
        for write in writes
        if write.following is not None
        and (job := view.jobs.get(write.id)) is not None
        and job.held_by(write.worker, write.token)
    ]
    if any(view.end_of(chain) == "not_found" for _, spec in going_on for chain in spec.after):
        return Refusal(possible=True, sure=True)
    keys = [(spec.key, job.id) for job, spec in going_on if spec.key is not None]
    holders = {key: holder.id for key, _ in keys if (holder := view.holder_of(*key)) is not None}
    taken = {key for key, job_id in keys if holders.get(key, job_id) != job_id}
    leaving = {write.id for write in writes}
    sure = len({key for key, _ in keys}) < len(keys) or any(holders[key] not in leaving for key in taken)
    first = max(view.jobs, default=0) + 1
    fakes = {
        new: spec.row(new, low).becomes("pending", chain_id=job.chain)
        for new, (job, spec) in enumerate(going_on, first)
    }
    after = view
    for phase in phases:
        after = after.plus(settled(after, phase, _Fake(fakes), low, set())[0])
    joined = [after.jobs[job.id] for job in fakes.values() if job.order_key or after.blockers_of(job.id)]
    circular = chaining.circular(after, joined)
    return Refusal(possible=bool(taken) or sure or circular, sure=sure or circular)


def _verdict(job: ModelJob, outcome: str) -> str:
    if outcome in {"completed", "failed", "cancelled"}:
        return outcome
    if job.cancel:
        return "cancelled"
    used_up = job.max_attempts is not None and job.attempt >= job.max_attempts
    return "failed" if outcome in {"retry", "lost"} and used_up else "pending"


def _marked(view: State, write: Write, seen: Seen) -> Delta:
    """Of the chains that a job would have come after, some may have been marked before it proved to be busy."""
    delta = Delta()
    for chain in write.following.after if write.following else ():
        marked = chaining.awaited(view.plus(delta), chain).jobs.values()
        delta.jobs.update({job.id: job for job in marked if seen.live[job.id].awaited})
    return delta


def _ended(view: State, job: ModelJob, write: Write, seen: Seen, low: datetime) -> Delta:
    became = _verdict(job, write.outcome)
    if became == "pending":
        reported = AttemptRow(job.id, job.token, job.holder, write.outcome, job.attempt)
        given_back = write.outcome in {"released", "reschedule"}
        back = job.freed(
            available_at=Span(low, write.delay),
            attempt=job.attempt - given_back,
            suspect=_suspicion(job, write),
            ran_before=True,
        )
        return Delta({job.id: back}, attempts=[reported])
    spec = write.following if became == "completed" else None
    new = None if spec is None else spec.row(_follower(view, job, seen), low)
    crashed = job.suspect if became == "failed" and write.outcome == "lost" else None
    delta = chaining.left(view, job, became, low, next_id=None if new is None else new.id, suspect=crashed)
    if job.attempt > 1 or job.ran_before or became != "completed":
        outcome = "lost" if write.outcome == "lost" else became
        delta.attempts.append(AttemptRow(job.id, job.token, job.holder, outcome, job.attempt))
    if became == "failed" and job.order_block and job.order_key is not None:
        delta.stops[job.order_key] = job.id
    else:
        delta = delta.then(chaining.promoted(view.plus(delta), job, low, new))
    if spec is not None and new is not None:
        delta = delta.then(chaining.following(view.plus(delta), job, new, spec.after, low))
    return delta


def _suspicion(job: ModelJob, write: Write) -> int | None:
    if write.outcome == "lost":
        return 0 if job.suspect is None else job.suspect + 1
    if write.in_trial:
        return 1
    return job.suspect if write.outcome == "released" and write.delay == NO_TIME else None


def _follower(view: State, job: ModelJob, seen: Seen) -> int:
    found = [row.id for row in seen.live.values() if row.chain == job.chain and row.id not in view.jobs]
    assert len(found) == 1, f"{len(found)} jobs follow {job}"
    return found[0]


def renewed(
    view: State, worker: int, claims: Sequence[tuple[int, int]], low: datetime, busy: set[int]
) -> tuple[Delta, dict[tuple[int, int], str]]:
    """Return what changes, and the answers of those that are not simply renewed."""
    delta = Delta()
    answers: dict[tuple[int, int], str] = {}
    for claim in claims:
        job = view.jobs.get(claim[0])
        if job is None or not job.held_by(worker, claim[1]):
            answers[claim] = view.lost_reason(claim[0])
        elif job.id in busy:
            answers[claim] = "busy"
        else:
            delta.jobs[job.id] = job.becomes("processing", locked_until=Span(low, LEASE.duration))
            if job.cancel:
                answers[claim] = "cancelled"
    return delta, answers


def expired(view: State, kinds: Sequence[str], low: datetime) -> list[ModelJob]:
    """Return the jobs whose lease has ended, oldest first."""
    found = [job for job in view.live if job.status == "processing" and job.kind in kinds and _until(job) < low]
    return sorted(found, key=_until)


def reaped(view: State, jobs: Sequence[ReapedJob], seen: Observation, low: datetime) -> tuple[Delta, dict[Write, str]]:
    newest: dict[int | None, int] = {}
    for job in view.live:
        if job.status == "processing" and job.token is not None:
            newest[job.holder] = max(newest.get(job.holder, 0), job.token)
    trials = set()
    for job in (view.jobs[lost.id] for lost in jobs):
        assert job.token is not None
        if job.suspect == 0 or (job.suspect is not None and job.token < newest[job.holder]):
            trials.add(job.id)
    assert trials == {job.id for job in jobs if job.error_code == "lost_in_trial"}
    writes = [
        Write(
            job.id,
            job.token,
            job.worker,
            "released" if job.id in trials else "lost",
            RETRY.delay(job.attempt),
            in_trial=job.id in trials,
        )
        for job in jobs
    ]
    return settled(view, writes, seen, low, {job.id for job in jobs if job.answer == "busy"})


def _until(job: ModelJob) -> datetime:
    assert isinstance(job.locked_until, datetime)
    return job.locked_until
