"""Queues: what is in them, what ended within the hour, and their control rows."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from holdfast.ops.question import QueueAction
from holdfast.top.cell import Cell, duration, number, since, word
from holdfast.top.sheet import Action, Column, Found, Jump, Plan, Sheet, figures
from holdfast.top.words import Words

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.ops.answer import QueueLine, QueueOverview
    from holdfast.ops.desk import Desk
    from holdfast.ops.person import Person
    from holdfast.top.sheet import Look


_LATELY = timedelta(seconds=1.5)


class Row(NamedTuple):
    queue: QueueLine
    hour: QueueOverview | None
    """What ended within the hour."""


async def _read(look: Look) -> Found[Row]:
    answer = await look.desk.queues()
    hours = {queue.name: queue for queue in look.overview.queues}
    return Found([Row(queue, hours.get(queue.name)) for queue in answer.queues], counted(answer.counted_at, look.now))


def counted(at: datetime | None, now: datetime) -> str:
    """Say how old the counts of live jobs are."""
    if at is None:
        return "live jobs not counted yet"
    return f"counted {since(at, now)} ago" if now - at >= _LATELY else "counted just now"


def _state(row: Row) -> Cell:
    if row.queue.paused:
        return word("paused", "warn")
    if not row.queue.workers:
        return word("unserved", "bad" if row.queue.depth.due else "dim")
    return word("open", "good")


def _limit(row: Row) -> Cell:
    if row.queue.concurrency is None:
        return Cell("own", -1, "dim")
    return Cell(str(row.queue.concurrency), row.queue.concurrency, "warn")


def _rate(row: Row) -> Cell:
    if row.queue.rate is None:
        return Cell("own", -1.0, "dim")
    return Cell(f"{row.queue.rate:g}/s", row.queue.rate, "warn")


async def _open(_: Look, row: Row) -> Jump:
    return Jump("jobs", Words(fields={"queue": row.queue.name}))


async def _pause(desk: Desk, by: Person, row: Row) -> Plan:
    name = row.queue.name

    async def act() -> str:
        action = QueueAction(action="resume" if row.queue.paused else "pause")
        await desk.act_on_queue(name, action, by)
        return f"queue {name}: {'goes on' if row.queue.paused else 'paused'}"

    if row.queue.paused:
        return Plan(f"Resume the queue {name}?", "Workers claim its jobs again within a heartbeat.", act)
    return Plan(f"Pause the queue {name}?", "What runs goes on. Nothing more is claimed from it until resumed.", act)


QUEUES: Sheet[Row] = Sheet(
    name="queues",
    title="Queues",
    one="queue",
    read=_read,
    row_id=lambda row: row.queue.name,
    columns=(
        Column("queue", lambda row, _: word(row.queue.name)),
        Column("state", lambda row, _: _state(row)),
        figures("due", lambda row, _: number(row.queue.depth.due)),
        figures("oldest", lambda row, _: duration(row.queue.depth.oldest_due_seconds)),
        figures("running", lambda row, _: number(row.queue.depth.processing)),
        figures("done/h", lambda row, _: number(row.hour.completed if row.hour else None, "good")),
        figures("failed/h", lambda row, _: number(row.hour.failed if row.hour else None, "bad")),
        figures("p95", lambda row, _: duration(row.hour.latency.p95 if row.hour else None)),
        figures("pending", lambda row, _: number(row.queue.depth.pending)),
        figures("blocked", lambda row, _: number(row.queue.depth.blocked)),
        figures("stuck", lambda row, _: number(row.queue.depth.stuck, "bad")),
        figures("workers", lambda row, _: number(row.queue.workers)),
        figures("limit", lambda row, _: _limit(row)),
        figures("rate", lambda row, _: _rate(row)),
    ),
    sorted_by="due",
    empty="No queue has jobs, a control row or a worker.",
    open=_open,
    actions=(Action("pause", _pause),),
)
