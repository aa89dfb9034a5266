"""The HTTP interface: phones sign on and choose, and everyone may read the tenders and what became of them."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar
from uuid import UUID

from psycopg.rows import dict_row
from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from holdfast.ops import operations
from tenders import runs
from tenders.app import app, config, open_pool
from tenders.money import pesos
from tenders.targeting import Preferences
from tenders.times import bounds, today, written

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.requests import Request

    from tenders.app import Connection, Pool
    from tenders.config import Config

M = TypeVar("M", bound=BaseModel)

# Bytes of a request's body.
LARGEST = 16_384
MOST = 100

# A phone that signs on again has a new installation, and the former one gets nothing more.
_REPLACE = """
UPDATE device_installations SET active = false, inactive_since = now(), inactive_reason = 'Replaced'
WHERE push_token = %s AND active
"""
_REGISTER = """
INSERT INTO device_installations (push_token, platform, secret_sha256) VALUES (%s, %s, %s) RETURNING installation_id
"""
_PREFER = """
INSERT INTO notification_preferences (installation_id, enabled, regiones, rubros, palabras, monto_minimo)
VALUES (%(id)s, %(enabled)s, %(regiones)s, %(rubros)s, %(palabras)s, %(monto_minimo)s)
ON CONFLICT (installation_id) DO UPDATE SET enabled = EXCLUDED.enabled, regiones = EXCLUDED.regiones,
    rubros = EXCLUDED.rubros, palabras = EXCLUDED.palabras, monto_minimo = EXCLUDED.monto_minimo, updated_at = now()
"""
_TENDERS = """
SELECT id, codigo_externo, nombre, organismo, region, rubro, monto, fecha_cierre, notificada, url FROM licitaciones
WHERE id < %(before)s AND (%(notificada)s::boolean IS NULL OR notificada = %(notificada)s)
ORDER BY id DESC LIMIT %(most)s
"""
_DELIVERIES = """
SELECT d.id, l.codigo_externo, d.status, d.attempt_count, d.next_attempt_at, d.last_error_code, d.last_error_message,
    d.created_at, d.completed_at
FROM notification_deliveries d JOIN notification_events e ON e.id = d.notification_event_id
JOIN licitaciones l ON l.id = e.licitacion_id
WHERE d.installation_id = %(id)s AND d.id < %(before)s ORDER BY d.id DESC LIMIT %(most)s
"""
_SUMMARY = """
SELECT count(*) AS licitaciones, count(*) FILTER (WHERE notificada) AS notificadas,
    coalesce(sum(monto), 0)::bigint AS monto
