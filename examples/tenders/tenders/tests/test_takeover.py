"""Deliveries in flight of the team's own worker are taken over: each ends once, and no attempt is forgotten."""

from __future__ import annotations

from contextlib import suppress
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import httpx
import psycopg
import pytest

from holdfast.testing import Testing
from tenders import takeover
from tenders.app import State, app, open_pool
from tenders.config import Config
from tenders.expo import Expo
from tenders.local.server import variables
from tenders.push import Push, Sent
from tenders.takeover import enqueue_some, take_over

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tenders.local.server import LocalServer
    from tools.postgres import Server

pytestmark = pytest.mark.nightly

OURS = "    delivery_key          uuid NOT NULL DEFAULT gen_random_uuid(),  -- sent with every push of this delivery\n"
FORMER_RUNS = "CREATE TABLE worker_runs (id bigint PRIMARY KEY, started_at timestamptz, worker_name text)"
ROWS = """
INSERT INTO licitacion_registry VALUES ('1-1-LE26');
INSERT INTO licitaciones (codigo_externo, nombre) VALUES ('1-1-LE26', 'Sillas');
INSERT INTO notification_events (type, licitacion_id) VALUES ('nueva_licitacion', 1);
INSERT INTO device_installations (push_token, platform, secret_sha256)
    SELECT format('ExponentPushToken[phone-%s]', n), 'android', '\\x00' FROM generate_series(1, 6) n;
"""
# By phone: it waits; its worker was killed; its third attempt is in an hour; its receipt is due; two have ended.
DELIVERIES = """
INSERT INTO notification_deliveries (notification_event_id, installation_id, provider, status, attempt_count,
    next_attempt_at, provider_ticket_id, sent_at, completed_at, locked_at, locked_by)
SELECT 1, installation_id, 'expo', status, attempts, now() + waits, ticket, sent, done, locked,
    CASE WHEN locked IS NOT NULL THEN 'dispatch:7:1' END
FROM device_installations JOIN (VALUES
    (1, 'pending', 0, NULL::interval, NULL, NULL::timestamptz, NULL::timestamptz, NULL::timestamptz),
    (2, 'pending', 0, NULL, NULL, NULL, NULL, now()),
    (3, 'retryable', 2, interval '1 hour', NULL, NULL, NULL, NULL),
    (4, 'sent', 1, NULL, %s::text, now(), NULL, NULL),
    (5, 'ok', 1, NULL, 'old', now(), now(), NULL),
    (6, 'failed', 7, NULL, NULL, NULL, now(), NULL)
) AS former (n, status, attempts, waits, ticket, sent, done, locked)
    ON push_token = format('ExponentPushToken[phone-%%s]', n) ORDER BY n
"""
STATES = "SELECT status, attempt_count, chain_id IS NOT NULL FROM notification_deliveries ORDER BY id"


@pytest.fixture
def former(postgres: Server) -> Iterator[str]:
    """A database with the tables of the former worker, and none of Holdfast."""
    tables = files("tenders").joinpath("migrations/0001_tables.sql").read_text()
    assert OURS in tables
    with psycopg.connect(postgres.url(), autocommit=True) as admin:
        admin.execute("CREATE DATABASE former")
        try:
            with psycopg.connect(postgres.url("former"), autocommit=True) as conn:
                conn.execute(tables.replace(OURS, "    locked_at timestamptz, locked_by text,\n").encode())
                conn.execute(FORMER_RUNS)
                conn.execute(ROWS.encode())
            yield postgres.url("former")
        finally:
            admin.execute("DROP DATABASE former WITH (FORCE)")


async def test_deliveries_in_flight_end_once(former: str, local: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Config.load({"HOLDFAST_DATABASE_URL": former, **variables("http://local")})
    async with (
        await psycopg.AsyncConnection.connect(former, autocommit=True) as conn,
        open_pool(settings) as pool,
        httpx.AsyncClient(transport=httpx.ASGITransport(local.web)) as http,
    ):
        expo = Expo(http, settings)
        [sent] = await expo.send([Push("ExponentPushToken[phone-4]", "Nueva licitación", "Sillas", {"id": "former"})])
        assert isinstance(sent, Sent)
        await conn.execute(DELIVERIES.encode(), [sent.ticket])

        killed_after_two(monkeypatch)
        with suppress(KeyboardInterrupt):
            take_over(former)
        monkeypatch.undo()
        assert take_over(former) == 2, "the other two have theirs"
        assert take_over(former) == 0

        assert await states(conn) == [
            ("pending", 0, True),
            ("pending", 0, True),
            ("retryable", 2, True),
            ("sent", 1, True),
            ("ok", 1, False),
            ("failed", 7, False),
        ]
        kit = Testing(app, conn, state=State(settings, pool, http, expo))
        await kit.drain()
        assert [row[0] for row in await states(conn)] == ["sent", "sent", "retryable", "sent", "ok", "failed"]
        await kit.travel(minutes=2)
        await kit.drain()
        await kit.travel(hours=1)
        await kit.drain()
        await kit.travel(minutes=2)
        await kit.drain()
        assert await states(conn) == [
            ("ok", 1, True),
            ("ok", 1, True),
            ("ok", 3, True),
            ("ok", 1, True),
            ("ok", 1, False),
            ("failed", 7, False),
        ]
        pushed = [push["to"] for push in local.push.taken]
        assert sorted(pushed) == [f"ExponentPushToken[phone-{n}]" for n in (1, 2, 3, 4)]


def killed_after_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the first call take over two deliveries, and end before the next."""
    ran: list[int] = []

    def once(conn: psycopg.Connection[Any]) -> int:
        if ran:
            raise KeyboardInterrupt
        ran.append(enqueue_some(conn, 2))
        return ran[0]

    monkeypatch.setattr(takeover, "enqueue_some", once)


async def states(conn: psycopg.AsyncConnection[Any]) -> list[Any]:
    return await (await conn.execute(STATES)).fetchall()
