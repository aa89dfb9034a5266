"""The endpoints that the runners call, with the token of the services. Each does what is due, and may be repeated."""

import hmac
import time
from typing import Annotated

from fastapi import APIRouter, Depends, Header, HTTPException
from pydantic import BaseModel

from .api import Shared
from .billing import bill, unbilled
from .invoices import today_of
from .reminders import remind

BATCH = 100
MOST = 1_000


def service_token(services: Shared, x_service_token: Annotated[str, Header()] = "") -> None:
    if not hmac.compare_digest(x_service_token.encode(), services.config.service_token.encode()):
        raise HTTPException(401, "the header x-service-token is missing or wrong")


router = APIRouter(prefix="/internal", tags=["internal"], dependencies=[Depends(service_token)])


class Budget(BaseModel):
    """How much the runner may do in this call."""

    max_items: int | None = None
    max_ms: int = 30_000

    @property
    def items(self) -> int:
        return min(max(self.max_items or BATCH, 0), MOST)


@router.post("/invoice-reminders")
async def remind_of_invoices(budget: Budget, services: Shared) -> dict[str, int]:
    async with services.sessions.begin() as session:
        return {"reminded": await remind(session, today_of(services.config), budget.items)}


@router.post("/classes-billing")
async def bill_classes(budget: Budget, services: Shared) -> dict[str, int]:
    # A tenth of the time is left for the answer.
    ends_at = time.monotonic() + budget.max_ms * 0.9 / 1000
    today, billed = today_of(services.config), 0
    async with services.sessions() as session:
        due = await unbilled(session, today, budget.items)
    for customer_id, currency in due:
        if time.monotonic() > ends_at:
            break
        # A transaction for each customer: numbers are taken in it, and others who issue wait for them.
        async with services.sessions.begin() as session:
            billed += await bill(session, customer_id, currency, today)
    return {"billed": billed}
