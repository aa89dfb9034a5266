"""The log, and who reads it: one subscription is up to date, one is behind, one has parked much."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast._drivers import run_sync
from holdfast._store.subscription import subscribe

if TYPE_CHECKING:
    import psycopg

EVENTS = 100_000
PARKED = 5_000
SUBSCRIPTIONS = ("estate.behind", "estate.parked", "estate.here")


def fill_relays(conn: psycopg.Connection[Any]) -> None:
    for name in SUBSCRIPTIONS[:2]:
        run_sync(conn, subscribe(name, target="nats", topics=[], partitions=4, beginning=name == SUBSCRIPTIONS[0]))
    conn.execute(
        f"""
        INSERT INTO holdfast.event (id, published_at, xid, shard, topic, key, payload)
        SELECT nextval('holdfast.event_id_seq'), now() - interval '6 days' + n * (interval '6 days' / {EVENTS}),
            pg_current_xact_id(), n % 64, 'estate.topic' || n % 20, 'key ' || n % 997, '{{"n": 1}}'
        FROM generate_series(1, {EVENTS}) AS n
        """.encode()
    )
    run_sync(conn, subscribe(SUBSCRIPTIONS[2], target="kafka", topics=[], partitions=4, beginning=False))
    conn.execute(
        f"""
        INSERT INTO holdfast.parked (subscription_id, event_id, parked_at, partition, holds_key, key, error_code, error)
        SELECT s.id, n, now(), n % 4, false, 'key ' || n % 997, 'refused', 'the broker refused it'
        FROM holdfast.subscription s, generate_series(1, {PARKED}) AS n WHERE s.name = '{SUBSCRIPTIONS[1]}'
        """.encode()
    )
