"""The rows of deliveries: read with all that is needed to send them, and written when something became of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from psycopg.rows import class_row

from tenders.sources.record import Licitacion
from tenders.targeting import Preferences

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta
    from uuid import UUID

    from tenders.app import Connection

Status: TypeAlias = Literal["pending", "sent", "retryable", "ok", "failed", "invalid"]
LIVE = ("pending", "retryable")

_READ = """
SELECT d.id, d.delivery_key, d.status, d.attempt_count, d.provider_ticket_id, d.sent_at,
    d.sent_at < now() - %(deadline)s AS overdue, i.installation_id, i.push_token, i.active,
    coalesce(p.enabled, true) AS enabled, coalesce(p.regiones, '{}') AS regiones, coalesce(p.rubros, '{}') AS rubros,
    coalesce(p.palabras, '{}') AS palabras, p.monto_minimo, l.id AS licitacion_id, l.codigo_externo, l.nombre,
    l.organismo, l.region, l.rubro, l.descripcion, l.monto, l.fecha_cierre
FROM notification_deliveries d
JOIN notification_events e ON e.id = d.notification_event_id
JOIN licitaciones l ON l.id = e.licitacion_id
JOIN device_installations i ON i.installation_id = d.installation_id
LEFT JOIN notification_preferences p ON p.installation_id = d.installation_id
WHERE d.id = ANY (%(ids)s) LIMIT %(most)s
"""
_SENT = """
UPDATE notification_deliveries SET status = 'sent', attempt_count = %(attempts)s, provider_ticket_id = %(ticket)s,
    sent_at = now(), next_attempt_at = NULL, last_error_code = NULL, last_error_message = NULL, updated_at = now()
WHERE id = %(id)s
"""
_NOTIFIED = "UPDATE licitaciones SET notificada = true, notificada_at = now() WHERE id = %s AND NOT notificada"
_RETRYABLE = """
UPDATE notification_deliveries SET status = 'retryable', attempt_count = %(attempts)s,
    next_attempt_at = now() + %(delay)s, last_error_code = %(code)s, last_error_message = %(message)s,
    updated_at = now()
WHERE id = %(id)s RETURNING next_attempt_at
"""
_ENDED = """
UPDATE notification_deliveries SET status = %(status)s, attempt_count = %(attempts)s, next_attempt_at = NULL,
    provider_receipt_id = %(receipt)s, last_error_code = %(code)s, last_error_message = %(message)s,
    updated_at = now(), completed_at = now()
WHERE id = %(id)s
"""
_INVALIDATED = """
UPDATE device_installations SET active = false, inactive_since = now(), inactive_reason = %(reason)s
WHERE installation_id = %(installation)s AND active
"""


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """A delivery with its installation, preferences and tender, as they are now."""

    id: int
    delivery_key: UUID
    status: Status
    attempt_count: int
    provider_ticket_id: str | None
    sent_at: datetime | None
    overdue: bool | None
    """Whether its receipt will not come any more."""
    installation_id: UUID
    push_token: str
    active: bool
    enabled: bool
    regiones: list[str]
    rubros: list[str]
    palabras: list[str]
    monto_minimo: int | None
    licitacion_id: int
    codigo_externo: str
    nombre: str | None
    organismo: str | None
    region: str | None
    rubro: str | None
    descripcion: str | None
    monto: int | None
    fecha_cierre: datetime | None

    @property
    def preferences(self) -> Preferences:
        return Preferences(
            enabled=self.enabled,
            regiones=self.regiones,
            rubros=self.rubros,
            palabras=self.palabras,
            monto_minimo=self.monto_minimo,
        )

    @property
    def licitacion(self) -> Licitacion:
        return Licitacion(
            codigo_externo=self.codigo_externo,
            nombre=self.nombre,
            organismo=self.organismo,
            region=self.region,
            rubro=self.rubro,
            descripcion=self.descripcion,
            monto=self.monto,
            fecha_cierre=self.fecha_cierre,
        )

    def attempted(self) -> DeliveryRow:
        """Return the row after one more attempt."""
        return replace(self, attempt_count=self.attempt_count + 1)


async def read(conn: Connection, ids: Sequence[int], *, deadline: timedelta) -> dict[int, DeliveryRow]:
    """Return deliveries by their ids. One that is missing has been archived."""
    async with conn.cursor(row_factory=class_row(DeliveryRow)) as cursor:
        await cursor.execute(_READ, {"ids": list(ids), "deadline": deadline, "most": len(ids)})
        return {row.id: row for row in await cursor.fetchall()}


async def mark_sent(conn: Connection, row: DeliveryRow, ticket: str) -> None:
    await conn.execute(_SENT, {"id": row.id, "attempts": row.attempt_count, "ticket": ticket})
    await conn.execute(_NOTIFIED, [row.licitacion_id])


async def mark_retryable(conn: Connection, row: DeliveryRow, code: str, message: str, delay: timedelta) -> datetime:
    """Return when the next attempt is due."""
    values = {"id": row.id, "attempts": row.attempt_count, "delay": delay, "code": code, "message": message}
    cursor = await conn.execute(_RETRYABLE, values)
    [[due_at]] = await cursor.fetchall()
    due: datetime = due_at
    return due


async def mark_ended(
    conn: Connection,
    row: DeliveryRow,
    status: Literal["ok", "failed", "invalid"],
    *,
    code: str | None = None,
    message: str | None = None,
) -> None:
    """End a delivery. If it ends by a receipt, that has the number of its ticket, as with Expo."""
    receipt = row.provider_ticket_id if row.status == "sent" else None
    values = {"id": row.id, "status": status, "attempts": row.attempt_count, "receipt": receipt}
    await conn.execute(_ENDED, {**values, "code": code, "message": message})


async def invalidate(conn: Connection, row: DeliveryRow, reason: str) -> None:
    """Send nothing more to this installation."""
    await conn.execute(_INVALIDATED, {"installation": row.installation_id, "reason": reason})
