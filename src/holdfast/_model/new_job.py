"""A validated job that is not enqueued yet, and its options."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypeVar, get_args

from holdfast._logs.log import TRACEPARENT
from holdfast._model.call import explained, explains, type_name
from holdfast._model.duration import MILLISECOND, Duration, as_timedelta
from holdfast._model.errors import InvalidJob
from holdfast._model.handle import Handle
from holdfast._model.limit import check_argument, key_text
from holdfast._model.option import (
    KEY_LIMIT,
    KIND_LIMIT,
    QUEUE_LIMIT,
    check_choice,
    check_number,
    check_text,
    check_time,
    check_type,
    checked_headers,
    checked_tags,
    frozen_headers,
)
from holdfast._model.unique import Unique

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast._model.limit import Limit

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)

OnFailure: TypeAlias = Literal["next", "block"]
IfBlockerFails: TypeAlias = Literal["fail", "run"]

LAST_ID = 2**63 - 1
LAST_PRIORITY = 9
MOST_ATTEMPTS = 1000
NO_LIMIT = -1
MOST_BLOCKERS = 10_000
MOST_IN_GROUP = 100_000
LONGEST_DELAY = timedelta(days=3_660)
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


class Omitted(Enum):
    """Marks an option that was not given and keeps its value."""

    OMITTED = "omitted"


OMITTED: Final = Omitted.OMITTED


@explains
@dataclass(frozen=True, slots=True)
class OrderKey:
    """Makes jobs with the same key run one at a time, in the order in which they were enqueued."""

    key: str
    _: KW_ONLY
    on_failure: OnFailure = "next"
    """When a job fails: run the `next` one (default), or `block` the key until `resume_order_key` is called."""

    def __post_init__(self) -> None:
        check_text("order_key", self.key, KEY_LIMIT)
        check_choice("on_failure", self.on_failure, get_args(OnFailure))


@dataclass(frozen=True, slots=True)
class Envelope:
    """A new job without its payload; shared by jobs that have the same options."""

    kind: str
    payload_version: int = 1
    _: KW_ONLY
    queue: str = "default"
    priority: int = 5
    max_attempts: int | None = 3
    """None: no limit."""
    delay: timedelta | None = None
    at: datetime | None = None
    order_key: OrderKey | None = None
    unique: Unique | None = None
    expires: timedelta | datetime | None = None
    headers: tuple[tuple[str, str], ...] = ()
    after: tuple[int, ...] = ()
    if_blocker_fails: IfBlockerFails = "fail"
    limits: tuple[str, ...] = ()
    """The keys of the limits that it counts in."""
    on_failure: NewJob[Any] | None = None
    tenant: str | None = None
    """The value by which the jobs of its kind take turns."""
    tags: tuple[str, ...] = ()
    head: str = field(init=False, repr=False, compare=False)
    """The start of the job's JSON object; the payload is appended to it."""
    plain: bool = field(init=False, repr=False, compare=False)
    """Whether only queue, priority and attempts are set: such a job is enqueued by a shorter statement."""

    def __post_init__(self) -> None:
        check_text("kind", self.kind, KIND_LIMIT)
        check_text("queue", self.queue, QUEUE_LIMIT)
        check_number("version", self.payload_version, 1, 32_767)
        check_number("priority", self.priority, 0, LAST_PRIORITY)
        if self.max_attempts is not None:
            check_number("max_attempts", self.max_attempts, 1, MOST_ATTEMPTS)
        plain = (
            ("payload_version", self.payload_version, 1),
            ("queue", self.queue, "default"),
            ("priority", self.priority, 5),
            ("max_attempts", self.attempts, 3),
        )
        members: dict[str, object] = {"kind": self.kind}
        members |= {name: value for name, value, default in plain if value != default}
        members |= self._times() | self._keys() | self._blockers()
        if self.limits:
            members["limits"] = self.limits
        if self.tenant is not None:
            members["tenant"] = self.tenant
        if self.tags:
            members["tags"] = self.tags
        if self.headers:
            # It must be the last member: `traced_head` appends to it.
            members["headers"] = checked_headers(self.headers)
        head = _JSON.encode(members)[:-1]
        if self.on_failure is not None:
            head = f'{{"on_failure":{_checked_on_failure(self.on_failure).as_json()},{head[1:]}'
        object.__setattr__(self, "head", head)
        plain_only = members.keys() <= {"kind", "queue", "priority", "max_attempts"} and self.on_failure is None
        object.__setattr__(self, "plain", plain_only)

    @property
    def attempts(self) -> int:
        """`max_attempts` as SQL takes it, where null means the default and -1 means no limit."""
        return NO_LIMIT if self.max_attempts is None else self.max_attempts

    def with_keys(
        self, unique: Unique | None, limits: Sequence[Limit], tenant: str | None, arguments: Mapping[str, object]
    ) -> Envelope:
        """Return the envelope of a job with these JSON arguments, which may make its unique key, limits and tenant."""
        if unique is None and not limits and tenant is None:
            return self
        kind = self.kind
        value = None
        if tenant is not None:
            check_argument(kind, f"tenant={tenant!r}", tenant, arguments)
            value = arguments[tenant]
        return replace(
            self,
            unique=None if unique is None else unique.of(kind, arguments),
            limits=tuple([limit.key(kind, arguments) for limit in limits]),
            tenant=None if value is None else key_text(value) or '""',
        )

    def traced_head(self, trace: str) -> str:
        """Return `head` with this trace in its headers, unless they contain one."""
        if not self.headers:
            return f'{self.head},"headers":{{"{TRACEPARENT}":"{trace}"}}'
        if any(name == TRACEPARENT for name, _ in self.headers):
            return self.head
        return f'{self.head[:-1]},"{TRACEPARENT}":"{trace}"}}'

    def _times(self) -> dict[str, object]:
        members: dict[str, object] = {}
        if self.delay is not None and self.at is not None:
            raise InvalidJob("delay, at: both say when the job is due: give one of them")
        if self.delay is not None:
            members["delay_ms"] = self.delay // MILLISECOND
        elif self.at is not None:
            members["at"] = check_time("at", self.at)
        match self.expires:
            case None:
                pass
            case datetime():
                members["expires_at"] = check_time("expires", self.expires)
                if self.at is not None and self.expires <= self.at:
                    raise InvalidJob("expires: the job would expire before it is due: give a later time")
            case _:
                members["expires_ms"] = self.expires // MILLISECOND
                if self.delay is not None and self.expires <= self.delay:
                    raise InvalidJob("expires: the job would expire before it is due: give a later time")
        return members

    def _keys(self) -> dict[str, object]:
        members: dict[str, object] = {}
        if self.order_key is not None:
            members["order_key"] = check_type("order_key", self.order_key, OrderKey).key
            if self.order_key.on_failure == "block":
                members["order_block"] = True
        if self.unique is not None:
            members["unique_key"] = check_type("unique", self.unique, Unique).key
            if self.unique.window is not None:
                members["unique_window_ms"] = self.unique.window // MILLISECOND
            if self.unique.on_conflict != "keep":
                members["on_conflict"] = self.unique.on_conflict
        return members

    def _blockers(self) -> dict[str, object]:
        check_choice("if_blocker_fails", self.if_blocker_fails, get_args(IfBlockerFails))
        if not self.after:
            return {}
        if len(self.after) > MOST_BLOCKERS:
            raise InvalidJob(f"after: at most {MOST_BLOCKERS} chains")
        for chain in self.after:
            check_number("after", chain, 1, LAST_ID)
        members: dict[str, object] = {"blockers": self.after}
        return members | {"run_anyway": True} if self.if_blocker_fails == "run" else members


