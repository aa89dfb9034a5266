"""How the jobs of a kind are run: their lease, their longest runtime, and where."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, Literal, get_args

from holdfast._model.call import explains
from holdfast._model.retry import Retry

Executor = Literal["thread", "process"]

MOST_IN_A_BATCH = 10_000
# The default `max_runtime`, in leases.
LEASES_OF_A_RUN = 3
SHORTEST_SECONDS = 0.1
LONGEST_SECONDS = 86_400.0


@explains
@dataclass(frozen=True, slots=True)
class Lease:
    """The time after which a job that was not renewed is taken from its worker.

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

    def __post_init__(self) -> None:
        if not (math.isfinite(self.seconds) and SHORTEST_SECONDS <= self.seconds <= LONGEST_SECONDS):
            raise ValueError(f"a lease lasts from {SHORTEST_SECONDS} to {LONGEST_SECONDS:.0f} seconds")

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

    def __post_init__(self) -> None:
        check_option("retry", self.retry, Retry, "Retry(max_attempts=5)")
        check_option("lease", self.lease, Lease, "Lease(seconds=30)")
        check_option("max_runtime", self.max_runtime, timedelta, "timedelta(minutes=10)")
        if self.executor not in get_args(Executor):
            raise ValueError(f"executor: expected one of {', '.join(get_args(Executor))}, got {self.executor!r:.40}")
        if self.batch is not None and (type(self.batch) is not int or not 1 <= self.batch <= MOST_IN_A_BATCH):
            raise ValueError(f"size: expected a whole number from 1 to {MOST_IN_A_BATCH}, got {self.batch!r:.40}")
        if self.max_runtime is not None and self.max_runtime <= timedelta(0):
            raise ValueError("max_runtime: expected more than 0 seconds")

    def limit(self, lease: Lease) -> dict[str, int]:
        """Return the setting that limits the handler's time, in milliseconds. `lease`: used if the kind has none."""
        if self.max_runtime is None:
            return {"lease": (self.lease or lease).milliseconds}
        return {"max_runtime": round(self.max_runtime.total_seconds() * 1000)}

    def longest(self, lease: Lease) -> float:
        """Return how many seconds a handler may run if its job has this lease."""
        return LEASES_OF_A_RUN * lease.seconds if self.max_runtime is None else self.max_runtime.total_seconds()


def check_option(name: str, value: object, expected: type, example: str) -> None:
    """Raise a TypeError that shows the right spelling unless the value is None or of the expected type."""
    if value is not None and not isinstance(value, expected):
        raise TypeError(f"{name}: write {name}={example}, not {type(value).__name__}")
