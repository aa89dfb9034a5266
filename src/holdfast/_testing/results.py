"""The jobs that a test finds and the attempts of a drain, and the comparison with an expected job."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from holdfast._engine.jobs.held_jobs import Fate, fate
from holdfast._logs.log import TRACEPARENT
from holdfast._model.errors import AbortReason, InvalidJob
from holdfast._model.new_job import Envelope, IfBlockerFails, NewJob, OrderKey
from holdfast._model.outcome import Completed, Failed, Released, Retried
from holdfast._model.unique import Unique
from holdfast._store.lease import ClaimAnswer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from holdfast._model.codec import JsonCodec
    from holdfast._model.kind import Kind
    from holdfast._model.outcome import Outcome
    from holdfast._store.claim import ClaimedJob

# The most jobs in a message, and the longest excerpt of each payload.
MOST_SHOWN = 10
LONGEST_SHOWN = 200

_MILLISECOND = timedelta(milliseconds=1)
_LIVE = frozenset({"blocked", "pending", "processing"})
_OPTIONS = (
    "queue", "priority", "max_attempts", "delay", "at", "order_key", "unique", "expires", "headers", "after",
    "if_blocker_fails",
)  # fmt: skip


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


def enqueued_of(codec: JsonCodec, *row: Any) -> Enqueued:
    """Return the job of a row of `enqueued_jobs`."""
    id_, status, payload, headers, queue, priority, max_attempts, created_at, available_at, expires_at, *keys = row
    order_key, order_block, unique_key, after, run_anyway = keys
    return Enqueued(
        id=id_,
        status=status,
        payload=codec.decode(payload or "{}"),
        queue=queue,
        priority=priority,
        max_attempts=max_attempts,
        headers=json.loads(headers) if headers else {},
        order_key=None if order_key is None else OrderKey(order_key, on_failure="block" if order_block else "next"),
        unique_key=unique_key,
        created_at=created_at,
        available_at=available_at,
        expires_at=expires_at,
        after=None if after is None else tuple(after),
        if_blocker_fails=None if run_anyway is None else "run" if run_anyway else "fail",
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
        others = {kind: n for kind, n in kinds.items() if kind != self.kind}
        if jobs:
            nearest = sorted(jobs, key=lambda job: len(self._differences(job)))
            lines += ["Of its kind there are:", *(self._line(job) for job in nearest[:MOST_SHOWN])]
        elif others:
            lines += ["Nothing of its kind, but:", *(f"  {kind}: {n}" for kind, n in list(others.items())[:MOST_SHOWN])]
        else:
            lines.append("No job of any kind is in this database.")
        if (more := len(jobs or others) - MOST_SHOWN) > 0:
            lines.append(f"  … and {more} more")
        if jobs and others:
            lines.append(f"Of other kinds: {', '.join(f'{kind} {n}' for kind, n in list(others.items())[:MOST_SHOWN])}")
        return "\n".join(lines)

    def _line(self, job: Enqueued) -> str:
        differs = "".join(f", but {difference}" for difference in self._differences(job))
        return f"  job {job.id}, {job.status}: {_cut(_canonical(job.payload))}{differs}"

    def _differences(self, found: Enqueued) -> list[str]:
        """Return what differs in this job: its arguments, then the given options."""
        expected, payload = json.loads(self._payload), found.payload
        differs = []
        if isinstance(expected, dict) and isinstance(payload, dict):
            for name in sorted(expected.keys() | payload.keys()):
                if name not in payload:
                    differs.append(f"without {name}")
                elif name not in expected or _canonical(payload[name]) != _canonical(expected[name]):
                    differs.append(f"{name}={_canonical(payload[name]):.60}")
        return differs + [f"{name}={_shown(value)}" for name, value in self._others(found).items()]

    def _others(self, found: Enqueued) -> dict[str, Any]:
        """Return the given options whose value differs in this job."""
        seen = {name: _seen(found, name, given) for name, given in self._options.items()}
        return {name: value for name, value in seen.items() if value != _value_of(name, self._options[name], found)}


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


def _value_of(name: str, given: Any, found: Enqueued) -> Any:
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


Ended: TypeAlias = Literal["completed", "retry", "reschedule", "failed", "cancelled", "released", "lost"]

_WORDS: dict[Fate, Ended] = {
    "job_completed": "completed",
    "job_retried": "retry",
    "job_rescheduled": "reschedule",
    "job_released": "released",
    "job_failed": "failed",
    "job_cancelled": "cancelled",
}


@dataclass(frozen=True, slots=True)
class Ran:
    """One attempt of a job, and its outcome."""

    id: int
    kind: str
    attempt: int
    outcome: Ended
    result: Any = None
    """The handler's return value in its declared type; plain JSON if it does not fit that type."""
    error_code: str | None = None
    error: str | None = None
    """Normalized and bounded, as stored in the database."""
    exception: BaseException | None = None
    """The exception that the handler raised."""

    def __str__(self) -> str:
        ended = self.outcome if self.error_code is None else f"{self.outcome}: {self.error_code}: {self.error}"
        return f"{self.kind} (job {self.id}, attempt {self.attempt}) {ended}"


