"""The facts that explain why jobs or events wait: reports of workers, pauses, stopped order keys, locks."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from holdfast._store.statement import Row, Statement, many, number_array, statement

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class RepeatedError(NamedTuple):
    """The errors of a kind in one worker, as its last heartbeat reported them."""

    worker: str
    queue: str
    kind: str
    code: str
    text: str
    since: datetime
    last: datetime
    failed: int
    """Within the last fifteen seconds before the heartbeat, as the two below."""
    retried: int
    completed: int


class SilentSink(NamedTuple):
    """A sink that has taken nothing since its first failure."""

    worker: str
    subscription: str
    code: str
    text: str
    since: datetime
    next_at: datetime
    tries: int


class UnreadPayload(NamedTuple):
    """Jobs of one payload version that a worker gave back, because its code cannot read them."""

    worker: str
    kind: str
    version: int
    own: int
    """The newest version that the worker reads."""
    since: datetime
    last: datetime
    jobs: int
    """Within the last fifteen seconds before the heartbeat."""


class LongRun(NamedTuple):
    """Jobs of a kind that run in one worker, the longest for more than a few seconds."""

    worker: str
    queue: str
    kind: str
    jobs: int
    since: datetime
    """When the first of them started."""
    full: bool
    """Whether no slot of the queue is free."""


class Pause(NamedTuple):
    what: Literal["queue", "schedule", "relay"]
    name: str
    at: datetime | None
    by: str | None
    reason: str | None


class StoppedKey(NamedTuple):
    """An order key that a dead letter stopped."""

    key: str
    job: int
    at: datetime
    kind: str | None
    code: str | None
    waiting: int
    """At most 1,000 are counted."""


class Signals(NamedTuple):
    errors: list[RepeatedError]
    sinks: list[SilentSink]
    unread: list[UnreadPayload]
    running: list[LongRun]
    reporting: frozenset[str]
    """The workers with a report."""
    pauses: list[Pause]
    stops: list[StoppedKey]
    earlier_at: datetime | None
    earlier_due: Mapping[str, int]
    """Due jobs at an earlier census, by queue."""


class Locker(NamedTuple):
    """A session whose lock on a table keeps others waiting."""

    pid: int
    user: str | None
    application: str | None
    table: str
    seconds: float
    waiting: int

    @property
    def text(self) -> str:
        """The holder of the lock, in a sentence without a full stop."""
        program = f" ({self.application})" if self.application else ""
        who = f"Session {self.pid}{program} of the user {self.user or 'unknown'}"
        return f"{who} has locked the table holdfast.{self.table} for {self.seconds:.0f} s"

    @property
    def cure(self) -> str:
        """The command that ends the session."""
        return f'psql -c "SELECT pg_terminate_backend({self.pid})"'


class KindEnds(NamedTuple):
    """The attempts of a kind that ended with one outcome, in some minutes and in the last two of these."""

    queue: str
    kind: str
    outcome: str
    jobs: int
    lately: int


MOST_KINDS = 5_000
# The backlog is compared with the census that is at least so old.
_EARLIER_MS = 20_000


def read_signals(earlier_ms: int = _EARLIER_MS) -> Statement[Signals]:
    return statement("read_signals", _signals, earlier_ms=earlier_ms)


def read_lockers() -> Statement[list[Locker]]:
    return statement("read_lockers", many(Locker))


def count_held(workers: Iterable[int]) -> Statement[dict[int, int]]:
    """Return how many jobs each of these workers holds."""
    return statement("count_held", dict, workers=number_array(workers))


def read_recent_ends(minutes: int) -> Statement[list[KindEnds]]:
    return statement("read_recent_ends", many(KindEnds), minutes=minutes, limit=MOST_KINDS)


def _signals(rows: Sequence[Row]) -> Signals:
    found: dict[str, Any] = json.loads(rows[0][0])
    reports = [(name, _time(at), report) for name, at, report in found["reports"] or ()]
    earlier = found["earlier"] or (None, None)
    return Signals(
        errors=[
            RepeatedError(name, queue, kind, code, text, _before(at, since), _before(at, last), *counts)
            for name, at, report in reports
            for queue, kind, code, text, since, last, *counts in report.get("errors", ())
        ],
        sinks=[
            SilentSink(name, subscription, code, text, _before(at, since), _before(at, -ahead), tries)
            for name, at, report in reports
            for subscription, code, text, since, ahead, tries in report.get("sinks", ())
        ],
        unread=[
            UnreadPayload(name, kind, version, own, _before(at, since), _before(at, last), jobs)
            for name, at, report in reports
            for kind, version, own, since, last, jobs in report.get("unread", ())
        ],
        running=[
            LongRun(name, queue, kind, jobs, _before(at, since), full)
            for name, at, report in reports
            for queue, kind, jobs, since, full in report.get("running", ())
        ],
        reporting=frozenset(name for name, _, _ in reports),
        pauses=[
            Pause(what, name, at and _time(at), by, reason) for what, name, at, by, reason in found["pauses"] or ()
        ],
        stops=[StoppedKey(key, job, _time(at), *rest) for key, job, at, *rest in found["stops"] or ()],
        earlier_at=earlier[0] and _time(earlier[0]),
        earlier_due=earlier[1] or {},
    )


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _before(at: datetime, ms: int) -> datetime:
    return at - timedelta(milliseconds=ms)
