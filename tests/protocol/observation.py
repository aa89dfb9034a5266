"""Reading everything the protocol writes, and comparing it with the model."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from tests.protocol.lifecycle import LIVE, NOWHERE, TRANSITIONS
from tests.protocol.model import AttemptRow, BlockerRow, Delta, ModelJob, Moment, Span, State

if TYPE_CHECKING:
    import psycopg

M = TypeVar("M", Moment, Moment | None)

_LIVE = """
SELECT id, kind, queue, priority, max_attempts, available_at, status::text, attempt, order_key, order_seq,
    coalesce(order_block, false), unique_key, lock_token, locked_by, locked_until, cancel_requested_at IS NOT NULL,
    replay_of, chain_id, blockers_left, coalesce(blocker_failed, false), coalesce(run_anyway, false),
    coalesce(awaited, false), coalesce(expires_at <= clock_timestamp(), false), shard, suspect,
    first_due_at IS NOT NULL, (to_jsonb(j) - 'later')::text
FROM holdfast.job j
"""
_ENDED = """
SELECT 'job_history', id, status::text, attempt, max_attempts, worker_id, order_key, order_seq, replay_of, chain_id,
    next_id, blockers, h::text
FROM holdfast.job_history h
UNION ALL
SELECT 'job_failed', id, status::text, attempt, max_attempts, worker_id, order_key, order_seq, replay_of, chain_id,
    next_id, blockers, f::text
FROM holdfast.job_failed f
"""
_STOPS = "SELECT order_key, job_id FROM holdfast.order_stop"
_ATTEMPTS = "SELECT job_id, lock_token, worker_id, outcome::text, attempt FROM holdfast.attempt"
_BLOCKERS = "SELECT job_id, ordinal, chain_id, status::text FROM holdfast.blocker"
_CLOCK = "SELECT clock_timestamp()"


@dataclass(frozen=True, slots=True)
class Observation:
    live: dict[int, ModelJob]
    ended: dict[int, list[tuple[Any, ...]]]
    stops: dict[str, int]
    attempts: Counter[AttemptRow]
    blockers: dict[tuple[int, int], BlockerRow]
    clock: datetime
    """After all that was read."""


def observe(conn: psycopg.Connection[Any]) -> Observation:
    with conn.pipeline():
        live, ended, stops, attempts, blockers, clock = (
            conn.execute(query.encode()) for query in (_LIVE, _ENDED, _STOPS, _ATTEMPTS, _BLOCKERS, _CLOCK)
        )
        rows: dict[int, list[tuple[Any, ...]]] = {}
        for row in ended:
            rows.setdefault(row[1], []).append(row)
        return Observation(
            {row[0]: ModelJob(*row) for row in live},
            rows,
            dict(stops.fetchall()),
            Counter(AttemptRow._make(row) for row in attempts),
            {(job_id, ordinal): BlockerRow(*row) for job_id, ordinal, *row in blockers},
            clock.fetchall()[0][0],
        )


def verify(state: State, delta: Delta, seen: Observation, cause: str | None) -> State:
    """Return the state after the change, with the times that the database chose; fail where it holds anything else."""
    expected = state.plus(delta)
    jobs = {
        job.id: _verified_live(job, seen) if job.live else _verified_ended(job, seen) for job in expected.jobs.values()
    }
    assert seen.live.keys() | seen.ended.keys() == jobs.keys(), "jobs from nowhere"
    assert seen.stops == expected.stops
    assert seen.attempts == expected.attempts, "the story of the attempts is another"
    assert seen.blockers == expected.blockers, "somebody comes after something else"
    if cause is not None:
        for job_id in delta.jobs.keys() | delta.gone:
            before = state.jobs[job_id].status if job_id in state.jobs else NOWHERE
            _check_transition(before, jobs[job_id].status if job_id in jobs else NOWHERE, cause)
    verified = replace(expected, jobs=jobs)
    verified.check_invariants()
    return verified


def _check_transition(before: str, after: str, cause: str) -> None:
    if before != after:
        assert cause in TRANSITIONS.get((before, after), ()), f"{cause}: {before} to {after} is not drawn"


def _verified_live(job: ModelJob, seen: Observation) -> ModelJob:
    assert job.id not in seen.ended, f"live and ended: {job}"
    assert job.id in seen.live, f"lost: {job}"
    row = seen.live[job.id]
    if job.image is not None:
        assert row.image == job.image, "a row that nobody may touch was changed"
    exact = replace(
        job,
        available_at=_chosen(job.available_at, row.available_at, seen.clock),
        locked_until=_chosen(job.locked_until, row.locked_until, seen.clock),
        shard=row.shard if job.shard is None else job.shard,
        image=row.image,
    )
    assert row == exact
    return exact


def _chosen(expected: M, found: M, clock: datetime) -> M:
    """Return the time that was found, if a time within a span was expected."""
    if isinstance(expected, Span) and isinstance(found, datetime):
        assert expected.holds(found, clock), f"{found} is not within {expected}, read at {clock}"
        return found
    return expected


def _verified_ended(job: ModelJob, seen: Observation) -> ModelJob:
    assert job.status not in LIVE
    assert job.id not in seen.live, f"ended and live: {job}"
    rows = seen.ended.get(job.id, [])
    assert len(rows) == 1, f"ended {len(rows)} times: {job}"
    family, *columns, image = rows[0]
    assert family == ("job_failed" if job.status == "failed" else "job_history")
    assert columns == [
        job.id,
        job.status,
        job.attempt,
        job.max_attempts,
        job.holder,
        job.order_key,
        job.order_seq,
        job.replay_of,
        job.chain_id,
        job.next_id,
        None if job.blockers is None else list(job.blockers),
    ]
    assert job.image in {None, image}, "history was rewritten"
    return replace(job, image=image)
