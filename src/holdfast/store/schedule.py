"""Schedules: when runners and periodic jobs run next. A row is the referee of its slots; the clock is PostgreSQL's."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, NamedTuple

from holdfast.schedule import parse
from holdfast.store.statement import Row, Statement, statements, text_array

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from holdfast.failure import Failure
    from holdfast.new_job import NewJob
    from holdfast.schedule import Schedule
    from holdfast.store.run import RunOutcome
    from holdfast.store.statement import Parameter

SINGLETON_KEY = "worker:scheduler:"
_MILLISECOND = timedelta(milliseconds=1)


class Look(NamedTuple):
    """A runner's schedule as it stands."""

    text: str
    now: datetime
    next_at: datetime | None
    paused: bool
    triggered: bool
    slot_at: datetime | None
    """The slot that somebody runs, or gave back."""
    locked_until: datetime | None

    @property
    def claimable(self) -> bool:
        if self.next_at is None or (self.locked_until is not None and self.locked_until >= self.now):
            return False
        return self.triggered or (not self.paused and (self.next_at <= self.now or self.slot_at is not None))


class Slot(NamedTuple):
    """A slot that is ours, under a token, until its lease ends."""

    at: datetime
    started_at: datetime
    token: int
    attempt: int
    run_id: int


class PeriodicLook(NamedTuple):
    """A periodic job's schedule as it stands."""

    name: str
    text: str
    now: datetime
    next_at: datetime | None
    due: bool | None


class ScheduleLine(NamedTuple):
    """A schedule in a list."""

    name: str
    what: Literal["runner", "job"]
    schedule: str
    edited: bool
    """Not as the code says, or made by hand."""
    paused: bool
    triggered: bool
    next_at: datetime | None
    last_at: datetime | None
    slot_at: datetime | None
    started_at: datetime | None
    attempt: int
    locked_by: int | None
    locked_until: datetime | None


def register_schedules(given: Iterable[tuple[str, Schedule, NewJob[object] | None]]) -> Statement[list[str]]:
    """Store what the code declares, and answer what was new or different. What somebody edited since, stays."""
    rows = [
        f'{{"name":{json.dumps(name)},"schedule":{json.dumps(every.text)}{_job(job)}}}' for name, every, job in given
    ]
    return Statement(statements()["register_schedules"], {"given": f"[{','.join(rows)}]"}, _firsts)


def look_at_schedule(name: str) -> Statement[Look | None]:
    return Statement(
        statements()["look_at_schedule"], {"name": name}, lambda rows: Look._make(rows[0]) if rows else None
    )


def set_next(seen: Mapping[str, str], *, now: datetime) -> Statement[int]:
    """Work out the first slots, as of the database's `now`, of schedules whose texts were these; answer of how many.

    Of the others somebody else did, or edited them.
    """
    params = {
        "names": text_array(seen),
        "seen": text_array(seen.values()),
        "following": text_array(parse(text).next(now).isoformat() for text in seen.values()),
    }
    return Statement(statements()["set_next"], params, len)


def claim_slot(name: str, look: Look, *, worker: int, lease: timedelta) -> Statement[Slot | None]:
    """Take the slot that `look` found due; None when somebody else did."""
    return Statement(
        statements()["claim_slot"],
        {
            "name": name,
            "worker": worker,
            "lease_ms": lease // _MILLISECOND,
            "seen": look.text,
            "seen_next": None if look.next_at is None else look.next_at.isoformat(),
            "following": parse(look.text).next(look.now).isoformat(),
        },
        lambda rows: Slot._make(rows[0]) if rows else None,
    )


def renew_slot(name: str, slot: Slot, *, worker: int, lease: timedelta) -> Statement[bool]:
    """Hold the slot for another lease; False when it was taken away."""
    params: dict[str, Parameter] = {
        "name": name,
        "token": slot.token,
        "worker": worker,
        "lease_ms": lease // _MILLISECOND,
    }
    return Statement(statements()["renew_slot"], params, bool)


