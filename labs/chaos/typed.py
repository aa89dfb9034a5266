"""A kind whose result is more than JSON: it must come back as it was returned."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from uuid import UUID

from holdfast import Job  # noqa: TC001 - read when the handler is registered
from labs.chaos.application import RETRY, State, app

QUEUE = "plain"


class Payment(Enum):
    """How it was paid."""

    CASH = "cash"
    CARD = "card"


@dataclass(frozen=True, slots=True)
class Receipt:
    """One of each type that JSON does not have."""

    number: UUID
    amount: Decimal
    paid_at: datetime
    took: timedelta
    payment: Payment


def receipt(n: int) -> Receipt:
    """Return what the handler must have returned."""
    return Receipt(
        UUID(int=n),
        Decimal(n) / 100,
        datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=n, microseconds=n % 1_000_000),
        timedelta(milliseconds=n),
        Payment.CASH if n % 2 else Payment.CARD,
    )


@app.job("typed", queue=QUEUE, retry=RETRY)
async def typed(job: Job[State], n: int) -> Receipt:
    """Answer with a receipt."""
    job.state.book.begun(job)
    return receipt(n)
