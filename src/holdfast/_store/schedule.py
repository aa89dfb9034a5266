"""Schedules: when runners and periodic jobs run next, by PostgreSQL's clock. A row decides which worker gets a slot."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from holdfast._model.errors import HoldfastError, InvalidJob
from holdfast._model.schedule import next_slot
from holdfast._store.answer import Answer, ErrorText, Id
from holdfast._store.enqueue import EnqueuedJob
from holdfast._store.statement import (
    Row,
    Statement,
    column,
    many,
    nothing,
    one,
    one_or_none,
    statement,
    statements,
    text_array,
    time_text,
    value,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from holdfast._logs.failure import Failure
    from holdfast._model.new_job import NewJob
    from holdfast._model.schedule import Missed, Schedule


SINGLETON_KEY = "worker:scheduler:"
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class SlotScan:
    """A schedule as it was seen, and when its next slot is."""

    text: str
    now: datetime
    next_at: datetime | None
    skipped: bool | None
    """Whether its slot passed unused, and is not made up for."""

    @property
    def following(self) -> datetime:
        """The first slot after now."""
        return next_slot(self.text, self.now)

    @property
    def unset(self) -> bool:
        """Whether its next slot must be set: it has none, it is skipped, or a clock that was ahead has set it."""
        return self.next_at is None or bool(self.skipped) or self.next_at > self.following


@dataclass(frozen=True, slots=True)
class ScheduleScan(SlotScan):
    """The current state of a runner's schedule."""

    paused: bool
    triggered: bool
    slot_at: datetime | None
    """The slot that a worker runs, or gave back."""
    locked_until: datetime | None

    @property
    def claimable(self) -> bool:
        if self.next_at is None or (self.locked_until is not None and self.locked_until >= self.now):
            return False
        return self.triggered or (not self.paused and (self.next_at <= self.now or self.slot_at is not None))


@dataclass(frozen=True, slots=True)
class PeriodicScan(SlotScan):
    """The current state of a periodic job's schedule."""

    name: str
    due: bool | None


class Slot(NamedTuple):
    """A slot that this worker holds, with a token, until its lease ends."""

    at: datetime
    started_at: datetime
    token: int
    attempt: int
    run_id: int


class ScheduleLine(NamedTuple):
    """A stored schedule, as `app.list_schedules` returns it."""

    name: str
    what: Literal["runner", "job"]
    schedule: str
    """As text: `every 300s`, or `0 3 * * * Europe/Berlin`."""
    edited: bool
    """Whether it differs from the code's declaration, or was created by hand."""
    paused: bool
    triggered: bool
    """Whether it was triggered by hand and has not run since."""
    next_at: datetime | None
    """Its next slot."""
    last_at: datetime | None
    """The slot that was started last."""
    slot_at: datetime | None
    """The slot that runs now. None: nothing runs."""
    started_at: datetime | None
    attempt: int
    """The attempt at the slot that runs now."""
    locked_by: int | None
    """The id of the worker that runs it."""
    locked_until: datetime | None
    """The end of that worker's lease."""
    missed: Missed
    """Whether a slot that could not start within a minute runs late or is skipped."""
    added: bool
    """Whether it was added at run time, and not declared by the code."""
    served: bool
    """Whether a live worker declares it. One that was added is of every worker. Otherwise its slots do not run."""


def declare_schedules(names: Iterable[str], *, worker: int) -> Statement[None]:
    """Record the schedules that the application of a worker declares."""
    return statement("declare_schedules", nothing, names=text_array(names), worker=worker)


def register_schedules(
    given: Iterable[tuple[str, Schedule, NewJob[object] | None]],
    *,
    at_start: Collection[str] = (),
    skipping: Collection[str] = (),
) -> Statement[list[str]]:
    """Store the declared schedules; return the names of new and changed ones. Operators' edits are kept.

    `at_start`: the names of schedules that are due at once if they have never run. `skipping`: those that skip missed
    slots.
    """
    rows = [
        f'{{"name":{json.dumps(name)},"schedule":{json.dumps(every.text)},"at_start":{json.dumps(name in at_start)}'
        f',"missed":"{"skip" if name in skipping else "run"}"{_job(job)}}}'
        for name, every, job in given
    ]
    return statement("register_schedules", column, given=f"[{','.join(rows)}]")


