"""The chain of a delivery: `delivery.dispatch`, then `delivery.receipt`, and `delivery.dispatch` again after a pause.

Each step takes many deliveries in one call, and ends them in one transaction: the row of a delivery and the end of its
job are committed together, or neither. The row counts the attempts, not the job. So the jobs may be retried without a
limit, after errors of our own and after workers that died, and no delivery is left without an end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from holdfast import Busy, Continue, Item, Job, Limit, Reschedule
from tenders import deliveries
from tenders import dispatch as dispatching
from tenders import receipts as confirming
from tenders.app import app, config
from tenders.deliveries import Change
from tenders.dispatch import Withheld
from tenders.expo import PUSHES
from tenders.push import Delivered, Refused, Retryable, Sent, Unregistered
from tenders.runs import recorded

if TYPE_CHECKING:
    from collections import Counter
    from datetime import datetime

    from tenders.app import State
    from tenders.config import Config
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


# Expo takes 600 notifications a second from one project, whatever the number of workers.
@app.batch("delivery.dispatch", size=PUSHES, queue="push", retry=_PATIENT, limits=[Limit(rate="600/s", burst=PUSHES)])
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
    outcomes: dict[Job[Any], tuple[DeliveryRow, Outcome]] = {}
    ends: dict[Job[Any], End] = {}
    for item in items:
        row, outcome = rows.get(item.args.delivery), found.get(item.args.delivery)
        if row is None or outcome is None:
            ends[item.job] = GONE if row is None else row.status
        elif isinstance(outcome, Busy | Reschedule):
            ends[item.job] = outcome
            counts["postponed"] += 1
        else:
            outcomes[item.job] = row, outcome
    if outcomes:
        ends |= await _written(state, outcomes, counts)
    return [ends[item.job] for item in items]


async def _written(
    state: State, outcomes: dict[Job[Any], tuple[DeliveryRow, Outcome]], counts: Counter[str]
) -> dict[Job[Any], End]:
    """Complete the jobs and write the rows of their deliveries in one transaction."""
    async with state.pool.connection() as conn, conn.transaction():
        [[now]] = await (await conn.execute("SELECT now()")).fetchall()
        changes = {job: change_of(row, outcome, state.config, now) for job, (row, outcome) in outcomes.items()}
        ends: dict[Job[Any], End] = {job: _end_of(change, state.config) for job, change in changes.items()}
        # Another worker has taken over the deliveries of jobs that were lost.
        lost = await app.complete_many(conn, ends)
        kept = [change for job, change in changes.items() if job not in lost]
        await deliveries.write(conn, kept)
    counts.update(change.status for change in kept)
    return ends


def change_of(row: DeliveryRow, outcome: Outcome, config: Config, now: datetime) -> Change:
    """Return what a delivery becomes."""
    match outcome:
        case Sent(ticket):
            return Change(row, "sent", ticket=ticket)
        case Delivered():
            return Change(row, "ok")
        case Retryable(code, message) if not config.backoff.is_last(row.attempt_count):
            due_at = now + config.backoff.delay(row.attempt_count)
            return Change(row, "retryable", next_attempt_at=due_at, error_code=code, error_message=message)
        case Retryable(code, message) | Refused(code, message) | Withheld(code, message):
            return Change(row, "failed", error_code=code, error_message=message)
        case Unregistered(code, message):
            return Change(row, "invalid", error_code=code, error_message=message)


def _end_of(change: Change, config: Config) -> str | Continue[str]:
    """Return how the job of a delivery ends: with the next one of the chain, or with the delivery's status."""
    match change.status:
        case "sent":
            return Continue(receipt.new(Step(change.row.id)).options(delay=config.receipt_wait))
        case "retryable":
            return Continue(dispatch.new(Step(change.row.id)).options(at=change.next_attempt_at))
        case status:
            return status
