"""The expected effects of enqueueing, cancelling, replaying and resuming."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from holdfast._model.handle import Handle
from holdfast._model.new_job import Envelope, NewJob, OrderKey
from tests.protocol import chaining
from tests.protocol.model import NO_TIME, Delta, ModelJob, Span, State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast._model.unique import Unique

# Windows begin at whole multiples of their length: a long one will hardly end while a test runs.
WINDOW = timedelta(days=30)
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Spec:
    """A job to enqueue."""

    kind: str
    queue: str = "default"
    priority: int = 5
    max_attempts: int | None = 3
    delay: timedelta = NO_TIME
    order: OrderKey | None = None
    unique: Unique | None = None
    expired: bool = False
    picks: tuple[int, ...] = ()
    """Which of the chains there are it comes after."""
    run_anyway: bool = False
    after: tuple[int, ...] = ()

    def among(self, view: State) -> Spec:
        """Return the same job with chains instead of numbers."""
        chains = sorted({job.chain for job in view.jobs.values()})
        return replace(self, after=tuple(chains[-1 - pick % len(chains)] for pick in self.picks) if chains else ())

    def new(self) -> NewJob[Any]:
        envelope = Envelope(
            self.kind,
            queue=self.queue,
            priority=self.priority,
            max_attempts=self.max_attempts,
            delay=self.delay or None,
            order_key=self.order,
            unique=self.unique,
            expires=LONG_AGO if self.expired else None,
            after=self.after,
            if_blocker_fails="run" if self.run_anyway else "fail",
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
            run_anyway=self.run_anyway and bool(self.after),
            expired=self.expired,
        )

    @property
    def key(self) -> tuple[str, str] | None:
        return (self.unique.key, self.kind) if self.unique else None


def conflicts(view: State, specs: Sequence[Spec]) -> list[int | None]:
    """Return for each job the one that is there already: an id, -n for the n-th given (from 1), or None.

    A running job gives up its live key to a job that would change it, and a job that will not run to any job.
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
        changed = holder is not None and holder.status == "processing" and _would_change(specs, key)
        if holder is not None and not (changed or holder.doomed):
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
    comes_after = {handle.id: spec.after for spec, handle in zip(specs, handles, strict=True) if handle.created}
    for policy in ("replace", "debounce"):
        for spec, other in zip(specs, found, strict=True):
            if other is not None and spec.unique is not None and spec.unique.on_conflict == policy:
                job = delta.jobs.get(other) or view.jobs.get(other)
                if job is not None and job.status in {"pending", "blocked"}:
                    delta.jobs[other] = _changed(job, spec, low)
                    if policy == "replace":
                        comes_after[other] = spec.after
    for job_id, chains in comes_after.items():
        now = view.plus(delta)
        delta = delta.then(chaining.named(now, now.jobs[job_id], chains, low))
    return delta


def refusable(view: State, specs: Sequence[Spec], low: datetime) -> bool:
    """Whether such jobs may not be enqueued: a chain is not there any more, or a replaced job would wait for itself."""
    ids = [max(view.jobs, default=0) + n for n in range(1, len(specs) + 1)]
    others = [ids[-other - 1] if other is not None and other < 0 else other for other in conflicts(view, specs)]
    handles: list[Handle[Any]] = [
        Handle(ids[n] if other is None else other, 0, created=other is None) for n, other in enumerate(others)
    ]
    used = {
        handle.id: spec.after
        for spec, handle in zip(specs, handles, strict=True)
        if handle.created or (spec.unique is not None and spec.unique.on_conflict == "replace")
    }
    if any(view.end_of(chain) == "not_found" for chains in used.values() for chain in chains):
        return True
    after = view.plus(enqueued(view, specs, handles, low))
    return chaining.circular(after, [after.jobs[job_id] for job_id in used if job_id in view.jobs])


def _would_change(specs: Sequence[Spec], key: tuple[str, str]) -> bool:
    return any(
        spec.unique.window is None and spec.unique.on_conflict in {"replace", "debounce"}
        for spec in specs
        if spec.key == key and spec.unique is not None
    )


def _changed(job: ModelJob, spec: Spec, low: datetime) -> ModelJob:
    assert spec.unique is not None
    moved = job.becomes("blocked" if job.waits else "pending", available_at=Span(low, spec.delay))
    if spec.unique.on_conflict == "debounce":
        return moved
    return replace(
        moved,
        queue=spec.queue,
        priority=spec.priority,
        max_attempts=spec.max_attempts,
        attempt=0,
        expired=spec.expired,
        run_anyway=spec.run_anyway and bool(spec.after),
    )


def cancelled(view: State, job_id: int, answer: str, low: datetime, *, stuck: bool) -> Delta:
    """`stuck`: another session may have locked a job that waits for this one's chain."""
    job = view.jobs.get(job_id)
    if job is None or not job.live:
        assert answer == "not_found"
        return Delta()
    if job.status != "processing" and job.order_key is None and answer == "cancelled":
        return chaining.called_off(view, job, "cancelled", low)
    assert answer == "requested"
    assert job.status == "processing" or job.order_key is not None or (stuck and job.awaited)
    if job.status == "processing":
        return Delta({job_id: job.becomes("processing", cancel=True)})
    asked = job.becomes(job.status, cancel=True, available_at=Span(low))
    return Delta({job_id: asked.becomes("pending", blockers_left=0) if job.waits else asked})


def resumed(view: State, key: str, low: datetime) -> Delta:
    delta = Delta(stops={key: None})
    lane = view.lane(key)
    if lane and lane[0].status == "blocked" and not lane[0].waits:
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
        chain_id=dead.chain,
        run_anyway=dead.run_anyway,
        suspect=1 if dead.suspect else None,
    )
    delta = chaining.named(view, job, dead.blockers or (), low)
    if dead.order_key is not None and view.stops.get(dead.order_key) == job_id:
        return delta.then(resumed(view.plus(delta), dead.order_key, low))
    return delta
