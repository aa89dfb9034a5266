from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from holdfast import Every, Tick
from tenders.app import app
from tenders.chain import Step, dispatch
from tenders.ingest import ingest
from tenders.local.market import Tender
from tenders.tests.phones import sign_on_one
from tenders.times import bounds, today
from tests.kit.statement import CYCLES, Document

if TYPE_CHECKING:
    import psycopg

    from holdfast.testing import Testing
    from tenders.app import State
    from tenders.local.server import LocalServer

    Connection = psycopg.AsyncConnection[Any]


doc = Document(CYCLES)


async def cycle(state: State) -> dict[str, int]:
    tick = Tick(name="ingest", state=state)
    await ingest(tick)
    return dict(tick.counts)


@doc.states("ingest runs every 2 minutes")
def test_the_cycle_comes_every_two_minutes() -> None:
    assert app.runners["ingest"].every == Every(timedelta(minutes=2))


async def value(conn: Connection, query: str) -> Any:
    row = await (await conn.execute(query.encode())).fetchone()
    return row and row[0]


@doc.states("candidates are the active installations whose preferences match")
async def test_new_tenders_are_stored_with_their_deliveries_and_jobs(
    state: State, local: LocalServer, conn: Connection, kit: Testing
) -> None:
    everything = await sign_on_one(conn, "everything")
    await sign_on_one(conn, "valdivia", regiones=["Los Ríos"])
    await sign_on_one(conn, "nothing", enabled=False)
    assert await cycle(state) == {"licitaciones_found": 6, "licitaciones_new": 6, "notifications_created": 8}
    assert await value(conn, "SELECT count(*) FROM licitaciones WHERE NOT notificada") == 6
    [tender] = [each for each in local.market.tenders if each.number == 3]
    query = "SELECT nombre, monto, fecha_cierre, rubro FROM licitaciones WHERE codigo_externo = %s"
    assert await (await conn.execute(query, [tender.codigo])).fetchall() == [
        (tender.nombre, tender.monto, tender.cierre, "Maquinaria")
    ]
    ids = "SELECT id FROM notification_deliveries WHERE installation_id = %s ORDER BY id"
    found = await (await conn.execute(ids, [everything])).fetchall()
    assert len(found) == 6
    for (delivery,) in found:
        await kit.assert_enqueued(dispatch.new(Step(delivery)))
    assert len(await kit.enqueued(dispatch)) == 8


@doc.states("codes that are in the registry are left out")
async def test_a_second_cycle_stores_only_what_is_new(
    state: State, local: LocalServer, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sign_on_one(conn, "everything")
    detailed, asked = local.market.detailed, list[str]()

    def detail(codigo: str) -> list[dict[str, Any]]:
        asked.append(codigo)
        return detailed(codigo)

    monkeypatch.setattr(local.market, "detailed", detail)
    await cycle(state)
    assert await cycle(state) == {"licitaciones_found": 6}
    local.market.publish(2)
    assert await cycle(state) == {"licitaciones_found": 8, "licitaciones_new": 2, "notifications_created": 2}
    assert await value(conn, "SELECT count(*) FROM notification_deliveries") == 8
    assert len(asked) == 8, "each was fetched once"


async def test_the_last_tenders_of_a_day_are_found_on_the_next(state: State, local: LocalServer) -> None:
    begin, _ = bounds(today(datetime.now(UTC)))
    local.page = "broken"
    local.market.tenders = [Tender(1, begin - timedelta(seconds=1)), Tender(2, begin)]
    assert (await cycle(state))["licitaciones_new"] == 2


@doc.states("a code is claimed with ON CONFLICT DO NOTHING, and its tender stored only if that succeeds")
async def test_cycles_that_run_at_the_same_time_store_each_tender_once(state: State, conn: Connection) -> None:
    await sign_on_one(conn, "everything")
    counted = await asyncio.gather(*[cycle(state) for _ in range(3)])
    assert sum(counts.get("licitaciones_new", 0) for counts in counted) == 6
    assert sum(counts.get("notifications_created", 0) for counts in counted) == 6
    assert await value(conn, "SELECT count(*) FROM holdfast.job") == 6


@doc.states("the scraper fails gracefully: ingest goes on without it")
@pytest.mark.parametrize("page", ["broken", "changed"])
async def test_the_cycle_goes_on_without_the_page(
    state: State, local: LocalServer, conn: Connection, page: Any
) -> None:
    local.page = page
    assert await cycle(state) == {"licitaciones_found": 6, "licitaciones_new": 6, "scraper_failed": 1} | {
        "notifications_created": 0
    }
    assert await value(conn, "SELECT count(*) FROM licitaciones WHERE monto IS NULL") == 2, "only the page has these"


async def test_the_cycle_fails_without_the_api(state: State, local: LocalServer, conn: Connection) -> None:
    local.api = "broken"
    with pytest.raises(httpx.HTTPStatusError):
        await cycle(state)
    assert await value(conn, "SELECT count(*) FROM licitacion_registry") == 0


async def test_a_tender_whose_details_fail_is_left_to_the_next_cycle(
    state: State, local: LocalServer, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = local.market.tenders[0].codigo
    detailed = local.market.detailed

    def failing(codigo: str) -> list[dict[str, Any]]:
        if codigo == odd:
            raise httpx.ReadTimeout("the API does not answer")
        return detailed(codigo)

    monkeypatch.setattr(local.market, "detailed", failing)
    counts = await cycle(state)
    assert (counts["licitaciones_new"], counts["details_failed"]) == (5, 1)
    monkeypatch.setattr(local.market, "detailed", detailed)
    assert (await cycle(state))["licitaciones_new"] == 1


@doc.states("a new tender is stored with its event and its deliveries in one transaction")
@pytest.mark.parametrize(
    ("limit", "refused"),
    [
        ("ADD CHECK (codigo_externo <> '1003-3-LE26')", 1),
        ("ALTER rubro TYPE varchar(10)", 3),  # Construcción, Alimentación and Informática are longer
    ],
)
async def test_a_record_that_the_database_refuses_stops_no_other(
    state: State, conn: Connection, limit: str, refused: int
) -> None:
    await sign_on_one(conn, "everything")
    await conn.execute(f"ALTER TABLE licitaciones {limit}".encode())
    for new in (6 - refused, 0):
        counts = await cycle(state)
        assert (counts["records_refused"], counts.get("licitaciones_new", 0)) == (refused, new)
    for table in ("licitaciones", "licitacion_registry", "notification_deliveries", "holdfast.job"):
        assert await value(conn, f"SELECT count(*) FROM {table}") == 6 - refused


async def test_a_cycle_stops_when_its_budget_is_spent(state: State) -> None:
    from holdfast import Budget

    tick = Tick(name="ingest", state=state, budget=Budget(items=4))
    await ingest(tick)
    assert tick.counts["licitaciones_new"] == 4
