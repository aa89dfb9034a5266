"""How the jobs of a kind are run: their lease, their longest runtime, and where."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import ClassVar, Literal, get_args

from holdfast._model.call import explains
from holdfast._model.duration import DAY, MORE_THAN_ZERO, Duration, as_timedelta
from holdfast._model.retry import Retry

Executor = Literal["thread", "process"]
LogLevel = Literal["debug", "info", "warning", "error", "critical"]

MOST_IN_A_BATCH = 10_000
# The default `max_runtime`, in leases.
LEASES_OF_A_RUN = 3
SHORTEST_LEASE = timedelta(milliseconds=100)


@explains
@dataclass(frozen=True, slots=True, init=False)
class Lease:
    """The time after which a job that was not renewed is taken from its worker, in seconds or as a timedelta.

    >>> Lease.external.duration
    datetime.timedelta(seconds=120)
    """

    seconds: float = 60
    """From 0.1 seconds to a day. Default: 60 seconds."""

    standard: ClassVar[Lease]
    """30 seconds: short work inside your own systems."""
    heavy: ClassVar[Lease]
    """60 seconds: rendering, imports."""
    external: ClassVar[Lease]
    """120 seconds: calls to third-party services."""

    def __init__(self, seconds: Duration = 60) -> None:
        given = as_timedelta("lease", seconds, least=SHORTEST_LEASE, limit=DAY)
        object.__setattr__(self, "seconds", given.total_seconds())

    @property
    def duration(self) -> timedelta:
        """The lease as a timedelta."""
        return timedelta(seconds=self.seconds)

    @property
    def milliseconds(self) -> int:
        """The lease in whole milliseconds."""
        return round(self.seconds * 1000)


Lease.standard = Lease(seconds=30)
Lease.heavy = Lease(seconds=60)
Lease.external = Lease(seconds=120)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """How the jobs of a kind are run."""

    retry: Retry | None = None
    """Default: the worker's, with HOLDFAST_RETRY_MAX_ATTEMPTS of the process that makes the job."""
    lease: Lease | None = None
    """Default: the worker's."""
    max_runtime: timedelta | None = None
    """Default: three times the lease."""
    executor: Executor = "thread"
    """Where a plain function runs. Default: in a thread of the worker."""
    batch: int | None = None
    """The most jobs that a batch handler takes in one call. Default: None, it is not a batch handler."""
    keep_logs: LogLevel | None = None
    """The lowest level of records that are kept with an attempt that does not complete. Default: None is kept."""
    in_process: bool = field(init=False, repr=False)
    """Whether the handler runs in a process of its own. A field, because it is read several times for each job."""

    def __post_init__(self) -> None:
        check_option("retry", self.retry, Retry, "Retry(max_attempts=5)")
        check_option("lease", self.lease, Lease, "Lease(seconds=30)")
        if self.executor not in get_args(Executor):
            raise ValueError(f"executor: expected one of {', '.join(get_args(Executor))}, got {self.executor!r:.40}")
        if self.batch is not None and (type(self.batch) is not int or not 1 <= self.batch <= MOST_IN_A_BATCH):
            raise ValueError(f"size: expected a whole number from 1 to {MOST_IN_A_BATCH}, got {self.batch!r:.40}")
        if self.keep_logs is not None:
            if self.keep_logs not in get_args(LogLevel):
                raise ValueError(
                    f"keep_logs: expected one of {', '.join(get_args(LogLevel))}, got {self.keep_logs!r:.40}"
                )
            if self.executor == "process":
                raise ValueError('keep_logs: the records of a process do not reach the worker: use executor="thread"')
        object.__setattr__(self, "in_process", self.executor == "process")

    def limit(self, lease: Lease) -> dict[str, int]:
        """Return the setting that limits the handler's time, in milliseconds. `lease`: used if the kind has none."""
        if self.max_runtime is None:
            return {"lease": (self.lease or lease).milliseconds}
        return {"max_runtime": round(self.max_runtime.total_seconds() * 1000)}

    def longest(self, lease: Lease) -> float:
        """Return how many seconds a handler may run if its job has this lease."""
        return LEASES_OF_A_RUN * lease.seconds if self.max_runtime is None else self.max_runtime.total_seconds()


def work_of(  # noqa: PLR0913 - one keyword per setting
    *,
    retry: Retry | None,
    lease: Lease | Duration | None,
    max_runtime: Duration | None,
    executor: Executor = "thread",
    batch: int | None = None,
    keep_logs: LogLevel | None = None,
) -> Work:
    """Return the work of a kind from the arguments with which it is registered."""
    held = lease if isinstance(lease, Lease | None) else Lease(lease)
    return Work(
        retry=retry,
        lease=held,
        max_runtime=longest_run(max_runtime),
        executor=executor,
        batch=batch,
        keep_logs=keep_logs,
    )


def longest_run(max_runtime: Duration | None) -> timedelta | None:
    """Return a `max_runtime` as it was given, checked."""
    return None if max_runtime is None else as_timedelta("max_runtime", max_runtime, least=MORE_THAN_ZERO)


def check_option(name: str, value: object, expected: type, example: str) -> None:
    """Raise a TypeError that shows the right spelling unless the value is None or of the expected type."""
    if value is not None and not isinstance(value, expected):
        raise TypeError(f"{name}: write {name}={example}, not {type(value).__name__}")
