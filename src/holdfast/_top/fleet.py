"""Queues, kinds, and workers: live, silent and recently stopped."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from holdfast._ops.requests import QueueAction
from holdfast._ops.wording import plain, since
from holdfast._top.cell import Cell, ago, duration, number, state, word
from holdfast._top.sheet import Action, Column, Jump, Plan, Sheet, SheetRows, TextPage, Words, figures, toggle

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from holdfast._ops.caller import Person
    from holdfast._ops.responses.fleet import KindLine, QueueLine, QueueOverview
    from holdfast._ops.service import Service
    from holdfast._ops.wording import Tone
    from holdfast._store.worker import WorkerLine
    from holdfast._top.sheet import Query


async def _read_workers(look: Query) -> SheetRows[WorkerLine]:
    answer = await look.service.workers()
    live = sum(worker.state == "live" for worker in answer.items)
    return SheetRows(answer.items, f"{live} live")


def _counter(worker: WorkerLine, name: str, tone: Tone = "plain") -> Cell:
    return number(worker.counters.get(name, 0), tone)


async def _open_workers(look: Query, worker: WorkerLine) -> TextPage:
    return TextPage(f"Worker {worker.name}", [*_lines(worker, look.now)])


def _lines(worker: WorkerLine, now: datetime) -> Iterator[str]:
    yield f"id         {worker.id}"
    yield f"state      {worker.state}"
    yield f"process    {worker.pid} on {plain(worker.host or '-')}, version {plain(worker.version or '-')}"
    yield f"started    {ago(worker.started_at, now).text} ago"
    yield f"heartbeat  {ago(worker.heartbeat_at, now).text} ago"
    yield f"reaped     {ago(worker.reaped_at, now).text} ago" if worker.reaped_at else "reaped     not yet"
    if worker.stopped_at is not None:
        yield f"stopped    {ago(worker.stopped_at, now).text} ago: {plain(worker.stop_reason or '-', 200)}"
    yield ""
    yield f"queues     {plain(', '.join(worker.queues), 2_000)}"
    yield f"kinds      {plain(', '.join(worker.kinds), 4_000)}"
    yield ""
    for name, count in sorted(worker.counters.items()):
        yield f"{plain(name):<20} {count:,}"


WORKERS: Sheet[WorkerLine] = Sheet(
    name="workers",
    title="Workers",
    one="worker",
    read=_read_workers,
    row_id=lambda worker: str(worker.id),
    columns=(
        figures("id", lambda worker, _: Cell(str(worker.id), worker.id)),
        Column("worker", lambda worker, _: word(worker.name)),
        Column("state", lambda worker, _: state(worker.state)),
        figures("heartbeat", lambda worker, now: ago(worker.heartbeat_at, now)),
        figures("up", lambda worker, now: ago(worker.started_at, worker.stopped_at or now)),
        figures("done", lambda worker, _: _counter(worker, "job_completed", "good")),
        figures("retried", lambda worker, _: _counter(worker, "job_retried", "warn")),
        figures("failed", lambda worker, _: _counter(worker, "job_failed", "bad")),
        Column("queues", lambda worker, _: word(" ".join(worker.queues))),
        Column("host", lambda worker, _: word(worker.host)),
        figures("pid", lambda worker, _: Cell(str(worker.pid or "-"), worker.pid or 0)),
        Column("version", lambda worker, _: word(worker.version)),
        Column("ended", lambda worker, _: word(worker.stop_reason)),
    ),
    sorted_by="state",
    falling=False,
    empty="No worker has started yet: `holdfast worker APP`.",
    open=_open_workers,
)


_LATELY = timedelta(seconds=1.5)


class QueueRow(NamedTuple):
    queue: QueueLine
    hour: QueueOverview | None
    """Jobs that ended within the hour."""


async def _read_queues(look: Query) -> SheetRows[QueueRow]:
    answer = await look.service.queues()
    hours = {queue.name: queue for queue in look.overview.queues}
    return SheetRows(
        [QueueRow(queue, hours.get(queue.name)) for queue in answer.items], counted(answer.counted_at, look.now)
    )


def counted(at: datetime | None, now: datetime) -> str:
    """Return how old the counts of live jobs are."""
    if at is None:
        return "live jobs not counted yet"
    return f"counted {since(at, now)} ago" if now - at >= _LATELY else "counted just now"


def _state_queues(row: QueueRow) -> Cell:
    if row.queue.paused:
        return word("paused", "warn")
    if not row.queue.workers:
        return word("unserved", "bad" if row.queue.depth.due else "dim")
    return word("open", "good")


def _limit(value: float | None, unit: str = "") -> Cell:
    """Return a control of a queue; `own`: each worker has its own setting."""
    return Cell("own", -1, "dim") if value is None else Cell(f"{value:g}{unit}", value, "warn")


async def _open_queues(_: Query, row: QueueRow) -> Jump:
    return Jump("jobs", Words(fields={"queue": row.queue.name}))


async def _pause_queues(service: Service, by: Person, row: QueueRow) -> Plan:
    name = row.queue.name

    async def act() -> str:
        action = QueueAction(action="resume" if row.queue.paused else "pause")
        await service.act_on_queue(name, action, by)
        return f"queue {name}: {'goes on' if row.queue.paused else 'paused'}"

    resumes, pauses = (
        "Workers claim its jobs again within a heartbeat.",
        "Running jobs go on. No more jobs are claimed from it until resumed.",
    )
    return toggle(f"the queue {name}", act, paused=row.queue.paused, resumes=resumes, pauses=pauses)


QUEUES: Sheet[QueueRow] = Sheet(
    name="queues",
    title="Queues",
    one="queue",
    read=_read_queues,
    row_id=lambda row: row.queue.name,
    columns=(
        Column("queue", lambda row, _: word(row.queue.name)),
        Column("state", lambda row, _: _state_queues(row)),
        figures("due", lambda row, _: number(row.queue.depth.due)),
        figures("oldest", lambda row, _: duration(row.queue.depth.oldest_due_seconds)),
        figures("running", lambda row, _: number(row.queue.depth.processing)),
        figures("done/h", lambda row, _: number(row.hour.completed if row.hour else None, "good")),
        figures("failed/h", lambda row, _: number(row.hour.failed if row.hour else None, "bad")),
        figures("waits p95", lambda row, _: duration(row.hour.waiting.p95 if row.hour else None)),
        figures("runs p95", lambda row, _: duration(row.hour.running.p95 if row.hour else None)),
        figures("pending", lambda row, _: number(row.queue.depth.pending)),
        figures("blocked", lambda row, _: number(row.queue.depth.blocked)),
        figures("stuck", lambda row, _: number(row.queue.depth.stuck, "bad")),
        figures("workers", lambda row, _: number(row.queue.workers)),
        figures("limit", lambda row, _: _limit(row.queue.concurrency)),
        figures("rate", lambda row, _: _limit(row.queue.rate, "/s")),
    ),
    sorted_by="due",
    empty="No queue has jobs, a control row or a worker.",
    open=_open_queues,
    actions=(Action("pause", _pause_queues),),
)


async def _read_kinds(look: Query) -> SheetRows[KindLine]:
    answer = await look.service.kinds()
    return SheetRows(answer.items, counted(answer.counted_at, look.now))


def _workers(kind: KindLine) -> Cell:
    if kind.workers:
        return number(kind.workers)
    return Cell("none", 0, "bad" if kind.depth.due else "dim")


async def _open_kinds(_: Query, kind: KindLine) -> Jump:
    return Jump("jobs", Words(fields={"kind": kind.kind}))


KINDS: Sheet[KindLine] = Sheet(
    name="kinds",
    title="Kinds",
    one="kind",
    read=_read_kinds,
    row_id=lambda kind: f"{kind.queue} {kind.kind}",
    columns=(
        Column("kind", lambda kind, _: word(kind.kind)),
        Column("queue", lambda kind, _: word(kind.queue)),
        figures("due", lambda kind, _: number(kind.depth.due)),
        figures("oldest", lambda kind, _: duration(kind.depth.oldest_due_seconds)),
        figures("workers", lambda kind, _: _workers(kind)),
        figures("done/h", lambda kind, _: number(kind.completed, "good")),
        figures("failed/h", lambda kind, _: number(kind.failed, "bad")),
        figures("waits p95", lambda kind, _: duration(kind.waiting.p95)),
        figures("runs p95", lambda kind, _: duration(kind.running.p95)),
        figures("running", lambda kind, _: number(kind.depth.processing)),
        figures("pending", lambda kind, _: number(kind.depth.pending)),
        figures("blocked", lambda kind, _: number(kind.depth.blocked)),
        figures("stuck", lambda kind, _: number(kind.depth.stuck, "bad")),
    ),
    sorted_by="due",
    empty="No kind has live jobs or a live worker.",
    open=_open_kinds,
)