def add_schedule(name: str, every: Schedule, job: NewJob[Any], *, missed: Missed) -> Statement[bool]:
    """Store a periodic job that no code declares, or replace it; return whether it is new."""

    def read(rows: Sequence[Row]) -> bool:
        if not rows:
            raise HoldfastError(f"{name}: the code declares a schedule of this name: choose another one")
        return bool(rows[0][0])

    added = statement("add_schedule", read, name=name, schedule=every.text, job=job.as_json(), missed=missed)
    return added.storing(InvalidJob)


def taken_schedules(names: Iterable[str]) -> Statement[list[str]]:
    """Return which of these names belong to schedules that were added at run time."""
    return statement("taken_schedules", column, names=text_array(names))


def look_at_schedule(name: str) -> Statement[ScheduleScan | None]:
    return statement("look_at_schedule", one_or_none(ScheduleScan), name=name)


def set_next(looks: Mapping[str, SlotScan]) -> Statement[list[str]]:
    """Set the next slot of each schedule that is still as it was seen, by name.

    Return the names. The others were set or edited by another process.
    """
    return statement(
        "set_next",
        column,
        names=text_array(looks),
        seen=text_array(look.text for look in looks.values()),
        seen_next=text_array(time_text(look.next_at) for look in looks.values()),
        following=text_array(look.following.isoformat() for look in looks.values()),
    )


def claim_slot(name: str, look: ScheduleScan, *, worker: int, lease: timedelta) -> Statement[Slot | None]:
    """Claim the slot that `look` found due; None when another worker has it."""
    return statement(
        "claim_slot",
        one_or_none(Slot),
        name=name,
        worker=worker,
        lease_ms=lease // _MILLISECOND,
        seen=look.text,
        seen_next=time_text(look.next_at),
        following=look.following.isoformat(),
    )


