"""The rows of deliveries: read with all that is needed to send them, and written when something became of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from tenders.sources.record import Licitacion
from tenders.targeting import Preferences

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta
    from uuid import UUID

    from tenders.app import Connection

Status: TypeAlias = Literal["pending", "sent", "retryable", "ok", "failed", "invalid"]
LIVE = ("pending", "retryable")
ENDED = ("ok", "failed", "invalid")
RECEIPT_MISSING = "ReceiptMissing"

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
_WRITE = """
UPDATE notification_deliveries d SET status = c.status, attempt_count = c.attempt_count,
    next_attempt_at = c.next_attempt_at, last_error_code = c.error_code, last_error_message = c.error_message,
    provider_ticket_id = c.ticket, provider_receipt_id = c.receipt,
    sent_at = CASE WHEN c.status = 'sent' THEN now() ELSE d.sent_at END, updated_at = now(),
    completed_at = CASE WHEN c.status IN ('ok', 'failed', 'invalid') THEN now() END
FROM jsonb_to_recordset(%s) AS c (id bigint, status text, attempt_count integer, next_attempt_at timestamptz,
    error_code text, error_message text, ticket text, receipt text)
WHERE d.id = c.id
"""
# Two calls may have deliveries of the same tender or installation: both lock them in the same order.
_NOTIFIED = """
UPDATE licitaciones SET notificada = true, notificada_at = now() WHERE id IN (
    SELECT id FROM licitaciones WHERE id = ANY (%s) AND NOT notificada ORDER BY id LIMIT %s FOR UPDATE)
"""
_SIGNED_OFF = """
UPDATE device_installations SET active = false, inactive_since = now(), inactive_reason = 'DeviceNotRegistered'
WHERE installation_id IN (
    SELECT installation_id FROM device_installations WHERE installation_id = ANY (%s) AND active
    ORDER BY installation_id LIMIT %s FOR UPDATE)
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


@dataclass(frozen=True, slots=True)
class Change:
    """The row of a delivery as it is to be."""

    row: DeliveryRow
    status: Status
    next_attempt_at: datetime | None = None
    error_code: str | None = None
    error_message: str | None = None
    ticket: str | None = None
    """Of a push that was sent now. None: the one that it had."""

    def values(self) -> dict[str, object]:
        has_receipt = self.status in ENDED and self.row.status == "sent" and self.error_code != RECEIPT_MISSING
        return {
            "id": self.row.id,
            "status": self.status,
            "attempt_count": self.row.attempt_count,
            "next_attempt_at": self.next_attempt_at and self.next_attempt_at.isoformat(),
            "error_code": self.error_code,
            "error_message": self.error_message,
            "ticket": self.ticket or self.row.provider_ticket_id,
            # Expo's receipts have the numbers of their tickets.
            "receipt": self.row.provider_ticket_id if has_receipt else None,
        }


async def read(conn: Connection, ids: Sequence[int], *, deadline: timedelta) -> dict[int, DeliveryRow]:
    """Return deliveries by their ids. One that is missing has been archived."""
    async with conn.cursor(row_factory=class_row(DeliveryRow)) as cursor:
        await cursor.execute(_READ, {"ids": list(ids), "deadline": deadline, "most": len(ids)})
        return {row.id: row for row in await cursor.fetchall()}


async def write(conn: Connection, changes: Sequence[Change]) -> None:
    """Write the rows, and what follows from them for their tenders and installations."""
    await conn.execute(_WRITE, [Jsonb([change.values() for change in changes])])
    if notified := [change.row.licitacion_id for change in changes if change.status == "sent"]:
        await conn.execute(_NOTIFIED, [notified, len(notified)])
    if gone := [change.row.installation_id for change in changes if change.status == "invalid"]:
        await conn.execute(_SIGNED_OFF, [gone, len(gone)])