FROM (SELECT notificada, monto FROM licitaciones WHERE created_at >= %s AND created_at < %s LIMIT 100000) AS day
"""


class Registration(BaseModel):
    """A phone that signs on."""

    model_config = ConfigDict(extra="forbid")

    push_token: Annotated[str, StringConstraints(pattern=r"^Expo(nent)?PushToken\[[\w-]{1,100}\]$")]
    platform: Literal["android", "ios"]


async def register(request: Request) -> JSONResponse:
    asked = await _body(request, Registration)
    secret = secrets.token_urlsafe(24)
    async with _connection(request) as conn, conn.transaction():
        await conn.execute(_REPLACE, [asked.push_token])
        cursor = await conn.execute(_REGISTER, [asked.push_token, asked.platform, _digest(secret)])
        [[installation]] = await cursor.fetchall()
    return JSONResponse({"installation_id": str(installation), "secret": secret}, status_code=201)


async def set_preferences(request: Request) -> JSONResponse:
    preferences = await _body(request, Preferences)
    async with _connection(request) as conn:
        installation = await _installation(request, conn)
        await conn.execute(_PREFER, preferences.model_dump() | {"id": installation})
    return JSONResponse(preferences.model_dump())


async def list_deliveries(request: Request) -> JSONResponse:
    async with _connection(request) as conn, conn.cursor(row_factory=dict_row) as cursor:
        installation = await _installation(request, conn)
        await cursor.execute(_DELIVERIES, _page(request) | {"id": installation})
        found = await cursor.fetchall()
    return JSONResponse({"deliveries": [_plain(row) for row in found]})


async def list_tenders(request: Request) -> JSONResponse:
    asked = request.query_params.get("notificada")
    if asked not in {None, "true", "false"}:
        raise HTTPException(422, "notificada: expected true or false")
    values = _page(request) | {"notificada": None if asked is None else asked == "true"}
    async with _connection(request) as conn, conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(_TENDERS, values)
        found = await cursor.fetchall()
    return JSONResponse({"licitaciones": [_shown(row) for row in found]})


async def summary(request: Request) -> JSONResponse:
    """Count the tenders of a day of Santiago, by default today."""
    try:
        asked = request.query_params.get("dia")
        day = today(datetime.now(UTC)) if asked is None else date.fromisoformat(asked)
        begin, end = bounds(day)
    except (ValueError, OverflowError):
        raise HTTPException(422, "dia: expected a day such as 2026-04-04") from None
    async with _connection(request) as conn, conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(_SUMMARY, [begin, end])
        [row] = await cursor.fetchall()
    return JSONResponse({"dia": day.isoformat(), **row, "monto_texto": pesos(row["monto"])})


async def list_runs(request: Request) -> JSONResponse:
    found = await runs.newest(request.app.state.pool, name=request.query_params.get("worker_name"), limit=MOST)
    return JSONResponse({"worker_runs": [_plain(row) for row in found]})


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """Return a tender with its amount and its end as people in Chile write them."""
    monto, cierre = row["monto"], row["fecha_cierre"]
    texts = {
        "monto_texto": None if monto is None else pesos(monto),
        "fecha_cierre_texto": None if cierre is None else written(cierre),
    }
    return _plain(row) | texts


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in row.items()}


async def _body(request: Request, model: type[M]) -> M:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > LARGEST:
            raise HTTPException(413, f"a body has at most {LARGEST} bytes")
    try:
        return model.model_validate_json(body)
    except ValidationError as exc:
        problems = [f"{'.'.join(map(str, each['loc'])) or 'body'}: {each['msg']}" for each in exc.errors()[:10]]
        raise HTTPException(422, "; ".join(problems)) from None


def _page(request: Request) -> dict[str, int]:
    try:
        before = int(request.query_params.get("before", 2**62))
        most = int(request.query_params.get("limit", MOST))
    except ValueError:
        raise HTTPException(422, "before, limit: expected whole numbers") from None
    return {"before": min(before, 2**62), "most": max(1, min(most, MOST))}


async def _installation(request: Request, conn: Connection) -> UUID:
    """Return the installation that the request names, if it has its key."""
    scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
    try:
        installation = UUID(request.path_params["installation"])
    except ValueError:
        raise HTTPException(404, "not found") from None
    query = "SELECT secret_sha256 FROM device_installations WHERE installation_id = %s"
    row = await (await conn.execute(query, [installation])).fetchone()
    stored = bytes(32) if row is None else bytes(row[0])
    if scheme.lower() != "bearer" or not hmac.compare_digest(stored, _digest(secret)):
        raise HTTPException(401, "the key of the installation is required: Authorization: Bearer …")
    return installation


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


@asynccontextmanager
async def _connection(request: Request) -> AsyncGenerator[Connection]:
    pool: Pool = request.app.state.pool
    async with pool.connection() as conn:
        yield conn


async def _refuse(_: Request, exc: Exception) -> JSONResponse:
    assert isinstance(exc, HTTPException)  # noqa: S101 - it is registered for these alone
    return JSONResponse({"error": exc.detail}, status_code=exc.status_code)


def create_web(given: Config = config) -> Starlette:
    """Return the site: the interface, and Holdfast's dashboard under /ops."""
    ops = operations(app, url=given.database_url)

    @asynccontextmanager
    async def lifespan(web: Starlette) -> AsyncGenerator[None]:
        async with open_pool(given) as pool, ops.router.lifespan_context(ops):
            web.state.pool = pool
            yield

    routes = [
        Route("/installations", register, methods=["POST"]),
        Route("/installations/{installation}/preferences", set_preferences, methods=["PUT"]),
        Route("/installations/{installation}/deliveries", list_deliveries),
        Route("/licitaciones", list_tenders),
        Route("/summary", summary),
        Route("/worker_runs", list_runs),
        Mount("/ops", ops),
    ]
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: _refuse})