def renew_slot(name: str, slot: Slot, *, worker: int, lease: timedelta) -> Statement[bool]:
    """Hold the slot for another lease; False when the lease was lost."""
    return statement("renew_slot", bool, name=name, token=slot.token, worker=worker, lease_ms=lease // _MILLISECOND)


def end_slot(  # noqa: PLR0913 - one keyword per field of a run
    name: str,
    slot: Slot,
    *,
    worker: int,
    outcome: RunOutcome | None = None,
    counts: str | None = None,
    failure: Failure | None = None,
    again: bool = False,
) -> Statement[bool]:
    """End the slot, or return it to be run `again`; without an outcome it did not run. False: it was lost."""
    return statement(
        "end_slot",
        value,
        name=name,
        worker=worker,
        token=slot.token,
        again=again,
        outcome=outcome,
        counts=counts,
        error_code=failure.code if failure else None,
        error=failure.text if failure else None,
    )


def look_at_periodic_jobs(names: Iterable[str], *, limit: int = 1000) -> Statement[list[PeriodicScan]]:
    """Read the schedules of these periodic jobs and of those created by hand, the most urgent first."""
    return statement("look_at_periodic_jobs", many(PeriodicScan), names=text_array(names), limit=limit)


class FilledSlots(NamedTuple):
    slots: int
    """How many slots were filled."""
    made: list[EnqueuedJob]
    """Their jobs, without those whose unique key existed already."""


def enqueue_slots(looks: Sequence[PeriodicScan]) -> Statement[FilledSlots]:
    """Enqueue the jobs of due slots that no other worker took, all or none, and move to the next slots."""
    return statement(
        "enqueue_slots",
        lambda rows: FilledSlots(len(rows), [EnqueuedJob(*job) for *job, created in rows if created]),
        names=text_array(look.name for look in looks),
        seen=text_array(look.text for look in looks),
        seen_next=text_array(time_text(look.next_at) for look in looks),
        following=text_array(look.following.isoformat() for look in looks),
    )


def pause_schedule(name: str, *, by: str | None = None, reason: str | None = None) -> Statement[bool]:
    """Pause a schedule; False when it does not exist. `by` and `reason`: as of `pause_queue`."""
    return statement("pause_schedule", bool, name=name, by=by, reason=reason)


def resume_schedule(name: str) -> Statement[bool]:
    """Resume with the next slot: slots missed during the pause are not run."""
    return statement("resume_schedule", bool, name=name)


def trigger_schedule(name: str) -> Statement[bool]:
    """Run it once, soon, even if it is paused; its slots do not change."""
    return statement("trigger_schedule", bool, name=name)


def edit_schedule(name: str, every: Schedule) -> Statement[bool]:
    """Replace its schedule until the code declares a new one."""
    return statement("edit_schedule", bool, name=name, schedule=every.text)


def remove_schedule(name: str) -> Statement[bool]:
    """Delete a schedule that the code no longer declares; a declared one is created again."""
    return statement("remove_schedule", bool, name=name)


def is_schedule_declared(name: str) -> Statement[bool]:
    """Return whether a live worker declares this schedule in its code."""
    return statement("is_schedule_declared", value, name=name)


def list_schedules(*, limit: int = 1000) -> Statement[list[ScheduleLine]]:
    """Return the schedules by name. `limit`: at most this many schedules. Default: 1000."""
    return statement("list_schedules", many(ScheduleLine), limit=limit)


class ScheduledJob(NamedTuple):
    """The kind and payload of a schedule's jobs."""

    name: str
    kind: str
    payload: str | None
    """As JSON text. None: it is too large to be read with all others."""


def read_scheduled_jobs(*, largest: int, limit: int = 1000) -> Statement[list[ScheduledJob]]:
    """Return the jobs of all schedules, by name, without payloads larger than `largest` bytes."""
    return statement("read_scheduled_jobs", many(ScheduledJob), largest=largest, limit=limit)


def take_singleton(name: str) -> Statement[bool]:
    """Take the lock of this runner until the transaction ends; False when another worker has it."""
    return statement("take_singleton", value, key=SINGLETON_KEY + name)


def keep_singleton() -> str:
    """Return the statement to run next in that transaction, by the simple query protocol.

    With the extended protocol, the last portal of an open transaction keeps its snapshot and so blocks vacuum.
    """
    return statements()["keep_singleton"]


def _job(job: NewJob[object] | None) -> str:
    return "" if job is None else f',"job":{job.as_json()}'


RunOutcome: TypeAlias = Literal["completed", "failed", "cancelled", "lost"]


class StartedRun(NamedTuple):
    """A run that is not recorded yet."""

    id: int
    started_at: datetime

    def earlier(self, seconds: float) -> StartedRun:
        """Return the same run, begun that many seconds before."""
        return self._replace(started_at=self.started_at - timedelta(seconds=seconds))


class RunLine(Answer):
    id: Id
    runner: str
    started_at: datetime
    finished_at: datetime | None
    worker: Id | None
    outcome: str | None
    counts: dict[str, int]
    error_code: str | None
    error: ErrorText | None


class Running(NamedTuple):
    """A tick of a runner that runs now, as `app.list_ticks` returns it."""

    runner: str
    since: datetime
    worker: int
    """The id of the worker that runs it."""
    worker_name: str


def start_run() -> Statement[StartedRun]:
    """Return a new run id and the time. Nothing is written."""
    return statement("start_run", one(StartedRun))


def record_run(  # noqa: PLR0913 - one keyword per field of a run
    run: StartedRun,
    runner: str,
    outcome: RunOutcome | None,
    *,
    worker: int,
    counts: Mapping[str, int],
    failure: Failure | None = None,
) -> Statement[None]:
    """Record how a run ended or, without an outcome, that it is running."""
    return statement(
        "record_run",
        nothing,
        id=run.id,
        started_at=run.started_at.isoformat(),
        worker=worker,
        runner=runner,
        outcome=outcome,
        counts=counts_json(counts),
        error_code=failure.code if failure else None,
        error=failure.text if failure else None,
    )


def list_runs(runner: str | None = None, *, limit: int = 50) -> Statement[list[RunLine]]:
    """Return the latest ended runs, of one runner or of all."""
    if runner is None:
        return statement("list_runs", _lines, limit=limit)
    return statement("list_runs_of", _lines, runner=runner, limit=limit)


def last_runs(*, days: int = 7, limit: int = 1000) -> Statement[list[RunLine]]:
    return statement("last_runs", _lines, days=days, limit=limit)


def list_running(*, limit: int = 1000) -> Statement[list[Running]]:
    """Return the running ticks, longest first, without those of dead processes.

    Ticks of runners without a schedule appear after a second; most take less. `limit`: in ticks. Default: 1000.
    """
    return statement("list_running", many(Running), limit=limit)


def end_lost_runs(*, limit: int = 1_000) -> Statement[int]:
    """Record the runs of dead workers as lost; return how many."""
    return statement("end_lost_runs", value, limit=limit)


def counts_json(counts: Mapping[str, int]) -> str | None:
    return json.dumps(dict(counts)) if counts else None


def _lines(rows: Sequence[Row]) -> list[RunLine]:
    return [RunLine.of(*row[:6], json.loads(row[6]) if row[6] else {}, *row[7:]) for row in rows]
