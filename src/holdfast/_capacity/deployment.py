"""A deployment: its load, its workers and its hardware."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from holdfast._engine.jobs.finish import MOST_AT_ONCE
from holdfast._engine.jobs.slots import AHEAD_SECONDS, MOST_AHEAD

if TYPE_CHECKING:
    from holdfast._capacity.costs import Cost, Costs


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A load, the workers that serve it, and the hardware. Times are in seconds, sizes in bytes."""

    jobs: float
    """Jobs per second."""
    payload: float = 1000.0
    enqueue_batch: float = 1.0
    """Jobs that a producer enqueues in one call."""
    handler: float = 0.0
    """The time that a handler waits for other services. It occupies a slot."""
    handler_cpu: float = 0.0
    """The CPU time of a handler in the worker's process."""
    failed: float = 0.0
    """The share of jobs that become dead letters."""
    days: float = 14.0
    """Days that completed jobs are kept."""
    days_failed: float = 90.0
    days_events: float = 7.0
    events: float = 0.0
    """Events per second."""
    event_payload: float = 1000.0
    subscriptions: int = 1
    """Subscriptions that relay every event."""
    workers: int = 1
    """Worker processes."""
    concurrency: int = 10
    batch: int = 50
    """Jobs per claim, at most."""
    cores: float = 4.0
    """Cores of the server, or of the one machine if workers and producers share it."""
    shared: bool = False
    """Whether workers and producers run on the server's cores."""
    wal: float = 100e6
    """Bytes of WAL that the disk can write per second."""
    commits: float = 5000.0
    """Commits per second that the disk can make durable, over all sessions."""
    commit: float = 0.002
    """The time of one commit."""
    round_trip: float = 0.0005
    """The time of one round trip between a worker and the server."""
    connections: int = 100
    """Connections that workers may open."""
    disk: float = 100e9
    server_speed: float = 1.0
    """The speed of one core of the server; 1 is that of the machine of the measurements."""
    client_speed: float = 1.0

    def at(self, jobs: float) -> Self:
        """Return the same plan at another rate."""
        return replace(self, jobs=jobs)

    def served_by(self, workers: int) -> Self:
        return replace(self, workers=workers)

    def per_claim(self) -> float:
        """Return how many jobs a claim takes when a worker has no more slots than it needs: what will start soon.

        With free slots a worker claims more often than it must, fewer jobs at a time, as long as it has time.
        """
        soon = self.jobs / max(1, self.workers) * AHEAD_SECONDS
        return min(max(soon, 1.0), max(self.batch, MOST_AHEAD))

    def per_finish(self, costs: Costs) -> float:
        """Return how many outcomes one call writes: those that arrive during the last call.

        Handlers that do not wait end together, as they were claimed.
        """
        pace = self.jobs / max(1, self.workers)
        once = self._seconds(costs.steps["finish"].call)
        busy = pace * costs.item("finish", self.payload, math.inf).server / self.server_speed
        arrive = MOST_AT_ONCE if busy >= 1 else pace * once / (1 - busy)
        return min(max(arrive, 1.0 if self.handler else self.per_claim()), MOST_AT_ONCE)

    def claim_seconds(self, jobs: float, costs: Costs) -> float:
        """Return how long a claim of so many jobs takes."""
        return self._seconds(costs.call("claim", self.payload, jobs))

    def _seconds(self, cost: Cost) -> float:
        return cost.server / self.server_speed + self.commit + self.round_trip
