"""Phones that have signed on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenders.targeting import Preferences

if TYPE_CHECKING:
    from uuid import UUID

    import psycopg

_SIGN_ON = """
INSERT INTO device_installations (push_token, platform, secret_sha256)
SELECT format('ExponentPushToken[%%s-%%s]', %(name)s::text, n), 'android', '\\x00'
FROM generate_series(1, %(count)s) AS n
RETURNING installation_id
"""
_PREFER = """
INSERT INTO notification_preferences (installation_id, enabled, regiones, rubros, palabras, monto_minimo)
VALUES (%(id)s, %(enabled)s, %(regiones)s, %(rubros)s, %(palabras)s, %(monto_minimo)s)
ON CONFLICT (installation_id) DO UPDATE SET enabled = EXCLUDED.enabled, regiones = EXCLUDED.regiones
"""


def sign_on(conn: psycopg.Connection[Any], count: int, name: str = "phone") -> None:
    """Sign on phones that want to know of everything. Their tokens are ExponentPushToken[phone-1] and so on."""
    conn.execute(_SIGN_ON, {"name": name, "count": count})


async def sign_on_one(conn: psycopg.AsyncConnection[Any], name: str, **preferences: Any) -> UUID:
    """Sign on one phone, whose token is ExponentPushToken[name-1]."""
    [[installation]] = await (await conn.execute(_SIGN_ON, {"name": name, "count": 1})).fetchall()
    await prefer(conn, installation, **preferences)
    found: UUID = installation
    return found


async def prefer(conn: psycopg.AsyncConnection[Any], installation: UUID, **preferences: Any) -> None:
    await conn.execute(_PREFER, Preferences(**preferences).model_dump() | {"id": installation})
