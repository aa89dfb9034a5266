"""One-shot passes over the log, as `holdfast tick` makes them."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import Event, Holdfast, Job, Retry
from holdfast._app.app import application_of
from holdfast._drivers import run
from holdfast._engine.once import run_tick
from holdfast._model.settings import Settings
from holdfast._relay import partition
from holdfast._relay import publisher as delivery
from holdfast._relay.message import Refused
from holdfast._relay.sinks.nats import NatsSink
from holdfast._store.subscription import release_parked
from tests.relay.ledger import Ledger

if TYPE_CHECKING:
    from holdfast._model.event import Topic
    from tests.kit.nats import Stream
    from tools.nats import NatsServer


@dataclass(frozen=True)
class Sold:
    item: int


def only_relay(**changes: Any) -> Settings:
    return Settings.load({}, tick_runners=("relay",), **changes)


async def publish(app: Holdfast, database: str, topic: Topic[Sold], *items: int) -> None:
    async with await psycopg.AsyncConnection.connect(database) as conn:
        await app.publish_many(conn, [topic.new(Sold(item), key="a") for item in items])


def items(messages: list[Any]) -> list[bytes]:
    return [message.data for message in messages]


@pytest.mark.parametrize("partitions", [1, 4])
async def test_each_pass_goes_on_where_the_last_ended(
    database: str, nats_server: NatsServer, shop: Stream, partitions: int
) -> None:
    app = Holdfast(database)
    sold = app.event("shop.sold", Sold)
    app.relay("out", sold, to=NatsSink(nats_server.url), partitions=partitions, start="beginning")
    await publish(app, database, sold, 1, 2)
    first = await run_tick(application_of(app, only_relay()))
    await publish(app, database, sold, 3)
    second = await run_tick(application_of(app, only_relay()))
    third = await run_tick(application_of(app, only_relay()))
    assert [dict(one.runners[0].counts) for one in (first, second, third)] == [{"out": 2}, {"out": 1}, {"out": 0}]
    assert items(await shop.messages()) == [b'{"item":1}', b'{"item":2}', b'{"item":3}']


async def test_events_become_jobs_and_the_same_pass_runs_them(database: str) -> None:
    app = Holdfast(database)
    sold = app.event("shop.sold", Sold)
    booked: list[int] = []

    @app.on(sold, name="ledger", start="beginning")
    async def book(job: Job[None], event: Event[Sold]) -> None:
        booked.append(event.payload.item)

    await publish(app, database, sold, 1, 2)
    result = await run_tick(application_of(app, Settings.load({}, tick_runners=("relay", "outbox"))))
    assert result.exit_code == 0
    assert booked == [1, 2]


async def test_a_busy_subscription_leaves_the_others_their_share(
    database: str, nats_server: NatsServer, shop: Stream
) -> None:
    app = Holdfast(database)
    sold, sent = app.event("shop.sold", Sold), app.event("shop.sent", Sold)
    app.relay("much", sold, to=NatsSink(nats_server.url), start="beginning")
    app.relay("little", sent, to=NatsSink(nats_server.url), start="beginning")
    await publish(app, database, sold, *range(100))
    await publish(app, database, sent, 1)
    result = await run_tick(application_of(app, only_relay(tick_runner_max_items=20)))
    assert dict(result.runners[0].counts) == {"much": 10, "little": 1}


async def test_an_unavailable_sink_delays_no_other_subscription(
    database: str, nats_server: NatsServer, shop: Stream
) -> None:
    app = Holdfast(database)
    sold = app.event("shop.sold", Sold)
    with socket.socket() as unresponsive:
        unresponsive.bind(("127.0.0.1", 0))
        app.relay("away", sold, to=NatsSink(f"nats://127.0.0.1:{unresponsive.getsockname()[1]}"), start="beginning")
        app.relay("out", sold, to=NatsSink(nats_server.url), start="beginning")
        await publish(app, database, sold, 1)
        # So long that a machine that stands still for a while does not use it up.
        result = await run_tick(application_of(app, only_relay(tick_runner_max=timedelta(seconds=6))))
    assert result.exit_code == 1
    assert items(await shop.messages()) == [b'{"item":1}']


async def test_what_is_due_is_tried_before_what_is_new(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "PATIENCE", 0.0)
    monkeypatch.setattr(partition, "LOOK", 3600.0)
    failures = [RuntimeError("not now")]
    at_once = Retry.table([timedelta(milliseconds=1)], max_attempts=5, jitter=timedelta(0))
    sink = Ledger(lambda n: failures.pop() if n == 0 and failures else None, retry=at_once)
    app = Holdfast(database)
    sold = app.event("shop.sold", dict)
    app.relay("out", sold, to=sink, poison="park_key", start="beginning")
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        await app.publish_many(conn, [sold.new({"n": n}, key=str(n)) for n in range(100)])
    first = await run_tick(application_of(app, only_relay(tick_runner_max_items=10)))
    second = await run_tick(application_of(app, only_relay(tick_runner_max_items=10)))
    assert [dict(one.runners[0].counts) for one in (first, second)] == [{"out": 9}, {"out": 10}]
    assert sink.asked == [*range(10), 0, *range(10, 19)]


async def test_a_pass_too_short_for_a_page_gets_on_all_the_same(database: str) -> None:
    sink = Ledger(seconds=0.2)
    app = Holdfast(database)
    sold = app.event("shop.sold", dict)
    app.relay("out", sold, to=sink, start="beginning")
    await publish_numbers(app, database, sold, 20)
    await pass_until_taken(app, sink, 20)


async def pass_until_taken(app: Holdfast, sink: Ledger, count: int) -> None:
    """Make passes of two seconds until all has arrived, in order."""
    passes = 0
    while {*sink.taken} != {*range(count)}:
        await run_tick(application_of(app, only_relay(tick_runner_max=timedelta(seconds=2))))
        passes += 1
        assert passes < 12
    assert list(dict.fromkeys(sink.taken)) == [*range(count)]


async def publish_numbers(app: Holdfast, database: str, topic: Topic[Any], count: int) -> None:
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        await app.publish_many(conn, [topic.new({"n": n}, key="a") for n in range(count)])


async def test_no_partition_is_left_out_for_want_of_items(database: str) -> None:
    sink = Ledger()
    app = Holdfast(database)
    sold = app.event("shop.sold", dict)
    app.relay("out", sold, to=sink, partitions=8, start="beginning")
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        await app.publish_many(conn, [sold.new({"n": n}, key=str(n)) for n in range(16)])
    for _ in range(16):
        await run_tick(application_of(app, only_relay(tick_runner_max_items=4)))
    assert sorted(sink.taken) == [*range(16)]


async def test_a_pass_too_short_for_what_is_released_gets_on_all_the_same(database: str) -> None:
    refusals = [Refused("not now")]
    sink = Ledger(lambda _: refusals[0] if refusals else None)
    app = Holdfast(database)
    sold = app.event("shop.sold", dict)
    app.relay("out", sold, to=sink, poison="park_key", start="beginning")
    await publish_numbers(app, database, sold, 20)
    await run_tick(application_of(app, only_relay()))
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        assert await run(conn, release_parked(1)) == 20
    refusals.clear()
    sink.seconds = 0.2
    await pass_until_taken(app, sink, 20)
