"""The API and the page, from the local server."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from tenders.sources.api import SourceError, fetch_detail, fetch_summary
from tenders.sources.merge import merged
from tenders.sources.record import Licitacion
from tenders.sources.scraper import read_page, scrape
from tenders.tests.answering import Answering
from tenders.times import today
from tests.kit.statement import CYCLES, Document

if TYPE_CHECKING:
    from tenders.app import State
    from tenders.local.server import LocalServer


doc = Document(CYCLES)


@doc.states("scraped and fetched data are merged, preferring the more complete")
async def test_both_sources_make_one_record(state: State, local: LocalServer) -> None:
    tender = local.market.tenders[2]  # the API does not have its amount, and the page cuts its name
    summary = await fetch_summary(state.http, state.config, today(datetime.now(UTC)))
    detail = await fetch_detail(state.http, state.config, tender.codigo)
    scraped = {record.codigo_externo: record for record in await scrape(state.http, state.config)}
    assert {record.codigo_externo for record in summary} == {each.codigo for each in local.market.tenders}
    assert detail is not None
    assert (detail.monto, scraped[tender.codigo].rubro) == (None, None)
    whole = merged(detail, scraped[tender.codigo])
    assert (whole.nombre, whole.monto, whole.fecha_cierre) == (tender.nombre, tender.monto, tender.cierre)
    assert (whole.organismo, whole.region) == tender.place
    assert whole.url == f"/licitacion/{tender.codigo}"


async def test_the_page_is_read_up_to_a_limit(state: State, local: LocalServer) -> None:
    local.market.publish(40)
    assert len(await scrape(state.http, state.config)) == 20
    assert [record.codigo_externo for record in await scrape(state.http, state.config, 1)] == ["1046-46-LE26"]


async def test_an_unknown_code_has_no_details(state: State) -> None:
    assert await fetch_detail(state.http, state.config, "0-0-LE26") is None


def test_a_page_that_has_changed_is_noticed() -> None:
    with pytest.raises(SourceError, match="it has changed"):
        read_page("<main><div class=nuevo></div></main>")
    assert read_page("<section id=resultados><article class=licitacion><h3>sin código</h3></article></section>") == []


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"Listado": 7}'])
async def test_an_answer_that_is_no_list_is_refused(state: State, body: bytes) -> None:
    async with Answering(body) as http:
        with pytest.raises(SourceError, match="Listado"):
            await fetch_detail(http, state.config, "1-1-LE26")


async def test_odd_entries_are_left_out(state: State) -> None:
    entries = [7, {"CodigoExterno": "x" * 65}, {"Nombre": "sin código"}, {"CodigoExterno": " 1-1-LE26 ", "Nombre": 7}]
    async with Answering(json.dumps({"Listado": entries}).encode()) as http:
        [found] = await fetch_summary(http, state.config, today(datetime.now(UTC)))
    assert (found.codigo_externo, found.nombre) == ("1-1-LE26", None)


async def test_an_odd_value_counts_as_missing(state: State) -> None:
    odd = {
        "CodigoExterno": " 1-1\0-LE26",
        "Nombre": "Arriendo\0 de maquinaria",
        "FechaCierre": "9999-12-31T23:59:59",
        "MontoEstimado": True,
    }
    entries = [odd, *[{"CodigoExterno": f"{n}-1-LE26", "MontoEstimado": n} for n in (0.3, 1e300, -1)]]
    async with Answering(json.dumps({"Listado": entries}).encode()) as http:
        found = await fetch_summary(http, state.config, today(datetime.now(UTC)))
    assert [record.monto for record in found] == [None] * 4
    assert (found[0].codigo_externo, found[0].nombre) == ("1-1-LE26", "Arriendo de maquinaria")
    assert found[0].fecha_cierre is None


@pytest.mark.parametrize("odd", [None, 7, "x", [None]])
async def test_an_odd_part_does_not_cost_the_others(state: State, odd: object) -> None:
    whole = {
        "CodigoExterno": "1-1-LE26",
        "Descripcion": "Reparación de caminos",
        "Comprador": {"NombreOrganismo": "Hospital", "RegionUnidad": "Los Ríos"},
        "Fechas": {"FechaCierre": "2026-04-04T15:30:00"},
        "Items": {"Listado": [{"Categoria": "Salud"}]},
    }
    record = Licitacion(
        codigo_externo="1-1-LE26",
        descripcion="Reparación de caminos",
        organismo="Hospital",
        region="Los Ríos",
        rubro="Salud",
        fecha_cierre=datetime(2026, 4, 4, 18, 30, tzinfo=UTC),
    )
    cases = [
        (whole, record),
        (whole | {"Comprador": odd}, replace(record, organismo=None, region=None)),
        (whole | {"Fechas": odd}, replace(record, fecha_cierre=None)),
        (whole | {"Items": odd}, replace(record, rubro=None)),
        (whole | {"Items": {"Listado": odd}}, replace(record, rubro=None)),
        (whole | {"Items": {"Listado": [odd, {"Categoria": "Salud"}]}}, record),
    ]
    for entry, expected in cases:
        async with Answering(json.dumps({"Listado": [entry]}).encode()) as http:
            assert await fetch_detail(http, state.config, "1-1-LE26") == expected


def test_an_odd_value_of_the_page_counts_as_missing() -> None:
    fields = (
        "<span class=codigo>1-1\0-LE26</span><span class=monto>$ 0,30</span><span class=cierre>31-12-9999 23:59</span>"
    )
    [found] = read_page(f"<section id=resultados><article class=licitacion>{fields}</article></section>")
    assert found == Licitacion(codigo_externo="1-1-LE26")


def test_a_page_that_cannot_be_parsed_is_refused() -> None:
    with pytest.raises(SourceError, match="cannot be parsed"):
        read_page("<![n00000 ><section id=resultados></section>")
