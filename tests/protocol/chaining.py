"""The expected effects of naming blockers, and of continuing, ending and deleting a chain."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.protocol.model import BlockerRow, Delta, ModelJob, Span, State, place

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from tests.protocol.observation import Observation
    from tests.protocol.producing import Spec


def named(view: State, job: ModelJob, chains: Sequence[int], low: datetime) -> Delta:
    """Let a job, new or replaced, come after these chains: what it came after before is forgotten."""
    before = dict.fromkeys(view.blockers_of(job.id))
    bare = job.becomes("pending", blockers_left=None, blocker_failed=False)
    if not chains:
        return Delta({job.id: bare}, blockers={**before})
    delta = Delta({job.id: bare.becomes("blocked", blockers_left=len(chains))}, blockers={**before})
    for ordinal, chain in enumerate(chains, start=1):
        delta.blockers[job.id, ordinal] = BlockerRow(chain)
    for chain in dict.fromkeys(chains):
        end = view.plus(delta).end_of(chain)
        if end is None:
            delta = delta.then(awaited(view.plus(delta), chain))
        else:
            delta = delta.then(reported(view.plus(delta), chain, end, low))
    return delta


def awaited(view: State, chain: int) -> Delta:
    """Mark the live jobs of a chain."""
    unmarked = [job for job in view.chain_of(chain) if job.live and not job.awaited]
    return Delta({job.id: job.becomes(job.status, awaited=True) for job in unmarked})


def reported(view: State, chain: int, end: str, low: datetime) -> Delta:
    """Let everybody who waits for a chain know how it ended."""
    delta = Delta()
    rows = {place: row for place, row in view.blockers.items() if row == BlockerRow(chain)}
    for waiter in {job_id for job_id, _ in rows}:
        mine = [place for place in rows if place[0] == waiter]
        delta.blockers.update(dict.fromkeys(mine, BlockerRow(chain, end)))
        job = view.jobs[waiter]
        if not job.waits:
            continue
        assert job.blockers_left is not None
        failed = end != "completed"
        left = 0 if failed and not job.run_anyway else job.blockers_left - len(mine)
        job = job.becomes("blocked", blockers_left=left, blocker_failed=job.blocker_failed or failed)
        delta.jobs[waiter] = job if left else _let_go(job, low)
    return delta


def _let_go(job: ModelJob, low: datetime) -> ModelJob:
    if isinstance(job.available_at, Span):
        return job.becomes("pending")
    return job.promoted(low)


def circular(view: State, jobs: Iterable[ModelJob]) -> bool:
    """Whether one of these jobs would wait for itself."""
    return any(job.id in _ahead(view, job) for job in jobs)


def _ahead(view: State, job: ModelJob) -> set[int]:
    found: set[int] = set()
    looked = [job]
    while looked:
        for other in _just_ahead(view, looked.pop()):
            if other.id not in found:
                found.add(other.id)
                looked.append(other)
    return found


def _just_ahead(view: State, job: ModelJob) -> list[ModelJob]:
    chains = {row.chain_id for row in view.blockers_of(job.id).values() if job.waits and row.status is None}
    ahead = [other for other in view.live if other.chain in chains]
    if job.order_key is not None:
        ahead += [other for other in view.before(job) if other.waits]
    return ahead


def left(view: State, job: ModelJob, became: str, low: datetime, **changes: object) -> Delta:
    """Let a live job end: it has no blockers any more, and if its chain ends with it, its waiters are released."""
    rows = view.blockers_of(job.id)
    chains = tuple(row.chain_id for _, row in sorted(rows.items())) if became == "failed" and rows else None
    ended = job.becomes(became, blockers=chains, **changes)
    delta = Delta({job.id: ended}, blockers=dict.fromkeys(rows))
    if job.awaited and ended.next_id is None:
        delta = delta.then(reported(view.plus(delta), job.chain, became, low))
    return delta


def promoted(view: State, job: ModelJob, low: datetime, follower: ModelJob | None = None) -> Delta:
    """Let the one behind a job that leaves its order key go on; a follower in the same key has the job's place."""
    if job.order_key is None:
        return Delta()
    successor = view.after(job)
    if successor is None or successor.status != "blocked" or successor.waits:
        return Delta()
    if follower is not None and follower.order_key == job.order_key:
        follower = replace(follower, order_seq=job.order_seq)
        if place(follower) < place(successor):
            return Delta()
    return Delta({successor.id: successor.promoted(low)})


def taken(job: ModelJob) -> ModelJob:
    """Take a job from its holder."""
    return job.becomes(job.status, token=None, holder=None, locked_until=None)


def called_off(view: State, job: ModelJob, became: str, low: datetime) -> Delta:
    """End a job without an attempt: from outside, called off, or deleted."""
    delta = left(view, taken(job), became, low)
    if job.order_key in view.stops:
        return delta
    return delta.then(promoted(view, job, low))


def deleted(view: State, jobs: Sequence[ModelJob], low: datetime) -> Delta:
    delta = Delta()
    for job in jobs:
        now = view.plus(delta)
        if job.live:
            delta = delta.then(called_off(now, now.jobs[job.id], "cancelled", low))
    gone = frozenset(job.id for job in jobs)
    places = {place: None for place in view.plus(delta).blockers if place[0] in gone}
    delta = delta.then(Delta(blockers={**places}, gone=gone))
    delta.jobs = {job_id: job for job_id, job in delta.jobs.items() if job_id not in gone}
    return delta


def waiting_outside(view: State, chains: Iterable[int]) -> list[ModelJob]:
    """Return the jobs of other chains that wait for one of these."""
    doomed = set(chains)
    return [
        view.jobs[job_id]
        for (job_id, _), row in view.blockers.items()
        if row.status is None and row.chain_id in doomed and view.jobs[job_id].chain not in doomed
    ]


def following(view: State, job: ModelJob, new: ModelJob, chains: Sequence[int], low: datetime) -> Delta:
    """Insert the job that follows `job`, which has left, in its chain."""
    same = new.order_key is not None and new.order_key == job.order_key
    seq = job.order_seq if same else new.order_seq
    new = replace(new, chain_id=job.chain, order_seq=seq, awaited=job.awaited)
    return named(view, new, chains, low)


def outside(view: State, chain: int, spec: Spec | None, seen: Observation | None, low: datetime) -> tuple[Delta, bool]:
    """Complete a chain from outside; return also whether what would follow is refused. `seen` has the new job's id."""
    live = [job for job in view.chain_of(chain) if job.live]
    delta = Delta()
    if not live:
        return delta, False
    last = live[-1]
    new: ModelJob | None = None
    if spec is not None:
        found = [row.id for row in seen.live.values() if row.chain == chain and row.id not in view.jobs] if seen else []
        new = spec.row(found[0] if found else max(view.jobs) + 1, low)
    for job in live:
        now = view.plus(delta)
        goes_on = new is not None and job is last
        delta = delta.then(
            left(now, taken(now.jobs[job.id]), "completed", low, next_id=new.id if new and goes_on else None)
        )
        if job.order_key not in view.stops:
            delta = delta.then(promoted(view.plus(delta), job, low, new if goes_on else None))
    if spec is None or new is None:
        return delta, False
    unknown = any(view.end_of(named) == "not_found" for named in spec.after)
    holder = None if spec.key is None else view.holder_of(*spec.key)
    if unknown or (holder is not None and holder not in live):
        return delta, True
    delta = delta.then(following(view.plus(delta), last, new, spec.after, low))
    after = view.plus(delta)
    joined = [after.jobs[new.id]] if new.order_key or spec.after else []
    return delta, circular(after, joined)
