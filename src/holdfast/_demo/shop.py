"""The application of the demo: a shop that takes orders, charges cards, packs parcels and sends mail.

Everything fails now and then, as it does in life: the bank is slow, a card is declined, the mail server is away.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from datetime import timedelta

from holdfast import Continue, Event, Every, Fail, Holdfast, Job, Reschedule, Retry

app = Holdfast()

PATIENT = Retry(5, base=timedelta(seconds=2), maximum=timedelta(seconds=20))


@dataclass(frozen=True)
class OrderPlaced:
    order: int
    customer: str
    amount: int


order_placed = app.event("order.placed", OrderPlaced)


# An order is a chain of three jobs: charge, pack, ship. Each continues with the next one.


@app.job("order.ship", queue="warehouse")
async def ship(job: Job[None], order: int) -> str:
    await work(0.2)
    if chance(0.05):
        raise Reschedule(timedelta(seconds=15))  # the van has left; the next one comes
    return f"parcel {order} is on its way"


@app.job("order.pack", queue="warehouse")
async def pack(job: Job[None], order: int, items: int) -> Continue[str]:
    for item in range(items):
        await work(0.3)
        job.progress((item + 1) / items, f"item {item + 1} of {items}")
    return Continue(ship.new(order))


@app.job("order.charge", queue="payments", retry=PATIENT)
async def charge(job: Job[None], order: int, items: int, amount: int) -> Continue[str] | Fail:
    await work(0.15)
    if chance(0.12):
        raise TimeoutError("the bank did not answer")
    if chance(0.03):
        return Fail("the card was declined", code="CardDeclined")
    return Continue(pack.new(order, items))


# The same event has three subscribers. Each gets a job of its own for it.


@app.on(order_placed, name="mail.confirmation", queue="mail", retry=PATIENT)
async def confirm(job: Job[None], event: Event[OrderPlaced]) -> str:
    await work(0.1)
    if chance(0.15):
        raise ConnectionError("the mail server is away")
    return f"mailed {event.payload.customer}"


@app.on(order_placed, name="ledger.book", ordered=True)
async def book(job: Job[None], event: Event[OrderPlaced]) -> int:
    await work(0.02)
    return event.payload.amount


@app.on(order_placed, name="stock.reserve")
async def reserve(job: Job[None], event: Event[OrderPlaced]) -> None:
    await work(0.05)
    if event.payload.order % 40 == 0:
        # A defect: after its last attempt the job is a dead letter, with this traceback.
        raise LookupError(f"no shelf for order {event.payload.order}")


# Schedules: each slot is one job, however many workers run.


@app.job("report.sales", queue="reports")
async def report(job: Job[None]) -> str:
    for page in range(10):
        await work(0.5)
        job.progress((page + 1) / 10, f"page {page + 1}")
    return "10 pages"


@app.job("carts.remind", queue="mail", retry=PATIENT)
async def remind(job: Job[None]) -> int:
    await work(0.4)
    return random.randint(1, 9)


app.schedule("sales report", report.new(), every=Every(timedelta(seconds=30)))
app.schedule("forgotten carts", remind.new(), every=Every(timedelta(seconds=10)))


async def work(seconds: float) -> None:
    """Take about so long."""
    await asyncio.sleep(random.uniform(0.3, 2.0) * seconds)


def chance(share: float) -> bool:
    """Return True in this share of the calls."""
    return random.random() < share
