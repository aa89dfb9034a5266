"""The time a worker holds a job between two heartbeats."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

SHORTEST_SECONDS = 0.1
LONGEST_SECONDS = 86_400.0


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
