"""The cycle that finds new tenders. Each is stored with its event, its deliveries and their jobs in one transaction."""

from __future__ import annotations

import logging
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import UUID

import httpx
import psycopg
from psycopg.rows import dict_row

from holdfast import Every
from tenders.app import app, config
from tenders.chain import Step, dispatch
from tenders.sources.api import SourceError, fetch_detail, fetch_summary
from tenders.sources.merge import merged
from tenders.sources.scraper import scrape
from tenders.targeting import Preferences, matches
from tenders.times import days_to_ask

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast import Counts, Tick
    from tenders.app import Connection, State
    from tenders.sources.record import Licitacion

log = logging.getLogger(__name__)

NEW_TENDER = "nueva_licitacion"
# New tenders that one cycle stores; the others are left to the next one.
MOST = 500
# Installations that are looked at, and deliveries that are written, with one statement.
PAGE = 1_000

_KNOWN = "SELECT codigo_externo FROM licitacion_registry WHERE codigo_externo = ANY (%s) LIMIT %s"
_CLAIM = "INSERT INTO licitacion_registry (codigo_externo) VALUES (%s) ON CONFLICT DO NOTHING"
_STORE = """
INSERT INTO licitaciones (codigo_externo, nombre, organismo, region, rubro, descripcion, monto, fecha_publicacion,
    fecha_cierre, url)
VALUES (%(codigo_externo)s, %(nombre)s, %(organismo)s, %(region)s, %(rubro)s, %(descripcion)s, %(monto)s,
    %(fecha_publicacion)s, %(fecha_cierre)s, %(url)s)
ON CONFLICT (codigo_externo) DO UPDATE SET nombre = EXCLUDED.nombre RETURNING id
"""
_EVENT = """
INSERT INTO notification_events (type, licitacion_id) VALUES (%s, %s)
ON CONFLICT (licitacion_id, type) DO UPDATE SET type = EXCLUDED.type RETURNING id
"""
_CANDIDATES = """
SELECT i.installation_id, coalesce(p.enabled, true) AS enabled, coalesce(p.regiones, '{}') AS regiones,
    coalesce(p.rubros, '{}') AS rubros, coalesce(p.palabras, '{}') AS palabras, p.monto_minimo
FROM device_installations i LEFT JOIN notification_preferences p USING (installation_id)
WHERE i.active AND coalesce(p.enabled, true) AND i.installation_id > %s ORDER BY i.installation_id LIMIT %s
"""
_DELIVER = """
INSERT INTO notification_deliveries (notification_event_id, installation_id, provider)
SELECT %(event)s, installation, %(provider)s FROM unnest(%(installations)s::uuid[]) AS installation
ON CONFLICT (notification_event_id, installation_id) DO NOTHING RETURNING id
"""
_LINK = """
UPDATE notification_deliveries d SET chain_id = made.chain
FROM unnest(%s::bigint[], %s::bigint[]) AS made (id, chain) WHERE d.id = made.id
"""


@app.runner("ingest", every=Every(config.ingest_every), singleton=True)
async def ingest(tick: Tick) -> Counts:
    state: State = tick.state
    scraped = await _scraped(tick, state)
    summary = [
        record
        for day in days_to_ask(datetime.now(UTC))
        for record in await fetch_summary(state.http, state.config, day)
    ]
    listed = {record.codigo_externo: record for record in summary}
    tick.count("licitaciones_found", len(listed.keys() | scraped.keys()))
    for codigo in await _unknown(state, [*listed, *scraped]):
        if tick.budget.spent:
            break
        tick.budget.spend()
        try:
            detail = await fetch_detail(state.http, state.config, codigo)
        except (httpx.HTTPError, SourceError) as exc:
            # It is not claimed, so the next cycle finds it again.
            log.warning("the details of %s cannot be fetched: %s", codigo, type(exc).__name__)
            tick.count("details_failed")
            continue
        fetched = merged(detail, listed.get(codigo)) if detail or codigo in listed else None
        try:
            await _store(tick, state, merged(fetched, scraped.get(codigo)))
        except (psycopg.DataError, psycopg.IntegrityError) as exc:
            # Nothing of it is stored, and no other tender waits for it. The next cycle tries it again.
            log.warning("the record of %s is refused: %s", codigo, type(exc).__name__)
            tick.count("records_refused")
    return {}


async def _scraped(tick: Tick, state: State) -> dict[str, Licitacion]:
    """Return the tenders of the page by code. If that fails, the cycle goes on without them."""
    try:
        return {record.codigo_externo: record for record in await scrape(state.http, state.config)}
    except (httpx.HTTPError, SourceError) as exc:
        log.warning("the page cannot be scraped: %s: %s", type(exc).__name__, exc)
        tick.count("scraper_failed")
        return {}


async def _unknown(state: State, codes: Iterable[str]) -> list[str]:
    """Return the codes that are not in the registry, each once, in their order."""
    given = list(dict.fromkeys(codes))
    async with state.pool.connection() as conn:
        cursor = await conn.execute(_KNOWN, [given, len(given)])
        known = {codigo for (codigo,) in await cursor.fetchall()}
    return [codigo for codigo in given if codigo not in known][:MOST]


async def _store(tick: Tick, state: State, record: Licitacion) -> None:
    """Claim the code, and store all that follows from it. If another process has claimed it, nothing is stored."""
    async with state.pool.connection() as conn, conn.transaction():
        claimed = await conn.execute(_CLAIM, [record.codigo_externo])
        if not claimed.rowcount:
            return
        [[licitacion]] = await (await conn.execute(_STORE, asdict(record))).fetchall()
        [[event]] = await (await conn.execute(_EVENT, [NEW_TENDER, licitacion])).fetchall()
        created = await _create_deliveries(conn, state, event, record)
    tick.count("licitaciones_new")
    tick.count("notifications_created", created)


async def _create_deliveries(conn: Connection, state: State, event: int, record: Licitacion) -> int:
    """Create a delivery and its job for each installation that wants the tender. Return how many."""
    created, after = 0, UUID(int=0)
    while True:
        async with conn.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(_CANDIDATES, [after, PAGE])
            candidates = await cursor.fetchall()
        wanted = [row["installation_id"] for row in candidates if matches(_preferences(row), record)]
        if wanted:
            values = {"event": event, "installations": wanted, "provider": state.push.name}
            deliveries = [delivery for (delivery,) in await (await conn.execute(_DELIVER, values)).fetchall()]
            jobs = await app.enqueue_many(conn, [dispatch.new(Step(delivery)) for delivery in deliveries])
            await conn.execute(_LINK, [deliveries, [job.chain_id for job in jobs]])
            created += len(deliveries)
        if len(candidates) < PAGE:
            return created
        after = candidates[-1]["installation_id"]


def _preferences(row: Mapping[str, object]) -> Preferences:
    return Preferences.model_validate({name: row[name] for name in Preferences.model_fields})
