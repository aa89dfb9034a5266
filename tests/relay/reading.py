"""Reading the log by hand: a member with partitions of its own, as a relay is, but without a sink."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - part of a NamedTuple
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast._drivers import run
from holdfast._store.event import Cut, read_events
from holdfast._store.subscription import advance_position, join_subscription, subscribe

if TYPE_CHECKING:
    import psycopg

    from holdfast._store.event import LogPage
    from holdfast._store.subscription import HeldPartition, Membership, ParkedEvent


class ReadEvent(NamedTuple):
    id: int
    topic: str
    key: str | None
    payload: str
    headers: str | None
    published_at: datetime
    version: int
    trace: str | None


class Reader:
    def __init__(self, conn: psycopg.AsyncConnection[Any], name: str, *, worker: int = 1, partitions: int = 1) -> None:
        self.conn = conn
        self.name = name
        self.worker = worker
        self.partitions = partitions
        self.subscription = 0
        self.topics: tuple[str, ...] = ()
        self.held: dict[int, HeldPartition] = {}
        self.membership: Membership | None = None
        self.events: list[ReadEvent] = []

    async def join(self, *, beginning: bool = False, lease_ms: int = 60_000) -> Membership:
        made = await run(
            self.conn,
            subscribe(self.name, target="test", topics=self.topics, partitions=self.partitions, beginning=beginning),
        )
        self.subscription, self.partitions = made
        self.membership = await run(self.conn, join_subscription(made.id, self.worker, lease_ms=lease_ms))
        assert self.membership is not None
        self.held = {held.partition: held for held in self.membership.held}
        return self.membership

    async def page(self, partition: int = 0, *, limit: int = 100) -> LogPage:
        base = self.membership.base_id if self.membership else 0
        cut = Cut(self.topics, self.partitions, partition, base)
        return await run(self.conn, read_events(cut, self.held[partition].position, limit=limit))

    async def advance(self, page: LogPage, partition: int = 0) -> bool:
        """Take the page for handed over; False when the partition is in other hands."""
        held = await run(self.conn, advance_position(self.subscription, self.worker, self.held[partition], page.after))
        if held is None:
            return False
        self.held[partition] = held
        self.events += map(ReadEvent._make, page.events)
        return True

    async def park(self, *events: ParkedEvent, partition: int = 0) -> None:
        """Set events aside without moving on."""
        held = self.held[partition]
        moved = await run(
            self.conn, advance_position(self.subscription, self.worker, held, held.position, parked=events)
        )
        assert moved is not None
        self.held[partition] = moved

    async def read(self, partition: int = 0, *, limit: int = 100) -> list[ReadEvent]:
        """Read and advance to the end of what is there now."""
        found: list[ReadEvent] = []
        while True:
            page = await self.page(partition, limit=limit)
            assert await self.advance(page, partition)
            found += map(ReadEvent._make, page.events)
            if page.last:
                return found
