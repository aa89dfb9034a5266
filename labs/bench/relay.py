"""A relay against a loop that only publishes; reading the log against a plain SELECT; what an event writes."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from statistics import median
from typing import TYPE_CHECKING, Any

import psycopg

from holdfast import Holdfast, Settings
from holdfast._drivers import run_sync
from holdfast._engine.link import Links
from holdfast._engine.own_row import OwnRow
from holdfast._engine.report.transition import Transitions
from holdfast._engine.runner import Budget
from holdfast._engine.session import Session
from holdfast._model.event import NewEvent
from holdfast._relay.message import Message
from holdfast._relay.sinks.nats import NatsSink
from holdfast._relay.sinks.rabbitmq import RabbitMQSink
from holdfast._store.event import Cut, publish_events, read_events
from holdfast._store.subscription import join_subscription, subscribe
from holdfast._store.worker import register_worker
from labs.bench.figure import Figure, Section, table
from labs.bench.ground import checkpoint, ground, progress
from labs.bench.load import PAYLOAD
from tools.nats import NatsServer
from tools.rabbitmq import RabbitMqServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast._relay.message import Sink

EVENTS = 20_000
ROUNDS = 5
KEYS = 1_000
WINDOW = 256
TOPIC = "bench.event"
BATCH = 500
PAGE = 2_000
LEAST = 0.7
WAL_MOST = 450
_PLAIN = """
    SELECT id, topic, key, payload::text, headers::text, published_at, version, trace FROM holdfast.event
    WHERE id > %s ORDER BY id LIMIT %s
