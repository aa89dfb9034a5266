"""Workers: the live ones, the silent ones, and those that stopped lately."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.top.cell import Cell, ago, number, plain, word, words
from holdfast.top.sheet import Column, Found, Page, Sheet, figures

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from holdfast.ops.answer import WorkerLine
    from holdfast.top.cell import Tone
    from holdfast.top.sheet import Look

_TONES: dict[str, Tone] = {"live": "good", "silent": "bad", "stopped": "dim"}


async def _read(look: Look) -> Found[WorkerLine]:
    answer = await look.desk.workers()
    live = sum(worker.state == "live" for worker in answer.workers)
    return Found(answer.workers, f"{live} live")


def _counter(worker: WorkerLine, name: str, tone: Tone = "plain") -> Cell:
    return number(worker.counters.get(name, 0), tone)


async def _open(look: Look, worker: WorkerLine) -> Page:
    return Page(f"Worker {worker.name}", [*_lines(worker, look.now)])


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
    read=_read,
    row_id=lambda worker: str(worker.id),
    columns=(
        figures("id", lambda worker, _: Cell(str(worker.id), worker.id)),
        Column("worker", lambda worker, _: word(worker.name)),
        Column("state", lambda worker, _: word(worker.state, _TONES[worker.state])),
        figures("heard", lambda worker, now: ago(worker.heartbeat_at, now)),
        figures("up", lambda worker, now: ago(worker.started_at, worker.stopped_at or now)),
        figures("done", lambda worker, _: _counter(worker, "job_completed", "good")),
        figures("retried", lambda worker, _: _counter(worker, "job_retried", "warn")),
        figures("failed", lambda worker, _: _counter(worker, "job_failed", "bad")),
        Column("queues", lambda worker, _: words(worker.queues)),
        Column("host", lambda worker, _: word(worker.host)),
        figures("pid", lambda worker, _: Cell(str(worker.pid or "-"), worker.pid or 0)),
        Column("version", lambda worker, _: word(worker.version)),
        Column("ended", lambda worker, _: word(worker.stop_reason)),
    ),
    sorted_by="state",
    falling=False,
    empty="No worker has started yet: `holdfast worker APP`.",
    open=_open,
)
