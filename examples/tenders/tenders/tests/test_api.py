from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest

from holdfast import Tick
from tenders.api import create_web
from tenders.ingest import ingest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import psycopg

    from holdfast.testing import Testing
    from tenders.app import State

TOKEN = {"push_token": "ExponentPushToken[abc-1]", "platform": "android"}


@pytest.fixture
async def client(state: State) -> AsyncIterator[httpx.AsyncClient]:
    web = create_web(state.config)
    transport = httpx.ASGITransport(web)
    async with web.router.lifespan_context(web), httpx.AsyncClient(transport=transport, base_url="http://web") as http:
        yield http


async def sign_on(client: httpx.AsyncClient) -> tuple[str, dict[str, str]]:
    """Return the path of a new installation, and the headers with its key."""
    answer = await client.post("/installations", json=TOKEN)
    assert answer.status_code == 201
    made = answer.json()
    return f"/installations/{made['installation_id']}", {"Authorization": f"Bearer {made['secret']}"}


async def test_a_phone_signs_on_chooses_and_sees_its_deliveries(
    client: httpx.AsyncClient, state: State, kit: Testing
) -> None:
    path, key = await sign_on(client)
    wanted = {"regiones": ["metropolitana"], "palabras": ["equipos"]}
    chosen = await client.put(f"{path}/preferences", json=wanted, headers=key)
    assert chosen.status_code == 200, chosen.text
    await ingest(Tick(name="ingest", state=state))
    await kit.drain()
    [delivery] = (await client.get(f"{path}/deliveries", headers=key)).json()["deliveries"]
    assert (delivery["codigo_externo"], delivery["status"], delivery["attempt_count"]) == ("1006-6-LE26", "sent", 1)
    tenders = (await client.get("/licitaciones")).json()["licitaciones"]
    assert [tender["id"] for tender in tenders] == sorted((tender["id"] for tender in tenders), reverse=True)
    assert len(tenders) == 6
    [notified] = (await client.get("/licitaciones?notificada=true")).json()["licitaciones"]
    assert notified["codigo_externo"] == "1006-6-LE26"
    assert notified["monto_texto"] == "$8.257.402"
    assert notified["fecha_cierre_texto"].count("-") == 2
    assert len((await client.get("/licitaciones?notificada=false&limit=3")).json()["licitaciones"]) == 3
    summary = (await client.get("/summary")).json()
    assert (summary["licitaciones"], summary["notificadas"]) == (6, 1)
    assert summary["monto_texto"] == "$31.025.907"
    runs = (await client.get("/worker_runs")).json()["worker_runs"]
    assert [run["worker_name"] for run in runs] == ["dispatch"]


async def test_a_phone_that_signs_on_again_replaces_itself(
    client: httpx.AsyncClient, conn: psycopg.AsyncConnection[Any]
) -> None:
    (first, key), (second, _) = await sign_on(client), await sign_on(client)
    assert first != second
    assert (await client.get(f"{first}/deliveries", headers=key)).status_code == 200
    query = "SELECT active, inactive_reason FROM device_installations ORDER BY created_at"
    assert await (await conn.execute(query)).fetchall() == [(False, "Replaced"), (True, None)]


async def test_the_key_of_another_phone_is_refused(client: httpx.AsyncClient) -> None:
    (path, _), (_, other) = await sign_on(client), await sign_on(client)
    for headers in (other, {}, {"Authorization": "Bearer "}, {"Authorization": "Basic x"}):
        assert (await client.get(f"{path}/deliveries", headers=headers)).status_code == 401
        assert (await client.put(f"{path}/preferences", json={}, headers=headers)).status_code == 401
    unknown = "/installations/00000000-0000-0000-0000-000000000000/deliveries"
    assert (await client.get(unknown, headers=other)).status_code == 401
    assert (await client.get("/installations/x/deliveries", headers=other)).status_code == 404


@pytest.mark.parametrize(
    ("body", "output"),
    [
        (b"", "body: "),
        (b"[]", "body: "),
        (b'{"push_token": "abc", "platform": "ios"}', "push_token: "),
        (b'{"push_token": "ExponentPushToken[a]", "platform": "fax"}', "platform: "),
        (b'{"push_token": "ExponentPushToken[a]", "platform": "ios", "admin": true}', "admin: "),
    ],
)
async def test_a_wrong_body_is_named(client: httpx.AsyncClient, body: bytes, output: str) -> None:
    answer = await client.post("/installations", content=body)
    assert answer.status_code == 422
    assert answer.json()["error"].startswith(output)


async def test_what_is_too_large_or_wrong_is_refused(client: httpx.AsyncClient) -> None:
    assert (await client.post("/installations", content=b"x" * 20_000)).status_code == 413
    for query in ("/licitaciones?notificada=maybe", "/licitaciones?limit=x", "/summary?dia=ayer"):
        answer = await client.get(query)
        assert (answer.status_code, ": expected" in answer.json()["error"]) == (422, True)


async def test_a_summary_is_of_a_day_of_santiago(client: httpx.AsyncClient, conn: psycopg.AsyncConnection[Any]) -> None:
    moments = ["2026-04-04T02:59Z", "2026-04-04T03:00Z", "2026-04-05T03:59Z", "2026-04-05T04:00Z"]
    for number, moment in enumerate(moments):
        await conn.execute("INSERT INTO licitacion_registry VALUES (%s)", [f"{number}"])
        await conn.execute(
            "INSERT INTO licitaciones (codigo_externo, created_at) VALUES (%s, %s)", [f"{number}", moment]
        )
    counted = {day: (await client.get(f"/summary?dia=2026-04-0{day}")).json()["licitaciones"] for day in (3, 4, 5)}
    assert counted == {3: 1, 4: 2, 5: 1}


async def test_the_dashboard_is_mounted_and_guarded(client: httpx.AsyncClient) -> None:
    assert (await client.get("/ops/api/v1/me")).status_code == 401
