"""What enqueueing, cancelling, replaying and resuming should do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from holdfast.job import Envelope, NewJob, OrderKey, Unique
from tests.protocol.model import NO_TIME, Delta, ModelJob, Span, State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.job import Handle

# Windows begin at whole multiples of their length: a long one will hardly end while a test runs.
WINDOW = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Spec:
    """A job to enqueue."""

    kind: str
    queue: str = "default"
    priority: int = 5
    max_attempts: int = 3
    delay: timedelta = NO_TIME
    order: OrderKey | None = None
    unique: Unique | None = None
    expires: timedelta | None = None

    def new(self) -> NewJob[Any]:
        envelope = Envelope(
            self.kind,
            queue=self.queue,
            priority=self.priority,
            max_attempts=self.max_attempts,
            delay=self.delay or None,
            order_key=self.order,
            unique=self.unique,
            expires=None if self.expires is None else self.expires + self.delay,
        )
        return NewJob(envelope, "{}")

    def row(self, job_id: int, low: datetime) -> ModelJob:
        return ModelJob(
            job_id,
            self.kind,
            self.queue,
            self.priority,
            self.max_attempts,
            Span(low, self.delay),
            order_key=self.order.key if self.order else None,
            order_seq=job_id if self.order else None,
            order_block=self.order is not None and self.order.on_failure == "block",
            unique_key=self.unique.key if self.unique and self.unique.window is None else None,
        )

    @property
    def key(self) -> tuple[str, str] | None:
        return (self.unique.key, self.kind) if self.unique else None


def conflicts(view: State, specs: Sequence[Spec]) -> list[int | None]:
    """Return for each job the one that is there already: an id, -n for the n-th given (from 1), or None.

    A running job gives its live key up to whoever would change it.
    """
    found: list[int | None] = []
    windows: dict[tuple[str, str], int] = dict(view.windows)
    lives: dict[tuple[str, str], int] = {}
    for n, spec in enumerate(specs, start=1):
        key = spec.key
        if key is None:
            found.append(None)
            continue
        assert spec.unique is not None
        taken = windows if spec.unique.window is not None else lives
        holder = view.holder_of(*key) if taken is lives else None
        if holder is not None and not (holder.status == "processing" and _would_change(specs, key)):
            lives.setdefault(key, holder.id)
        found.append(taken.get(key))
        taken.setdefault(key, -n)
    return found


def enqueued(view: State, specs: Sequence[Spec], handles: Sequence[Handle[Any]], low: datetime) -> Delta:
    delta = Delta()
    given = dict(enumerate(specs, start=1))
    found = [handles[-other - 1].id if other is not None and other < 0 else other for other in conflicts(view, specs)]
    for n, spec in given.items():
        handle, other = handles[n - 1], found[n - 1]
        assert handle.created == (other is None)
        if other is not None:
            assert handle.id == other
            continue
        assert handle.id not in view.jobs
        assert handle.id > max(delta.jobs, default=0), "ids follow the order given"
        if (key := spec.key) is not None:
            assert spec.unique is not None
            if spec.unique.window is not None:
                delta.windows[key] = handle.id
            elif (holder := view.holder_of(*key)) is not None:
                delta.jobs[holder.id] = holder.becomes(holder.status, unique_key=None)
        delta.jobs[handle.id] = spec.row(handle.id, low)
    for policy in ("replace", "debounce"):
        for spec, other in zip(specs, found, strict=True):
            if other is not None and spec.unique is not None and spec.unique.on_conflict == policy:
                job = delta.jobs.get(other) or view.jobs[other]
                if job.status in {"pending", "blocked"}:
                    delta.jobs[other] = _changed(job, spec, low)
    return delta


def _would_change(specs: Sequence[Spec], key: tuple[str, str]) -> bool:
    return any(
        spec.unique.window is None and spec.unique.on_conflict in {"replace", "debounce"}
        for spec in specs
        if spec.key == key and spec.unique is not None
    )


def _changed(job: ModelJob, spec: Spec, low: datetime) -> ModelJob:
    assert spec.unique is not None
    moved = job.becomes("pending", available_at=Span(low, spec.delay))
    if spec.unique.on_conflict == "debounce":
        return moved
    return replace(moved, queue=spec.queue, priority=spec.priority, max_attempts=spec.max_attempts, attempt=0)


def cancelled(view: State, job_id: int, answer: str, low: datetime) -> Delta:
    job = view.jobs.get(job_id)
    if job is None or not job.live:
        assert answer == "not_found"
        return Delta()
    if job.status == "pending" and job.order_key is None:
        assert answer == "cancelled"
        return Delta({job_id: job.becomes("cancelled")})
    assert answer == "requested"
    when = job.available_at if job.status == "processing" else Span(low)
    return Delta({job_id: job.becomes(job.status, cancel=True, available_at=when)})


def resumed(view: State, key: str, low: datetime) -> Delta:
    delta = Delta(stops={key: None})
    lane = view.lane(key)
    if lane and lane[0].status == "blocked":
        delta.jobs[lane[0].id] = lane[0].promoted(low)
    return delta


def replayed(view: State, job_id: int, made: int | None, low: datetime) -> Delta:
    dead = view.jobs.get(job_id)
    if dead is None or dead.status != "failed":
        assert made is None
        return Delta()
    assert made is not None
    job = ModelJob(
        made,
        dead.kind,
        dead.queue,
        dead.priority,
        dead.max_attempts,
        Span(low),
        order_key=dead.order_key,
        order_seq=dead.order_seq,
        order_block=dead.order_block,
        unique_key=dead.unique_key,
        replay_of=job_id,
    )
    delta = Delta({made: job})
    if dead.order_key is not None and view.stops.get(dead.order_key) == job_id:
        return delta.then(resumed(view.plus(delta), dead.order_key, low))
    return delta
