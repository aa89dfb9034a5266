"""Everything that can be done to a site, one module per family."""

from __future__ import annotations

from labs.chaos.faults import (
    broker,
    clock,
    disk,
    failover,
    identity,
    loop,
    network,
    notification,
    pooler,
    process,
    server,
    server_clock,
    trouble,
    upgrade,
)

FAULTS = (
    *process.FAULTS,
    *loop.FAULTS,
    *identity.FAULTS,
    *server.FAULTS,
    *network.FAULTS,
    *notification.FAULTS,
    *failover.FAULTS,
    *pooler.FAULTS,
    *broker.FAULTS,
    *clock.FAULTS,
    *server_clock.FAULTS,
    *disk.FAULTS,
    *trouble.FAULTS,
    *upgrade.FAULTS,
)
