"""A worker's session with one database: the values that its parts there share."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast._engine.keeper import Keeper
from holdfast._engine.own_row import OwnRow
from holdfast._engine.worker_report import WorkerReport

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast._engine.attempt import Attempt
    from holdfast._engine.link import Links
    from holdfast._model.errors import AbortReason
    from holdfast._model.work import Lease
    from holdfast._store.claim import ClaimedJob
    from holdfast._store.lease import Held


@dataclass(slots=True, eq=False)
class Sharing:
    """Whether several databases share the slots of a worker. That changes while it runs."""

    several: bool = False


@dataclass(slots=True, eq=False)
class Control:
    """The rules for the queues of one database: their leases, and which are paused. Heartbeats bring changes."""

    leases: Mapping[str, Lease] = field(default_factory=dict)
    """By kind."""
    queue_leases: Mapping[str, Lease] = field(default_factory=dict)
    """The leases of queues that have one of their own. They replace those of kinds."""
    paused: frozenset[str] = frozenset()
    """None of the jobs of these queues start."""

    def lease(self, job: ClaimedJob) -> Lease:
        return self.queue_leases.get(job.queue) or self.leases[job.kind]

    @property
    def shortest(self) -> float:
        """The shortest lease, in seconds."""
        return min((lease.seconds for lease in (*self.leases.values(), *self.queue_leases.values())), default=math.inf)


class Published:
    """Wakes the readers of the event log: an event may have been published."""

    def __init__(self) -> None:
        self.awoken: asyncio.Event = asyncio.Event()
        """Set at the next wake-up."""

    def wake(self) -> None:
        """Wake all who wait for `awoken`. Later ones wait for another event."""
        awoken, self.awoken = self.awoken, asyncio.Event()
        awoken.set()


@dataclass(slots=True, eq=False)
class Session:
    """The values that all parts of one database share: its connections, the worker's row, the held jobs, the loops.

    It calls none of the parts. Each value has one part that changes it.
    """

    links: Links
    """The connections."""
    row: OwnRow = field(default_factory=OwnRow)
    keeper: Keeper = field(default_factory=Keeper)
    """The loops."""
    sharing: Sharing = field(default_factory=Sharing)
    control: Control = field(default_factory=Control)
    schema: str = ""
    """The random identity of the schema, a part of every idempotency key; empty until the database has answered."""
    held: dict[Held, Attempt] = field(default_factory=dict)
    """The jobs of this worker, from the claim until the outcome is written."""
    counts: Counter[str] = field(default_factory=Counter)
    """The number of events so far, by name."""
    claims: int = 0
    """The number of claims so far, also of those that found nothing."""
    reaped: Counter[str] = field(default_factory=Counter)
    """The jobs that this worker reaped, by what they became."""
    report: WorkerReport = field(default_factory=WorkerReport)
    """For operators, sent with each heartbeat."""
    listening: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while PostgreSQL's notifications arrive. Only then does a sleeper rely on being woken."""
    published: Published = field(default_factory=Published)
    stopping: bool = False
    """Whether this database will not be served for much longer: nothing new may begin."""

    @property
    def name(self) -> str:
        """The name of the database."""
        return self.links.name

    @property
    def label(self) -> str:
        """The name of the database for logs and metrics; empty if the worker serves only one."""
        return self.name if self.sharing.several else ""

    @property
    def counters(self) -> dict[str, int]:
        """The counts of this worker since its start, as its row shows them."""
        return {**self.counts, "ticks": self.claims}

    def abort_all(self, reason: AbortReason) -> None:
        """Abort all held jobs."""
        for attempt in list(self.held.values()):
            attempt.abort(reason)
