"""Everything that can be done to a site, one module per family."""

from __future__ import annotations

from chaos.faults import broker, clock, disk, failover, network, pooler, process, server, trouble, upgrade

FAULTS = (
    *process.FAULTS,
    *server.FAULTS,
    *network.FAULTS,
    *failover.FAULTS,
    *pooler.FAULTS,
    *broker.FAULTS,
    *clock.FAULTS,
    *disk.FAULTS,
    *trouble.FAULTS,
    *upgrade.FAULTS,
)