# No slots: on Python 3.11 a frozen dataclass with slots cannot be created through its parametrized name, NewJob[str].
@dataclass(frozen=True)
class NewJob(Generic[R_co]):
    """A validated job that is not enqueued yet; R is the type of its result."""

    envelope: Envelope
    payload: str
    """JSON text."""
    decode: Callable[[str | None], R_co] | None = field(default=None, repr=False, compare=False)
    """Decodes the chain's result from JSON text."""
    encode: Callable[[Any], object] | None = field(default=None, repr=False, compare=False)
    """Converts the chain's result to JSON-serializable values."""
    arguments: Mapping[str, object] | None = field(default=None, repr=False, compare=False)
    """The handler's arguments by name, as JSON data, before the codec encodes them."""

    @property
    def kind(self) -> str:
        """The name of the job's kind."""
        return self.envelope.kind

    @property
    def payload_version(self) -> int:
        """The version of the payload's format."""
        return self.envelope.payload_version

    @explained("options")
    def options(  # noqa: PLR0913 - one keyword per option
        self,
        *,
        delay: Duration | Omitted | None = OMITTED,
        at: datetime | Omitted | None = OMITTED,
        priority: int | Omitted = OMITTED,
        queue: str | Omitted = OMITTED,
        order_key: str | OrderKey | Omitted | None = OMITTED,
        unique: str | Unique | Omitted | None = OMITTED,
        expires: Duration | datetime | Omitted | None = OMITTED,
        headers: Mapping[str, str] | Omitted = OMITTED,
        max_attempts: int | Omitted | None = OMITTED,
        after: Iterable[Handle[Any] | int] | Omitted = OMITTED,
        if_blocker_fails: IfBlockerFails | Omitted = OMITTED,
        on_failure: NewJob[Any] | Omitted | None = OMITTED,
        tags: Iterable[str] | Omitted = OMITTED,
    ) -> NewJob[R_co]:
        """Return a copy of the job with these options changed; options not given keep their value.

        `delay`, seconds or a timedelta, and `at`: when the job is due; one replaces the other. Default: at once.
        `expires`, seconds, a timedelta or a datetime: cancel the job if it has not started by then. Default: never.
        `priority`: 0 to 9, lower runs first. Default: the kind's. `max_attempts`: attempts in all; None is no limit.
        Default: the kind's, else HOLDFAST_RETRY_MAX_ATTEMPTS. `after`: chains, by handle or id, that must complete
        before the job runs. If one does not complete, the job fails too, or with `if_blocker_fails="run"` runs and
        finds it in `job.blockers`. `on_failure`: another job, enqueued in the transaction in which this one becomes a
        dead letter; it finds the failure in `job.blockers`. Default: none. `tags`: at most 8 words of 100 bytes to find
        it by, as in `app.list_jobs(conn, tag="eu")`. Default: the kind's. `unique`: a key, or a `Unique`: one such job
        at a time. Default: the kind's.

        >>> NewJob(Envelope("mail"), "{}").options(delay=3600).as_json()
        '{"kind":"mail","delay_ms":3600000,"payload":{}}'
        """
        now = self.envelope
        due = (now.delay, now.at) if delay is OMITTED and at is OMITTED else (_delay(delay), _chosen(at, None))
        envelope = Envelope(
            now.kind,
            now.payload_version,
            queue=_chosen(queue, now.queue),
            priority=_chosen(priority, now.priority),
            max_attempts=_chosen(max_attempts, now.max_attempts),
            delay=due[0],
            at=due[1],
            order_key=OrderKey(order_key) if isinstance(order_key, str) else _chosen(order_key, now.order_key),
            unique=now.unique if isinstance(unique, Omitted) else self._unique(unique),
            expires=now.expires if isinstance(expires, Omitted) else _expires(expires),
            headers=now.headers if headers is OMITTED else frozen_headers(headers),
            after=now.after if after is OMITTED else _chain_ids(after),
            if_blocker_fails=_chosen(if_blocker_fails, now.if_blocker_fails),
            limits=now.limits,
            on_failure=_chosen(on_failure, now.on_failure),
            tenant=now.tenant,
            tags=now.tags if isinstance(tags, Omitted) else checked_tags(tags),
        )
        return NewJob(envelope, self.payload, self.decode, self.encode, self.arguments)

    def _unique(self, given: str | Unique | None) -> Unique | None:
        if given is None or isinstance(given, str):
            return None if given is None else Unique(given)
        if check_type("unique", given, Unique).names is not None and self.arguments is None:
            raise InvalidJob(
                f"{self.kind}: Unique.by: this job has lost its arguments: make it with the kind's .new(…)"
            )
        return given.of(self.kind, self.arguments or {})

    def __reduce__(self) -> tuple[Any, ...]:
        # A handler in a child process may return it; the functions for its result stay in the parent.
        return NewJob, (self.envelope, self.payload)

    def as_json(self, trace: str | None = None) -> str:
        """Return the JSON object that the SQL function enqueue_jobs takes. `trace`: a `traceparent` for its headers."""
        head = self.envelope.head if trace is None else self.envelope.traced_head(trace)
        return f'{head},"payload":{self.payload}}}'


