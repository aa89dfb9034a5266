"""The chain of a delivery: `delivery.dispatch`, then `delivery.receipt`, and `delivery.dispatch` again after a pause.

Each step takes many deliveries in one call, and ends each of them in a transaction of its own: the row of the delivery
and the end of its job are committed together, or neither. The row counts the attempts, not the job. So the jobs may be
retried without a limit, by errors of our own and by workers that die, and no delivery is left without an end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from holdfast import Busy, Continue, Item, LeaseLost, Reschedule
from tenders import deliveries
from tenders import dispatch as dispatching
from tenders import receipts as confirming
from tenders.app import app, config
from tenders.dispatch import Withheld
from tenders.expo import PUSHES
from tenders.push import Delivered, Refused, Retryable, Sent, Unregistered
from tenders.runs import recorded

if TYPE_CHECKING:
    from collections import Counter

    from tenders.app import Connection, State
    from tenders.deliveries import DeliveryRow
    from tenders.dispatch import Dispatched
    from tenders.receipts import Confirmed

Outcome: TypeAlias = Sent | Delivered | Retryable | Refused | Unregistered | Withheld
End: TypeAlias = str | Continue[str] | Busy | Reschedule

GONE = "archived"
_PATIENT = replace(config.backoff, max_attempts=None)


@dataclass(frozen=True)
class Step:
    """The payload of both jobs."""

    delivery: int


@app.batch("delivery.dispatch", size=PUSHES, queue="push", retry=_PATIENT)
async def dispatch(items: list[Item[Step]]) -> list[str | Continue[str] | Busy | Reschedule]:
    state: State = items[0].job.state
    async with recorded(state.pool, "dispatch") as counts:
        rows = await _read(state, items)
        sent = await dispatching.send(state, rows.values())
        tried = {key: row if isinstance(sent.get(key), Withheld) else row.attempted() for key, row in rows.items()}
        return await _settled(state, items, tried, sent, counts)


@app.batch("delivery.receipt", size=300, queue="receipts", retry=_PATIENT)
async def receipt(items: list[Item[Step]]) -> list[str | Continue[str] | Busy | Reschedule]:
    state: State = items[0].job.state
    async with recorded(state.pool, "receipt") as counts:
        rows = await _read(state, items)
        confirmed = await confirming.fetch(state, rows.values())
        return await _settled(state, items, rows, confirmed, counts)


async def _read(state: State, items: list[Item[Step]]) -> dict[int, DeliveryRow]:
    async with state.pool.connection() as conn:
        ids = [item.args.delivery for item in items]
        return await deliveries.read(conn, ids, deadline=state.config.receipt_deadline)


async def _settled(
    state: State,
    items: list[Item[Step]],
    rows: dict[int, DeliveryRow],
    found: dict[int, Dispatched] | dict[int, Confirmed],
    counts: Counter[str],
) -> list[End]:
    """End each job. `found`: what became of its delivery; nothing if that has ended before."""
    ends: list[End] = []
    for item in items:
        row, outcome = rows.get(item.args.delivery), found.get(item.args.delivery)
        if row is None:
            ends.append(GONE)
        elif outcome is None:
            ends.append(row.status)
        elif isinstance(outcome, Busy | Reschedule):
            counts["postponed"] += 1
            ends.append(outcome)
        else:
            ends.append(await _settle(state, item, row, outcome, counts))
    return ends


async def _settle(state: State, item: Item[Step], row: DeliveryRow, outcome: Outcome, counts: Counter[str]) -> End:
    """Write the row and complete the job in one transaction."""
    try:
        async with state.pool.connection() as conn, conn.transaction():
            status, end = await _write(state, conn, row, outcome)
            await item.job.complete(conn, end)
    except LeaseLost:
        # Another worker has the delivery, and this transaction was rolled back. The other jobs go on.
        return row.status
    counts[status] += 1
    return end


async def _write(state: State, conn: Connection, row: DeliveryRow, outcome: Outcome) -> tuple[str, str | Continue[str]]:
    """Write what became of a delivery. Return its status, and how its job ends."""
    backoff = state.config.backoff
    match outcome:
        case Sent(ticket):
            await deliveries.mark_sent(conn, row, ticket)
            return "sent", Continue(receipt.new(Step(row.id)).options(delay=state.config.receipt_wait))
        case Delivered():
            await deliveries.mark_ended(conn, row, "ok")
            return "ok", "ok"
        case Retryable(code, message) if not backoff.is_last(row.attempt_count):
            delay = backoff.delay(row.attempt_count)
            due_at = await deliveries.mark_retryable(conn, row, code, message, delay)
            return "retryable", Continue(dispatch.new(Step(row.id)).options(at=due_at))
        case Retryable(code, message) | Refused(code, message) | Withheld(code, message):
            await deliveries.mark_ended(conn, row, "failed", code=code, message=message)
            return "failed", "failed"
        case Unregistered(code, message):
            await deliveries.mark_ended(conn, row, "invalid", code=code, message=message)
            await deliveries.invalidate(conn, row, code)
            return "invalid", "invalid"
