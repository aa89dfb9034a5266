"""The event log while a session holds an old snapshot, and the idle time from a commit to the broker's confirmation."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

import psycopg

from holdfast import Holdfast
from holdfast._drivers import run_sync
from holdfast._model.event import NewEvent
from holdfast._relay.sinks.nats import NatsSink
from holdfast._store.event import Cut, publish_events, read_events
from holdfast._store.subscription import advance_position, join_subscription, subscribe
from holdfast._store.worker import register_worker
from labs.bench import chart
from labs.bench.figure import Figure, Section, table
from labs.bench.ground import connected, ground, progress
from labs.bench.load import PAYLOAD
from labs.bench.pinned import SLICE, Rate, smoothed
from labs.bench.watch import no_garbage_collection
from tools.nats import NatsServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from holdfast._relay.message import Message, Publish, Receipt, Sink

SECONDS = 120.0
"""For each of the two that take turns."""
KEPT = 0.9
EVENTS = 300
PAUSE = 0.05
MEDIAN_MOST = 10
BATCH = 500
LONGEST_SECONDS = 10.0


def measure(scale: float) -> Section:
    ours, free = _pinned(scale)
    with ground() as base, base.database() as url:
        times = asyncio.run(_confirmed(url, max(30, round(EVENTS * scale))))
    figures = [
        Figure("publish, read and move on, last third against first", ours.kept / free.kept, least=KEPT),
        Figure("commit to confirmation, median", 1000 * median(times), limit=MEDIAN_MOST, unit=" ms"),
        Figure("commit to confirmation, 99th of a hundred", 1000 * quantiles(times, n=100)[-1], unit=" ms"),
    ]
    rows = [("snapshot held, events/s", *ours.thirds), ("not held, events/s", *free.thirds)]
    picture = chart.lines(
        "Publish, read and move on in batches of 500 while an old snapshot is held (events/s)",
        "seconds, of which each has a half",
        {"snapshot held": smoothed(ours.points), "not held": smoothed(free.points)},
    )
    return Section(figures, [table(("", "first third", "last third"), rows)], {"log": picture})


def _pinned(scale: float) -> tuple[Rate, Rate]:
    with (
        ground() as base,
        base.database() as url,
        base.database() as free_url,
        connected(url) as conn,
        connected(free_url) as free_conn,
        psycopg.connect(url) as pin,
    ):
        ours, free = Rate(_cycle(conn)), Rate(_cycle(free_conn))
        pin.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        pin.execute("SELECT pg_current_xact_id()")
        begun = time.perf_counter()
        with no_garbage_collection():
            for number in range(slices := max(6, round(SECONDS * scale / SLICE))):
                for rate in (ours, free) if number % 2 else (free, ours):
                    rate.run(time.perf_counter() - begun)
                if number % 20 == 19:
                    progress(f"log: {number + 1} of {slices} slices: {ours.points[-1][1]:,.0f} events/s")
    return ours, free


def _cycle(conn: psycopg.Connection[Any]) -> Callable[[], None]:
    """Publish a batch, read it and store the position, as a relay does around its sink."""
    worker = run_sync(conn, register_worker("bench", queues=[], kinds=[]))
    made = run_sync(conn, subscribe("bench", target="bench", topics=[], partitions=1, beginning=False))
    membership = run_sync(conn, join_subscription(made.id, worker, lease_ms=3_600_000))
    assert membership is not None
    [held] = membership.held
    events = [NewEvent("bench.event", PAYLOAD, key=str(n)) for n in range(BATCH)]

    def cycle() -> None:
        nonlocal held
        run_sync(conn, publish_events(events))
        page = run_sync(conn, read_events(Cut((), 1, 0), held.position, limit=2 * BATCH))
        assert len(page.events) == BATCH
        moved = run_sync(conn, advance_position(made.id, worker, held, page.after))
        assert moved is not None
        held = moved

    return cycle


@dataclass(frozen=True)
class _Stamped:
    """A sink that says when each message was confirmed."""

    to: Sink
    confirmed: asyncio.Queue[float]

    @property
    def name(self) -> str:
        return self.to.name

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Publish]:
        async with self.to.open() as publish:

            async def stamped(message: Message) -> Receipt | None:
                receipt = await publish(message)
                self.confirmed.put_nowait(time.perf_counter())
                return receipt

            yield stamped


async def _confirmed(url: str, events: int) -> list[float]:
    import nats

    times = []
    with NatsServer(jetstream=True) as server:
        client = await nats.connect(server.url)
        await client.jetstream().add_stream(name="bench", subjects=["bench.>"])
        await client.close()
        confirmed: asyncio.Queue[float] = asyncio.Queue()
        app = Holdfast(url)
        topic = app.event("bench.event", dict)
        app.relay("bench", topic, to=_Stamped(NatsSink(server.url), confirmed))
        async with (
            app.worker(),
            await psycopg.AsyncConnection.connect(url, autocommit=True) as conn,
        ):
            # The first tells that everybody is there.
            async with asyncio.timeout(LONGEST_SECONDS):
                while confirmed.empty():
                    await app.publish(conn, topic.new({"n": 0}))
                    await asyncio.sleep(PAUSE)
            await asyncio.sleep(1)
            while not confirmed.empty():
                confirmed.get_nowait()
            for number in range(events):
                await asyncio.sleep(PAUSE)
                event = topic.new({"n": number})
                begun = time.perf_counter()
                await app.publish(conn, event)
                async with asyncio.timeout(LONGEST_SECONDS):
                    times.append(await confirmed.get() - begun)
    return times
