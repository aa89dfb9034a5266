"""Sends deliveries: those that are still wanted, with one request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from holdfast import Busy
from tenders.deliveries import LIVE
from tenders.money import pesos
from tenders.push import Push, RateLimited, Retryable, Ticket, Unavailable
from tenders.targeting import matches
from tenders.times import written

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tenders.app import State
    from tenders.deliveries import DeliveryRow


@dataclass(frozen=True, slots=True)
class Withheld:
    """It was not sent: since the delivery was made, the phone was signed off or its owner changed the preferences."""

    code: str
    message: str


Dispatched: TypeAlias = Ticket | Withheld | Busy


async def send(state: State, rows: Iterable[DeliveryRow]) -> dict[int, Dispatched]:
    """Send what is to be sent, and return what became of each, by its id. One that has ended is left out."""
    found: dict[int, Dispatched] = {}
    wanted: list[DeliveryRow] = []
    for row in rows:
        if row.status not in LIVE:
            continue
        withheld = why_not(row)
        if withheld is None:
            wanted.append(row)
        else:
            found[row.id] = withheld
    found.update(zip([row.id for row in wanted], await _sent(state, wanted), strict=True))
    return found


def why_not(row: DeliveryRow) -> Withheld | None:
    """Return why a delivery must not be sent any more. None: send it."""
    if not row.active:
        return Withheld("InstallationInactive", "the installation was signed off after the delivery was made")
    if not matches(row.preferences, row.licitacion):
        return Withheld("PreferencesChanged", "the preferences no longer match the tender")
    return None


def push_of(row: DeliveryRow) -> Push:
    """Return the push of a delivery. Every attempt has the same id."""
    parts = [row.nombre or row.codigo_externo, row.organismo]
    parts += [pesos(row.monto)] if row.monto is not None else []
    parts += [f"cierra {written(row.fecha_cierre)}"] if row.fecha_cierre is not None else []
    return Push(
        token=row.push_token,
        title="Nueva licitación",
        body=" · ".join(part for part in parts if part)[:500],
        data={"id": str(row.delivery_key), "codigo": row.codigo_externo},
    )


async def _sent(state: State, rows: Sequence[DeliveryRow]) -> Sequence[Dispatched]:
    if not rows:
        return []
    try:
        return await state.push.send([push_of(row) for row in rows])
    except RateLimited as exc:
        # No attempt is counted: no push of this worker is sent until the pause is over.
        return [Busy(exc.retry_after or state.config.dispatch_pause) for _ in rows]
    except Unavailable as exc:
        return [Retryable("Unavailable", str(exc)[:500]) for _ in rows]
