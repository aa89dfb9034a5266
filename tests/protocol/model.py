"""What the database should hold: jobs as values, and how a change of some of them is applied."""

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
    max_attempts: int
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
    shard: int | None = None
    """None: not yet seen."""
    image: str | None = None
    """The whole row as text. None: the last operation changed it. Else the row must be exactly this."""

    @property
    def live(self) -> bool:
        return self.status in LIVE

    def held_by(self, worker: int, token: int) -> bool:
        return self.status == "processing" and (self.token, self.holder) == (token, worker)

    def becomes(self, status: str, **changes: object) -> ModelJob:
        return replace(self, status=status, image=None, **changes)  # type: ignore[arg-type]

    def freed(self, **changes: object) -> ModelJob:
        """Return the job back in its lane, held by nobody."""
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


@dataclass(slots=True)
class Delta:
    """What an operation changes."""

    jobs: dict[int, ModelJob] = field(default_factory=dict)
    stops: dict[str, int | None] = field(default_factory=dict)
    windows: dict[tuple[str, str], int] = field(default_factory=dict)
    attempts: list[AttemptRow] = field(default_factory=list)

    def then(self, later: Delta) -> Delta:
        return Delta(
            self.jobs | later.jobs,
            self.stops | later.stops,
            self.windows | later.windows,
            self.attempts + later.attempts,
        )


@dataclass(frozen=True, slots=True)
class State:
    jobs: dict[int, ModelJob] = field(default_factory=dict)
    """Every job that was ever committed, with the status it ended in."""
    stops: dict[str, int] = field(default_factory=dict)
    windows: dict[tuple[str, str], int] = field(default_factory=dict)
    attempts: Counter[AttemptRow] = field(default_factory=Counter)

    def plus(self, delta: Delta) -> State:
        stops = {key: job for key, job in (self.stops | delta.stops).items() if job is not None}
        return State(
            self.jobs | delta.jobs, stops, self.windows | delta.windows, self.attempts + Counter(delta.attempts)
        )

    @property
    def live(self) -> list[ModelJob]:
        return [job for job in self.jobs.values() if job.live]

    def lane(self, order_key: str) -> list[ModelJob]:
        """Return the live jobs of an order key, in order."""
        return sorted((job for job in self.live if job.order_key == order_key), key=_place)

    def runs(self, order_key: str) -> bool:
        return any(job.status == "processing" for job in self.lane(order_key))

    def before(self, job: ModelJob) -> list[ModelJob]:
        assert job.order_key is not None
        return [other for other in self.lane(job.order_key) if _place(other) < _place(job)]

    def after(self, job: ModelJob) -> ModelJob | None:
        assert job.order_key is not None
        later = [other for other in self.lane(job.order_key) if _place(other) > _place(job)]
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
            assert 0 <= job.attempt <= job.max_attempts, f"more attempts than allowed: {job}"
            if job.live:
                held = job.status == "processing"
                assert held == (job.token is not None) == (job.holder is not None), f"held by half: {job}"
                assert not (held and job.attempt == 0), f"runs without an attempt: {job}"
                assert job.order_key is not None or job.status != "blocked", f"waits for nothing: {job}"
        for key in {job.order_key for job in self.live if job.order_key is not None}:
            lane = self.lane(key)
            assert sum(job.status == "processing" for job in lane) <= 1, f"two of one key run: {lane}"
            assert lane[0].status != "blocked" or key in self.stops, f"nobody will ever promote {lane[0]}"


def _place(job: ModelJob) -> tuple[int, int]:
    assert job.order_seq is not None
    return job.order_seq, job.id
