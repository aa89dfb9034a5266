"""A shop with something for every page: `tests.browser.shop:app` for the processes that run it."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg

from holdfast import Continue, Counts, Cron, Event, Every, Fail, Holdfast, Job, Retry, Tick
from holdfast._relay.sinks.nats import NatsSink

app = Holdfast()

QUICK = Retry(max_attempts=2, base=timedelta(milliseconds=100), jitter=timedelta(0))
ONCE = Retry(max_attempts=1)
LARGEST_EVENT = 4_096
"""What the stream takes; a larger event is parked."""
_NATS = os.environ.get("SHOP_NATS_URL", "nats://127.0.0.1:4222")
_TENTHS = 10


@dataclass(frozen=True)
class InvoicePaid:
    invoice: int
    amount: int
    note: str = ""


@dataclass(frozen=True)
class Points:
    customer: str
    points: int


paid = app.event("invoice.paid", InvoicePaid)
# Its handler lives in another service, which is not running.
add_points = app.declare("loyalty.points.add", Points, queue="loyalty")


@app.job("mail.send", queue="mail")
async def send_mail(job: Job[Any], to: str, subject: str = "", api_token: str = "") -> str:
    await asyncio.sleep(0.005)
    return f"sent to {to}"


@app.job("sms.send", queue="sms")
async def send_sms(job: Job[Any], to: str) -> str:
    return f"sent to {to}"


@app.job("invoice.pdf.render", queue="pdf")
async def render(job: Job[Any], invoice: int, pages: int = 1) -> dict[str, int]:
    await asyncio.sleep(0.04 * pages)
    return {"invoice": invoice, "pages": pages}


class Outage(Exception):  # noqa: N818 - what payments end with while one is recorded
    pass


@app.job("card.charge", queue="payments", retry=QUICK)
async def charge_card(job: Job[Any], invoice: int, bank: str, card_number: str = "4111 1111 1111 1111") -> str:
    """Fail with an error named for the bank, as long as the table `outage` has it."""
    async with await psycopg.AsyncConnection.connect(os.environ["DATABASE_URL"]) as conn:
        row = await (await conn.execute("SELECT why FROM outage WHERE bank = %s", [bank])).fetchone()
    if row is not None:
        raise type(f"{bank}Outage", (Outage,), {})(f"{bank}: {row[0]}")
    return f"invoice {invoice} is paid"


@app.job("report.build", queue="reports", retry=ONCE, max_runtime=timedelta(hours=2))
async def build_report(job: Job[Any], name: str, seconds: float = 3600.0) -> str:
    """Take long, report progress, and stop when aborted."""
    for tenth in range(_TENTHS):
        job.progress(tenth / _TENTHS, f"chapter {tenth + 1} of {_TENTHS}")
        await asyncio.sleep(seconds / _TENTHS)
    return name


@app.job("order.ship", queue="orders")
async def ship(job: Job[Any], order: int) -> str:
    await asyncio.sleep(0.02)
    return f"order {order} is on its way"


@app.job("order.charge", queue="orders")
async def charge_order(job: Job[Any], order: int) -> Continue[str]:
    await asyncio.sleep(0.02)
    return Continue(ship.new(order))


@app.job("order.check", queue="orders", retry=ONCE)
async def check_order(job: Job[Any], order: int) -> Continue[str] | Fail:
    return Continue(charge_order.new(order)) if order > 0 else Fail("there is no such order")


@app.job("orders.summarize", queue="orders")
async def summarize(job: Job[Any], day: str) -> dict[str, Any]:
    return {"day": day, "orders": len(job.blockers)}


@app.on(paid, name="ledger", start="beginning", queue="ledger")
async def book(job: Job[Any], event: Event[InvoicePaid]) -> str:
    return f"{event.payload.amount} booked for invoice {event.payload.invoice}"


app.relay(
    "to-nats", paid, to=NatsSink(_NATS, subject="shop.{topic}"), start="beginning", partitions=2, poison="park_key"
)


@app.runner("carts.sweep", every=Every(timedelta(hours=6)), at_start=False)
async def sweep_carts(tick: Tick) -> Counts:
    return {"deleted": 12}


@app.runner("stock.sync", every=Every(timedelta(hours=6)), at_start=False)
async def sync_stock(tick: Tick) -> Counts:
    async with await psycopg.AsyncConnection.connect(os.environ["DATABASE_URL"]) as conn:
        row = await (await conn.execute("SELECT why FROM outage WHERE bank = 'stock'")).fetchone()
    if row is not None:
        raise ConnectionError(row[0])
    return {"articles": 480}


app.schedule("reports.monthly", build_report.new("monthly", seconds=2.0), every=Cron("0 6 1 * *"))