def end_slot(  # noqa: PLR0913 - what there is to say of a run
    name: str,
    slot: Slot,
    *,
    worker: int,
    outcome: RunOutcome | None = None,
    counts: str | None = None,
    failure: Failure | None = None,
    again: bool = False,
) -> Statement[bool]:
    """End the slot, or give it back to be run `again`, and record the run if it has an outcome; False: it was lost."""
    return Statement(
        statements()["end_slot"],
        {
            "name": name,
            "worker": worker,
            "token": slot.token,
            "again": again,
            "outcome": outcome,
            "counts": counts,
            "error_code": failure.code if failure else None,
            "error": failure.text if failure else None,
        },
        _only,
    )


def look_at_periodic_jobs(names: Iterable[str], *, most: int = 1000) -> Statement[list[PeriodicLook]]:
    """Read the schedules of these periodic jobs and of those made by hand, the most urgent first."""
    params: dict[str, Parameter] = {"names": text_array(names), "most": most}
    return Statement(
        statements()["look_at_periodic_jobs"], params, lambda rows: [PeriodicLook._make(row) for row in rows]
    )


def enqueue_slots(looks: Sequence[PeriodicLook]) -> Statement[int]:
    """Enqueue the jobs of slots that are due, and move on to the next; answer how many: others took the rest.

    All or none: one job that cannot be enqueued is refused with all the others of the call.
    """
    return Statement(
        statements()["enqueue_slots"],
        {
            "names": text_array(look.name for look in looks),
            "seen": text_array(look.text for look in looks),
            "seen_next": text_array(None if look.next_at is None else look.next_at.isoformat() for look in looks),
            "following": text_array(parse(look.text).next(look.now).isoformat() for look in looks),
        },
        len,
    )


def pause_schedule(name: str) -> Statement[bool]:
    """Start no more of its slots; False when there is no such schedule."""
    return Statement(statements()["pause_schedule"], {"name": name}, bool)


def resume_schedule(name: str) -> Statement[bool]:
    """Go on with the next slot: what was missed while it was paused is not run."""
    return Statement(statements()["resume_schedule"], {"name": name}, bool)


def trigger_schedule(name: str) -> Statement[bool]:
    """Run it once, soon, also when it is paused; its slots stay as they are."""
    return Statement(statements()["trigger_schedule"], {"name": name}, bool)


def edit_schedule(name: str, every: Schedule) -> Statement[bool]:
    """Run it by another schedule, until the code declares a new one."""
    return Statement(statements()["edit_schedule"], {"name": name, "schedule": every.text}, bool)


def remove_schedule(name: str) -> Statement[bool]:
    """Forget a schedule that the code no longer declares; one that it does comes back."""
    return Statement(statements()["remove_schedule"], {"name": name}, bool)


def list_schedules(*, most: int = 1000) -> Statement[list[ScheduleLine]]:
    return Statement(
        statements()["list_schedules"], {"most": most}, lambda rows: [ScheduleLine._make(row) for row in rows]
    )


def take_singleton(name: str) -> Statement[bool]:
    """Take the lock of this runner until the transaction ends; False when somebody else has it."""
    return Statement(statements()["take_singleton"], {"key": SINGLETON_KEY + name}, _only)


def keep_singleton() -> str:
    """Return what to run next in that transaction, by the simple protocol.

    By the extended one, the last portal of an open transaction keeps its snapshot, and with it vacuum from its work.
    """
    return statements()["keep_singleton"]


def _job(job: NewJob[object] | None) -> str:
    return "" if job is None else f',"job":{job.as_json()}'


def _firsts(rows: Sequence[Row]) -> list[str]:
    return [row[0] for row in rows]


def _only(rows: Sequence[Row]) -> bool:
    answer: bool = rows[0][0]
    return answer
