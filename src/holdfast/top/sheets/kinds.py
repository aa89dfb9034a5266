"""Kinds that have live jobs or a live worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.top.cell import Cell, duration, number, word
from holdfast.top.sheet import Column, Found, Jump, Sheet, figures
from holdfast.top.sheets.queues import counted
from holdfast.top.words import Words

if TYPE_CHECKING:
    from holdfast.ops.answer import KindLine
    from holdfast.top.sheet import Look


async def _read(look: Look) -> Found[KindLine]:
    answer = await look.desk.kinds()
    return Found(answer.kinds, counted(answer.counted_at, look.now))


def _workers(kind: KindLine) -> Cell:
    if kind.workers:
        return number(kind.workers)
    return Cell("none", 0, "bad" if kind.depth.due else "dim")


async def _open(_: Look, kind: KindLine) -> Jump:
    return Jump("jobs", Words(fields={"kind": kind.kind}))


KINDS: Sheet[KindLine] = Sheet(
    name="kinds",
    title="Kinds",
    one="kind",
    read=_read,
    row_id=lambda kind: f"{kind.queue} {kind.kind}",
    columns=(
        Column("kind", lambda kind, _: word(kind.kind)),
        Column("queue", lambda kind, _: word(kind.queue)),
        figures("due", lambda kind, _: number(kind.depth.due)),
        figures("oldest", lambda kind, _: duration(kind.depth.oldest_due_seconds)),
        figures("workers", lambda kind, _: _workers(kind)),
        figures("done/h", lambda kind, _: number(kind.completed, "good")),
        figures("failed/h", lambda kind, _: number(kind.failed, "bad")),
        figures("p95", lambda kind, _: duration(kind.latency.p95)),
        figures("running", lambda kind, _: number(kind.depth.processing)),
        figures("pending", lambda kind, _: number(kind.depth.pending)),
        figures("blocked", lambda kind, _: number(kind.depth.blocked)),
        figures("stuck", lambda kind, _: number(kind.depth.stuck, "bad")),
    ),
    sorted_by="due",
    empty="No kind has live jobs or a live worker.",
    open=_open,
)
