"""An application that takes over from an outbox. It is copied to a folder of its own, and imported there."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, TypedDict

from holdfast import Holdfast, Job

app = Holdfast()


class Paid(TypedDict):
    order_id: int


@app.job("order.ship", queue="shipping")
async def ship(job: Job[Any], order_id: int, price: Decimal = Decimal(0)) -> int:
    return order_id


@app.job("mail.send")
async def send(job: Job[Any], to: str) -> str:
    return to


app.declare("pdf.render", Paid)
app.event("order.paid", Paid)
