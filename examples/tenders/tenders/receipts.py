"""Asks what became of pushes: of many with one request."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from holdfast import Busy, Reschedule
from tenders.deliveries import RECEIPT_MISSING
from tenders.push import RateLimited, Receipt, Refused

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tenders.app import State
    from tenders.deliveries import DeliveryRow

Confirmed: TypeAlias = Receipt | Busy | Reschedule


async def fetch(state: State, rows: Iterable[DeliveryRow]) -> dict[int, Confirmed]:
    """Return what became of each delivery that was sent, by its id.

    If the provider does not answer, the error is raised, and the jobs are tried again.
    """
    tickets = {row.id: row.provider_ticket_id for row in rows if row.status == "sent" and row.provider_ticket_id}
    overdue = {row.id for row in rows if row.overdue}
    if not tickets:
        return {}
    try:
        receipts = await state.push.fetch_receipts(list(tickets.values()))
    except RateLimited as exc:
        return {delivery: Busy(exc.retry_after or state.config.dispatch_pause) for delivery in tickets}

    def confirmed(delivery: int, ticket: str) -> Confirmed:
        if (receipt := receipts.get(ticket)) is not None:
            return receipt
        if delivery in overdue:
            return Refused(RECEIPT_MISSING, "the provider has no receipt any more")
        return Reschedule(state.config.receipt_wait)

    return {delivery: confirmed(delivery, ticket) for delivery, ticket in tickets.items()}
