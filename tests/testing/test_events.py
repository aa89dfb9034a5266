"""`drain(events=True)`: the events of a test reach the handlers that subscribed to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg

from holdfast import Event, Holdfast, Job  # noqa: TC001 - pydantic reads Event
from holdfast.testing import Testing

if TYPE_CHECKING:
    Conn = psycopg.AsyncConnection[Any]

Cents = dict[str, int]


async def test_events_reach_their_subscribers_in_the_transaction_of_the_test(
    app: Holdfast, conn: Conn, kit: Testing
) -> None:
    sold, shipped, other = (app.event(name, dict[str, int]) for name in ("sold", "shipped", "other"))
    seen: list[Any] = []

    @app.on(sold, shipped, name="ledger", ordered=True)
    async def book(job: Job[None], event: Event[Cents]) -> None:
        seen.append((event.topic, event.payload, event.key, dict(event.headers)))
        if event.topic == "sold":
            await app.publish(conn, shipped.new({"cents": 1}, key="7"))

    @app.on(sold, name="mail")
    async def mail(event: Event[Cents]) -> int:
        return event.payload["cents"]

    await app.publish(conn, sold.new({"cents": 7}, key="7", headers={"a": "b"}))
    await app.publish(conn, other.new({"cents": 9}))
    assert not len(await kit.drain()), "without events=True they are left alone"
    drained = await kit.drain(events=True)
    assert sorted(ran.kind for ran in drained) == ["ledger", "ledger", "mail"]
    assert seen == [("sold", {"cents": 7}, "7", {"a": "b"}), ("shipped", {"cents": 1}, "7", {})]
    assert not len(await kit.drain(events=True)), "each event is read once"
    [first, _] = await kit.enqueued(book)
    assert first.order_key is not None
    assert first.order_key.key == "ledger:7"


async def test_a_text_that_json_of_the_database_does_not_have_reaches_the_subscriber(
    app: Holdfast, conn: Conn, kit: Testing
) -> None:
    named = app.event("named", dict[str, str])
    seen: list[dict[str, str]] = []

    @app.on(named, name="book")
    async def book(event: Event[dict[str, str]]) -> None:
        seen.append(event.payload)

    await app.publish(conn, named.new({"name": "a\0b"}))
    await kit.drain(events=True)
    assert seen == [{"name": "a\0b"}]


def test_the_same_on_a_sync_connection(app: Holdfast, database: str) -> None:
    sold = app.event("sold", dict[str, int])

    @app.on(sold, name="mail")
    def mail(event: Event[Cents]) -> int:
        return event.payload["cents"]

    with psycopg.connect(database) as conn:
        kit = Testing(app, conn)
        for cents in (7, 8):
            app.sync.publish(conn, sold.new({"cents": cents}))
        assert [ran.result for ran in kit.sync.drain(events=True)] == [7, 8]
        conn.rollback()