def check_group(jobs: Sequence[NewJob[Any]], last: NewJob[Any]) -> None:
    """Raise InvalidJob if a group is too large. A `last` with a unique key names the chains of all jobs."""
    most = MOST_IN_GROUP if last.envelope.unique is None else MOST_BLOCKERS - len(last.envelope.after)
    if len(jobs) > most:
        where = "" if last.envelope.unique is None else " before one with a unique key"
        raise InvalidJob(f"group: at most {most} jobs{where}")


def check_new_job(job: object, function: str) -> None:
    """Raise a TypeError that shows the right spelling unless `job` is one. `function`: as users write it."""
    if isinstance(job, NewJob):
        return
    name = getattr(job, "name", None)
    if inspect.iscoroutine(job):
        job.close()
        problem = f"{job.__name__}(…) calls the handler: write {job.__name__}.new(…), which makes a job"
    elif callable(getattr(job, "new", None)) and isinstance(name, str):
        problem = f"{name} is a {type(job).__name__}, not a job: call its .new(…) and give what it returns"
    elif type(job).__name__ == "NewEvent":
        problem = "this is an event: use app.publish(conn, event)"
    elif hasattr(job, "cursor"):
        problem = f"expected a job, got {type(job).__name__}: the connection comes first, then the job"
    else:
        problem = f"expected a job, got {type_name(job)}: make one with a kind's .new(…)"
    raise TypeError(f"{function}: {problem}")