@dataclass(frozen=True, slots=True)
class Drained:
    """The attempts of a drain in order. Its lists contain job ids."""

    attempts: tuple[Ran, ...]

    def __iter__(self) -> Iterator[Ran]:
        return iter(self.attempts)

    def __len__(self) -> int:
        return len(self.attempts)

    @property
    def completed(self) -> list[int]:
        """Completed by their handlers."""
        return self._ids("completed")

    @property
    def retried(self) -> list[int]:
        """Failed, and waiting for another attempt."""
        return self._ids("retry")

    @property
    def rescheduled(self) -> list[int]:
        """Postponed by their handlers."""
        return self._ids("reschedule")

    @property
    def released(self) -> list[int]:
        """Given back without counting the attempt: Busy, or a payload that the handler does not accept."""
        return self._ids("released")

    @property
    def failed(self) -> list[int]:
        """Dead letters."""
        return self._ids("failed")

    @property
    def cancelled(self) -> list[int]:
        """Cancelled, or expired before they started."""
        return self._ids("cancelled")

    @property
    def lost(self) -> list[int]:
        """Their lease expired, or another worker ended them while they ran."""
        return self._ids("lost")

    def _ids(self, outcome: Ended) -> list[int]:
        return [ran.id for ran in self.attempts if ran.outcome == outcome]


def ran_of(job: ClaimedJob, outcome: Outcome | None, answer: ClaimAnswer, kind: Kind[..., Any]) -> Ran:
    """Return the entry for an attempt, given the database's `answer` to its outcome."""
    failure = getattr(outcome, "failure", None)
    text = outcome.result if isinstance(outcome, Completed) else None
    return Ran(
        job.id,
        job.kind,
        job.attempt,
        _ended(outcome, answer),
        result=None if text is None else _result(kind, text),
        error_code=None if failure is None else failure.code,
        error=None if failure is None else failure.text,
        exception=getattr(outcome, "exception", None),
    )


def error_of(outcome: Outcome | None, ran: Ran) -> BaseException | None:
    """Return the error for a test to fail with: the handler's exception, or the reason why it did not run."""
    match outcome:
        case Failed() | Retried():
            return ran.exception or AssertionError(str(ran))
        case Released() if ran.error_code is not None:
            return AssertionError(str(ran))
    return None


def _result(kind: Kind[..., Any], text: str) -> object:
    try:
        return kind.read_result(text)
    except InvalidJob:
        # As in a worker, this is no failure of the job.
        return kind.codec.decode(text)


def _ended(outcome: Outcome | None, answer: ClaimAnswer) -> Ended:
    if answer is ClaimAnswer.busy:
        raise AssertionError("another connection has the row of this job locked, so that its ending cannot be written")
    if outcome is None or isinstance(ended := fate(outcome, answer), AbortReason):
        return "lost"
    return _WORDS[ended]
