"""The expected contents of the database: jobs as values, and how a change of some of them is applied."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import NamedTuple, TypeAlias

from tests.protocol.lifecycle import ENDED, LIVE

NO_TIME = timedelta(0)


@dataclass(frozen=True, slots=True)
class Span:
    """A time that the database chose: `delay` after a moment between `low` and now, or `least` if that is later."""

    low: datetime
    delay: timedelta = NO_TIME
    least: datetime | None = None

    def holds(self, value: datetime, high: datetime) -> bool:
        first, last = self.low + self.delay, high + self.delay
        if self.least is not None:
            first, last = max(first, self.least), max(last, self.least)
        return first <= value <= last


Moment: TypeAlias = datetime | Span


@dataclass(frozen=True, slots=True)
class ModelJob:
    id: int
    kind: str
    queue: str
    priority: int
    max_attempts: int | None
    available_at: Moment
    status: str = "pending"
    attempt: int = 0
    order_key: str | None = None
    order_seq: int | None = None
    order_block: bool = False
    unique_key: str | None = None
    token: int | None = None
    holder: int | None = None
    locked_until: Moment | None = None
    cancel: bool = False
    replay_of: int | None = None
    chain_id: int | None = None
    blockers_left: int | None = None
    blocker_failed: bool = False
    run_anyway: bool = False
    awaited: bool = False
    expired: bool = False
    shard: int | None = None
    """None: not yet seen."""
    suspect: int | None = None
    """Its worker was lost with it: it runs with other suspects at most (0), or alone."""
    ran_before: bool = False
    """Whether an attempt has given it back, even one that is not counted."""
    image: str | None = None
    """The whole row as text. None: the last operation changed it. Else the row must be exactly this."""
    next_id: int | None = None
    """Of a job that has ended: the one that followed it."""
    blockers: tuple[int, ...] | None = field(default=None, compare=False)
    """Of a dead letter: the chains it came after."""

    @property
    def live(self) -> bool:
        return self.status in LIVE

    @property
    def chain(self) -> int:
        return self.id if self.chain_id is None else self.chain_id

    @property
    def doomed(self) -> bool:
        """Whether it will not run: then it holds no unique key."""
        return self.cancel or (self.expired and self.status != "processing")

    @property
    def waits(self) -> bool:
        """Whether it waits for other chains."""
        return bool(self.blockers_left)

    def held_by(self, worker: int, token: int) -> bool:
        return self.status == "processing" and (self.token, self.holder) == (token, worker)

    def becomes(self, status: str, **changes: object) -> ModelJob:
        return replace(self, status=status, image=None, **changes)  # type: ignore[arg-type]

    def freed(self, **changes: object) -> ModelJob:
        """Return the job back in its lane, without a holder."""
        return self.becomes("pending", token=None, holder=None, locked_until=None, **changes)

    def promoted(self, low: datetime) -> ModelJob:
        assert isinstance(self.available_at, datetime)
        return self.becomes("pending", available_at=Span(low, least=self.available_at))


class AttemptRow(NamedTuple):
    job_id: int
    token: int | None
    worker: int | None
    outcome: str
    attempt: int


class BlockerRow(NamedTuple):
    chain_id: int
    status: str | None = None
    """None: the chain lives."""


@dataclass(slots=True)
class Delta:
    """The changes of an operation."""

    jobs: dict[int, ModelJob] = field(default_factory=dict)
    stops: dict[str, int | None] = field(default_factory=dict)
    windows: dict[tuple[str, str], int] = field(default_factory=dict)
    attempts: list[AttemptRow] = field(default_factory=list)
    blockers: dict[tuple[int, int], BlockerRow | None] = field(default_factory=dict)
    """By job and place. None: it is gone."""
    gone: frozenset[int] = frozenset()
    """Jobs of which no row is left."""
    forgotten: frozenset[int] = frozenset()
    """Jobs of which no attempt is left."""

    def then(self, later: Delta) -> Delta:
        return Delta(
            self.jobs | later.jobs,
            self.stops | later.stops,
            self.windows | later.windows,
            [*(row for row in self.attempts if row.job_id not in later.forgotten), *later.attempts],
            self.blockers | later.blockers,
            self.gone | later.gone,
            self.forgotten | later.forgotten,
        )


@dataclass(frozen=True, slots=True)
class State:
    jobs: dict[int, ModelJob] = field(default_factory=dict)
    """Every job that was ever committed, with the status it ended in."""
    stops: dict[str, int] = field(default_factory=dict)
    windows: dict[tuple[str, str], int] = field(default_factory=dict)
    attempts: Counter[AttemptRow] = field(default_factory=Counter)
    blockers: dict[tuple[int, int], BlockerRow] = field(default_factory=dict)

    def plus(self, delta: Delta) -> State:
        jobs = {job.id: job for job in (self.jobs | delta.jobs).values() if job.id not in delta.gone}
        stops = {key: job for key, job in (self.stops | delta.stops).items() if job is not None}
        kept = {row: times for row, times in self.attempts.items() if row.job_id not in delta.forgotten}
        blockers = {place: row for place, row in (self.blockers | delta.blockers).items() if row is not None}
        return State(jobs, stops, self.windows | delta.windows, Counter(kept) + Counter(delta.attempts), blockers)

    def blockers_of(self, job_id: int) -> dict[tuple[int, int], BlockerRow]:
        return {place: row for place, row in self.blockers.items() if place[0] == job_id}

    def chain_of(self, chain: int) -> list[ModelJob]:
        """Return the jobs of a chain, in order."""
        return sorted((job for job in self.jobs.values() if job.chain == chain), key=lambda job: job.id)

    def end_of(self, chain: int) -> str | None:
        """Return how a chain ended; None: it lives."""
        jobs = self.chain_of(chain)
        if any(job.live for job in jobs):
            return None
        return "not_found" if not jobs or jobs[-1].next_id is not None else jobs[-1].status

    @property
    def live(self) -> list[ModelJob]:
        return [job for job in self.jobs.values() if job.live]

    def lane(self, order_key: str) -> list[ModelJob]:
        """Return the live jobs of an order key, in order."""
        return sorted((job for job in self.live if job.order_key == order_key), key=place)

    def runs(self, order_key: str) -> bool:
        return any(job.status == "processing" for job in self.lane(order_key))

    def before(self, job: ModelJob) -> list[ModelJob]:
        assert job.order_key is not None
        return [other for other in self.lane(job.order_key) if place(other) < place(job)]

    def after(self, job: ModelJob) -> ModelJob | None:
        assert job.order_key is not None
        later = [other for other in self.lane(job.order_key) if place(other) > place(job)]
        return later[0] if later else None

    def holder_of(self, unique_key: str, kind: str) -> ModelJob | None:
        return next((job for job in self.live if (job.unique_key, job.kind) == (unique_key, kind)), None)

    def lost_reason(self, job_id: int) -> str:
        """Return why a claim that does not hold any more was lost."""
        job = self.jobs.get(job_id)
        if job is None:
            return "not_found"
        return {"completed": "already_completed", "cancelled": "cancelled"}.get(job.status, "taken_by_another_worker")

    def check_invariants(self) -> None:
        for job in self.jobs.values():
            assert job.status in LIVE + ENDED
            assert job.attempt >= 0, f"less than no attempt: {job}"
            assert job.max_attempts is None or job.attempt <= job.max_attempts, f"more attempts than allowed: {job}"
            if job.live:
                held = job.status == "processing"
                assert held == (job.token is not None) == (job.holder is not None), f"held by half: {job}"
                assert not (held and job.attempt == 0), f"runs without an attempt: {job}"
                assert job.order_key is not None or job.waits or job.status != "blocked", f"waits for nothing: {job}"
                assert job.status == "blocked" or not job.waits, f"does not wait for its blockers: {job}"
                self._check_blockers(job)
        assert all(self.jobs[job_id].live for job_id, _ in self.blockers), "a blocker of nobody"
        for key in {job.order_key for job in self.live if job.order_key is not None}:
            lane = self.lane(key)
            assert sum(job.status == "processing" for job in lane) <= 1, f"two of one key run: {lane}"
            promoted = lane[0].status != "blocked" or lane[0].waits or key in self.stops
            assert promoted, f"nobody will ever promote {lane[0]}"

    def _check_blockers(self, job: ModelJob) -> None:
        rows = self.blockers_of(job.id).values()
        assert bool(rows) == (job.blockers_left is not None), f"blockers without count: {job}"
        if job.waits:
            assert job.blockers_left == sum(row.status is None for row in rows), f"miscounted: {job}"
        for row in rows:
            if row.status is None:
                living = [other for other in self.chain_of(row.chain_id) if other.live]
                assert living, f"waits for what has ended: {job}"
                assert any(other.awaited for other in living), f"nobody will ever tell {job}"


def place(job: ModelJob) -> tuple[int, int]:
    assert job.order_seq is not None
    return job.order_seq, job.id
