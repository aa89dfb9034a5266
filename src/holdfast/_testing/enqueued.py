"""Jobs as they were enqueued, and their comparison with an expected job."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

from holdfast._logs.trace import TRACEPARENT
from holdfast._model.new_job import Envelope, IfBlockerFails, NewJob, OrderKey, Unique

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast._model.codec import JsonCodec
    from holdfast._store.testing import EnqueuedRow

# The most jobs in a message, and the longest excerpt of each payload.
MOST_SHOWN = 10
LONGEST_SHOWN = 200

_MILLISECOND = timedelta(milliseconds=1)
_LIVE = frozenset({"blocked", "pending", "processing"})
_OPTIONS = (
    "queue",
    "priority",
    "max_attempts",
    "delay",
    "at",
    "order_key",
    "unique",
    "expires",
    "headers",
    "after",
    "if_blocker_fails",
)


@dataclass(frozen=True, slots=True)
class Enqueued:
    """A job in the database, whether it waits, runs or has ended."""

    id: int
    status: str
    payload: Any
    """The handler's arguments by name, as JSON."""
    queue: str
    priority: int
    max_attempts: int | None
    headers: Mapping[str, str]
    order_key: OrderKey | None
    unique_key: str | None
    created_at: datetime
    available_at: datetime
    expires_at: datetime | None
    """Also None for a job that has ended."""
    after: tuple[int, ...] | None
    """The chains it comes after. None for an ended job that is no dead letter, because that is not stored."""
    if_blocker_fails: IfBlockerFails | None
    """None in the same cases as `after`."""

    @property
    def delay(self) -> timedelta:
        """The time from enqueuing until it was due."""
        return self.available_at - self.created_at


def enqueued_of(row: EnqueuedRow, codec: JsonCodec) -> Enqueued:
    key = None if row.order_key is None else OrderKey(row.order_key, on_failure="block" if row.order_block else "next")
    return Enqueued(
        id=row.id,
        status=row.status,
        payload=codec.decode(row.payload or "{}"),
        queue=row.queue,
        priority=row.priority,
        max_attempts=row.max_attempts,
        headers=json.loads(row.headers) if row.headers else {},
        order_key=key,
        unique_key=row.unique_key,
        created_at=row.created_at,
        available_at=row.available_at,
        expires_at=row.expires_at,
        after=None if row.after is None else tuple(row.after),
        if_blocker_fails=None if row.run_anyway is None else "run" if row.run_anyway else "fail",
    )


class Expected:
    """A job expected to be enqueued: its payload, and the options that differ from its kind's."""

    def __init__(self, job: NewJob[Any], default: Envelope, codec: JsonCodec) -> None:
        self.kind = job.kind
        self._payload = _canonical(codec.decode(job.payload))
        given = ((name, getattr(job.envelope, name)) for name in _OPTIONS)
        self._options = {name: value for name, value in given if value != getattr(default, name)}

    def __str__(self) -> str:
        return ", ".join(
            [f"{self.kind} {_cut(self._payload)}", *(f"{n}={_shown(v)}" for n, v in self._options.items())]
        )

    def fits(self, found: Enqueued) -> bool:
        return _canonical(found.payload) == self._payload and not self._others(found)

    def complaint(self, jobs: Sequence[Enqueued], kinds: Mapping[str, int], times: int) -> str:
        """Return a message with how often it was found, and which jobs exist instead."""
        found = sum(self.fits(job) for job in jobs)
        lines = [f"{self} was enqueued {_times(found)}, not {_times(times)}."]
        if jobs:
            lines += ["Of its kind there are:", *(self._line(job) for job in jobs[:MOST_SHOWN])]
        elif kinds:
            lines += ["Nothing of its kind, but:", *(f"  {kind}: {n}" for kind, n in list(kinds.items())[:MOST_SHOWN])]
        else:
            lines.append("No job of any kind is in this database.")
        if (more := len(jobs or kinds) - MOST_SHOWN) > 0:
            lines.append(f"  … and {more} more")
        return "\n".join(lines)

    def _line(self, job: Enqueued) -> str:
        others = "".join(f", but {name}={_shown(value)}" for name, value in self._others(job).items())
        return f"  job {job.id}, {job.status}: {_cut(_canonical(job.payload))}{others}"

    def _others(self, found: Enqueued) -> dict[str, Any]:
        """Return the given options whose value differs in this job."""
        seen = {name: _seen(found, name, given) for name, given in self._options.items()}
        return {name: value for name, value in seen.items() if value != _written(name, self._options[name], found)}


def _seen(found: Enqueued, name: str, given: Any) -> Any:  # noqa: PLR0911 - one line per option
    """Return an option of a job in the form in which it was given."""
    match name:
        case "at":
            return found.available_at
        case "unique":
            return found.unique_key
        case "expires" if found.status not in _LIVE:
            return given  # not stored in the history
        case "expires" if found.expires_at is not None and isinstance(given, timedelta):
            return found.expires_at - found.created_at
        case "expires":
            return found.expires_at
        case "headers" if TRACEPARENT not in dict(given):
            # Holdfast adds this header inside a trace.
            return {header: value for header, value in found.headers.items() if header != TRACEPARENT}
        case "after" | "if_blocker_fails" if found.after is None:
            return given  # not stored in the history
    return getattr(found, name)


def _written(name: str, given: Any, found: Enqueued) -> Any:
    """Return a given option as the database stores it."""
    match name, given:
        case "at", _:
            return max(given, found.created_at)  # a past time becomes the present
        case "unique", _:
            return given.key
        case "headers", _:
            return dict(given)
        case _, timedelta():
            return given // _MILLISECOND * _MILLISECOND
    return given


def _shown(value: object) -> str:
    match value:
        case Unique(key):
            return repr(key)
        case ((str(), str()), *_):
            return _cut(repr(dict(cast("Any", value))))
        case datetime() | timedelta():
            return str(value)
    return _cut(repr(value))


def _canonical(value: object) -> str:
    # Compare as text, because 1 == True in Python.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"
