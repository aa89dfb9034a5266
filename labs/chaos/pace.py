"""How fast a site of the lab lives: its leases, heartbeats and polls."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """The times of the lab, in seconds."""

    lease: float = 2.0
    heartbeat: float = 0.4
    reap: float = 0.5
    idle: float = 8.0
    """The longest pause between two polls: so long that a worker that claims sooner was woken."""
    slack: float = 0.0
    """Additional tolerance in seconds, where the machine may stand still."""

    @property
    def bound(self) -> float:
        """Within this time of being healed the fleet must have recovered."""
        return self.lease + self.reap + 2 + self.slack