def _checked_on_failure(job: NewJob[Any]) -> NewJob[Any]:
    """Return a job for the failure of another, if enqueueing it then can neither fail nor wait."""
    check_new_job(job, "on_failure")
    if job.envelope.after:
        raise InvalidJob(f"on_failure: {job.kind} comes after other chains; it can come after this one only")
    if job.envelope.unique is not None and job.envelope.unique.on_conflict != "keep":
        raise InvalidJob(
            f'on_failure: {job.kind} has a unique key with on_conflict="{job.envelope.unique.on_conflict}": use "keep"'
        )
    return job


def check_result(kind: str, result: object) -> None:
    """Raise InvalidJob for what a handler returns by mistake in place of its result."""
    if isinstance(result, NewJob):
        raise InvalidJob(
            f"{kind}: a job was returned: to run {result.kind} next in this chain, return Continue(job); to run it "
            "beside, enqueue it and return something else"
        )
    if inspect.iscoroutine(result):
        result.close()
        raise InvalidJob(
            f"{kind}: the coroutine {result.__name__}(…) was returned, not its result: write await before it"
        )


def _chosen(given: T | Omitted, now: T) -> T:
    return now if isinstance(given, Omitted) else given


def _delay(given: Duration | Omitted | None) -> timedelta | None:
    if given is None or isinstance(given, Omitted):
        return None
    return as_timedelta("delay", given, limit=LONGEST_DELAY, error=InvalidJob)


def _expires(given: Duration | datetime | None) -> timedelta | datetime | None:
    if given is None:
        return None
    if isinstance(given, datetime):
        # Only here, and by this clock, which the time was probably computed with: a job that is read back, or enqueued
        # later, may have expired meanwhile.
        if given.utcoffset() is not None and given <= datetime.now(UTC):
            raise InvalidJob(
                f"expires: {given.isoformat()} has passed: such a job would never start. Give a later time"
            )
        return given
    return as_timedelta(
        "expires", given, least=MILLISECOND, limit=LONGEST_DELAY, others=" or a datetime", error=InvalidJob
    )


def _chain_ids(after: Iterable[Handle[Any] | int]) -> tuple[int, ...]:
    if isinstance(after, Handle | int | NewJob) or not isinstance(after, Iterable):
        given = type(after).__name__
        raise InvalidJob(f"after: expected a list of handles or ids, such as after=[handle], got {given}")
    chains = tuple(chain.chain_id if isinstance(chain, Handle) else chain for chain in after)
    if any(isinstance(chain, NewJob) for chain in chains):
        raise InvalidJob("after: a job that is not enqueued yet has no id: enqueue it first, and give its handle")
    return chains