"""


def measure(scale: float) -> Section:
    events = max(2_000, round(EVENTS * scale))
    rounds = max(2, round(ROUNDS * scale))
    with ground(autovacuum="on") as base, base.database() as url:
        with psycopg.connect(url, autocommit=True, prepare_threshold=0) as conn:
            written = _publish(conn, events)
            reading = _reading(conn, events, rounds)
        to_nats, nats_wal = asyncio.run(_relaying(url, _nats(), events, rounds))
        to_rabbit, _ = asyncio.run(_relaying(url, _rabbit(), events, rounds))
        with psycopg.connect(url, autocommit=True) as conn:
            dead = conn.execute(
                "SELECT coalesce(sum(n_dead_tup), 0) FROM pg_stat_user_tables WHERE relname LIKE 'event\\_2%%'"
            ).fetchone()
    assert dead is not None
    figures = [
        Figure("relay to NATS JetStream, against a loop that only publishes", _ratio(to_nats), least=LEAST),
        Figure("relay to RabbitMQ, against a loop that only publishes", _ratio(to_rabbit), least=LEAST),
        Figure("reading the log, against a plain SELECT", _ratio(reading), least=LEAST),
        Figure("WAL per event, publish to relayed", written + nats_wal, limit=WAL_MOST, unit=" B"),
        Figure("dead rows in the log", float(dead[0]), limit=0),
    ]
    rows = [
        (name, f"{median(rates['ours']):,.0f}", f"{median(rates['bare']):,.0f}")
        for name, rates in (("NATS JetStream", to_nats), ("RabbitMQ", to_rabbit), ("reading", reading))
    ]
    rows.append(("WAL of publishing", f"{written:,.0f} B", ""))
    rows.append(("WAL of relaying", f"{nats_wal:,.0f} B", ""))
    return Section(figures, [table(("events a second", "ours", "bare"), rows)])


def _ratio(rates: dict[str, list[float]]) -> float:
    return median(ours / bare for ours, bare in zip(rates["ours"], rates["bare"], strict=True))


def _publish(conn: psycopg.Connection[Any], events: int) -> float:
    """Publish in batches; return how many bytes of WAL each event cost."""
    checkpoint(conn)
    _warm_up(conn)
    before = _wal(conn)
    for start in range(0, events, BATCH):
        made = [NewEvent(TOPIC, PAYLOAD, key=str(n % KEYS)) for n in range(start, min(start + BATCH, events))]
        run_sync(conn, publish_events(made))
    return (_wal(conn) - before) / events


def _warm_up(conn: psycopg.Connection[Any]) -> None:
    """Write once into each page that a checkpoint would make the next one copy whole."""
    run_sync(conn, publish_events([NewEvent("bench.other", PAYLOAD)] * 10))


def _wal(conn: psycopg.Connection[Any]) -> int:
    row = conn.execute("SELECT pg_current_wal_insert_lsn() - '0/0'").fetchone()
    assert row is not None
    return int(row[0])


def _reading(conn: psycopg.Connection[Any], events: int, rounds: int) -> dict[str, list[float]]:
    """Read all events page by page, by position and by number, in turns."""
    worker = run_sync(conn, register_worker("bench", queues=[], kinds=[]))
    made = run_sync(conn, subscribe("reading", target="bench", topics=[], partitions=1, beginning=True))
    membership = run_sync(conn, join_subscription(made.id, worker, lease_ms=3_600_000))
    assert membership is not None
    [held] = membership.held
    rates: dict[str, list[float]] = {"ours": [], "bare": []}
    for turn in range(rounds + 1):
        progress(f"relay: reading, round {turn}")
        begun, found, position = time.perf_counter(), 0, held.position
        while True:
            page = run_sync(conn, read_events(Cut((), 1, 0), position, limit=PAGE))
            found, position = found + len(page.events), page.after
            if page.last:
                break
        ours = found / (time.perf_counter() - begun)
        begun, plain, last = time.perf_counter(), 0, 0
        with conn.cursor(binary=True) as cursor:
            while rows := cursor.execute(_PLAIN, [last, PAGE]).fetchall():
                plain, last = plain + len(rows), rows[-1][0]
        assert plain == found >= events
        if turn:  # the first warms up both
            rates["ours"].append(ours)
            rates["bare"].append(plain / (time.perf_counter() - begun))
    return rates


async def _relaying(url: str, broker: Any, events: int, rounds: int) -> tuple[dict[str, list[float]], float]:
    """Relay all events again and again, by turns with publishing the same messages bare."""
    rates: dict[str, list[float]] = {"ours": [], "bare": []}
    written = 0.0
    async with broker as sink:
        messages = _messages(url)
        with psycopg.connect(url, autocommit=True) as conn:
            worker = run_sync(conn, register_worker("bench", queues=[], kinds=[]))
            for turn in range(rounds + 1):
                progress(f"relay: {sink.name.partition(':')[0]}, round {turn}")
                app = Holdfast(url)
                name = f"{type(sink).__name__}-{turn}"
                app.relay(name, app.event(TOPIC, dict), to=sink, start="beginning", window=WINDOW)
                make = app.relays(Settings.load({}))
                assert make is not None
                relays = make(Session(Links(url, name="", timeout=30), OwnRow(worker)), Transitions("bench", ()))
                before, begun = _wal(conn), time.perf_counter()
                done = await relays.drain(Budget())
                ours = events / (time.perf_counter() - begun)
                written = (_wal(conn) - before) / events
                assert done == {name: events}
                bare = events / await _bare(sink, [_renamed(message, turn) for message in messages])
                if turn:
                    rates["ours"].append(ours)
                    rates["bare"].append(bare)
    return rates, written


def _messages(url: str) -> list[Message]:
    with psycopg.connect(url) as conn:
        rows = conn.execute(
            "SELECT id, key, payload::text, published_at FROM holdfast.event WHERE topic = %s ORDER BY id", [TOPIC]
        ).fetchall()
    return [
        Message(
            id=str(id_),
            topic=TOPIC,
            key=key,
            body=payload.encode(),
            headers={"holdfast-event-id": str(id_), "holdfast-topic": TOPIC, "holdfast-version": "1"},
            published_at=at,
        )
        for id_, key, payload, at in rows
    ]


def _renamed(message: Message, turn: int) -> Message:
    return Message(
        id=f"bare-{turn}-{message.id}",
        topic=message.topic,
        key=message.key,
        body=message.body,
        headers=message.headers,
        published_at=message.published_at,
    )


async def _bare(sink: Sink, messages: list[Message]) -> float:
    """Publish them with the same window, and nothing else."""
    left = iter(messages)
    async with sink.open() as publish:

        async def walk() -> None:
            for message in left:
                await publish(message)

        begun = time.perf_counter()
        await asyncio.gather(*(walk() for _ in range(WINDOW)))
        return time.perf_counter() - begun


@asynccontextmanager
async def _nats() -> AsyncIterator[NatsSink]:
    import nats

    with NatsServer(jetstream=True) as server:
        client = await nats.connect(server.url)
        await client.jetstream().add_stream(name="bench", subjects=["bench.>"], duplicate_window=1)
        await client.close()
        yield NatsSink(server.url)


@asynccontextmanager
async def _rabbit() -> AsyncIterator[RabbitMQSink]:
    import aio_pika

    with RabbitMqServer() as server:
        connection = await aio_pika.connect(server.url)
        async with connection, connection.channel() as channel:
            await channel.declare_queue(TOPIC, durable=True)
        yield RabbitMQSink(server.url)
