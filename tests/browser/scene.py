"""An hour in the life of the shop for its pictures: real jobs, whose rows are then moved back in time."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

from holdfast import OrderKey, Unique
from holdfast._drivers import run_sync
from holdfast._store.schedule import trigger_schedule
from tests.browser import shop
from tests.browser.live import Storefront, customer, until, working

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import ExitStack
    from pathlib import Path

    from holdfast import NewJob
    from tests.browser.live import Live

MINUTES = 60
BANK = "Meridian"
_OUTAGE = range(19, 26)
_CEDAR = (41, 52)
_MOVED = {
    "tally": ("minute", ("minute",)),
    "job_history": ("finished_at", ("finished_at", "created_at", "available_at", "first_due_at")),
    "job_failed": ("finished_at", ("finished_at", "created_at", "available_at", "first_due_at")),
    "attempt": ("ended_at", ("ended_at", "due_at", "claimed_at")),
}


def live_an_hour(live: Live) -> None:
    """Run what an hour brings, minute by minute, each within a second or two, and move it back to its minute."""
    chance = random.Random(7)
    number = 0
    for ago in range(MINUTES - 1, 2, -1):
        wave = list(_wave(chance, ago, number))
        number += len(wave)
        if ago in _OUTAGE or ago in _CEDAR:
            bank = BANK if ago in _OUTAGE else "Cedar"
            with live.outage(bank, "504 Gateway Timeout" if bank == BANK else "TLS handshake failed"):
                wave += [shop.charge_card.new(number + more, bank) for more in range(chance.randint(2, 9))]
                live.enqueue(*wave)
                _until_idle(live)
        else:
            live.enqueue(*wave)
            _until_idle(live)
        _move(live, ago, "> now() - interval '2 minutes'")
    _move(live, -2, "<= now() - interval '2 minutes'")  # up to the present


def go_on(live: Live, stack: ExitStack) -> None:
    """Let customers come until the stack is closed, and let there be something that waits, runs and is blocked."""
    stack.enter_context(Storefront(live.database, every=0.5, customer=_customer))
    live.wait(*(shop.send_mail.new(f"newsletter{number}@example.org") for number in range(240)))
    reports = live.enqueue(shop.build_report.new("yearly", 900.0), shop.build_report.new("quarterly", 300.0))
    orders = live.enqueue(shop.check_order.new(1), shop.check_order.new(2))
    live.enqueue(shop.summarize.new("2026-11-15").options(after=[*reports, *orders]))
    live.pay(*range(1, 400))


def until_read(live: Live) -> None:
    """Wait until every subscription has read what was published."""
    until(lambda: live.conn.execute("SELECT sum(events) FROM holdfast.lag()").fetchone() == (0,), "all was read")


def get_into_trouble(live: Live, folder: Path) -> None:
    """Let something be wrong: a kind without a worker, a runner that fails, events that the broker refuses."""
    live.enqueue(*(shop.add_points.new(shop.Points(f"customer{number}", 5)) for number in range(14)))
    for invoice in (501, 502):
        live.pay(invoice, note="x" * shop.LARGEST_EVENT, key=f"order-{invoice}")
        live.pay(invoice, key=f"order-{invoice}")
        live.until_parked(f"order-{invoice}", 2)
    with live.outage("stock", "warehouse.example.org did not answer within 10 s"):
        run_sync(live.conn, trigger_schedule("stock.sync"))
        live.until_run("stock.sync", "failed")
    run_sync(live.conn, trigger_schedule("carts.sweep"))
    live.until_run("carts.sweep", "completed")
    with working(live.database, live.nats, folder) as second:
        count = "SELECT count(*) FROM holdfast.worker WHERE reaped_at IS NOT NULL"
        until(lambda: live.conn.execute(count).fetchone() == (2,), f"a second worker: {second.errors}")


def _customer(number: int) -> list[NewJob[Any]]:
    """Return the jobs of one customer; sometimes a customer orders a whole catalogue, and a backlog builds up."""
    catalogue = range(90 + 7 * number % 50) if number % 30 == 0 else ()
    return [
        *customer(number),
        shop.charge_card.new(number, "Harbour"),
        *(shop.render.new(100_000 + page, pages=4) for page in catalogue),
    ]


def _wave(chance: random.Random, ago: int, number: int) -> Iterator[NewJob[Any]]:
    tide = 1 + 0.45 * math.sin(ago / 7) + chance.uniform(-0.2, 0.2)
    for place in range(round(240 * tide)):
        order = number + place + 1
        yield shop.send_mail.new(f"customer{order}@example.org", f"Order {order}", "hush")
        if place % 2 == 0:
            yield shop.check_order.new(order).options(order_key=OrderKey(f"customer{order % 50}"))
        if place % 10 == 0:
            yield shop.render.new(order, pages=chance.choice((1, 1, 2, 5)))
        if place % 5 == 0:
            yield shop.charge_card.new(order, "Harbour").options(unique=Unique(f"charge:{order}"))
        if place % 9 == 0:
            yield shop.send_sms.new(f"+56 9 {order:08}")


def _until_idle(live: Live) -> None:
    left = "SELECT kind, status, count(*) FROM holdfast.job GROUP BY kind, status"
    until(lambda: not live.conn.execute(left).fetchall(), f"all have ended: {live.worker.errors}")


def _move(live: Live, minutes: int, which: str) -> None:
    """Move what ended within these times back by so many minutes."""
    with live.conn.transaction():
        for table, (when, columns) in _MOVED.items():
            moved = ", ".join(f"{column} = {column} - %(ago)s * interval '1 minute'" for column in columns)
            live.conn.execute(f"UPDATE holdfast.{table} SET {moved} WHERE {when} {which}".encode(), {"ago": minutes})
