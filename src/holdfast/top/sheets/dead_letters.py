"""Dead letters, grouped by why they failed, and their redriving."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.ops.question import DeadLetterSearch, JobAction, JobFilter
from holdfast.store.search import MOST_ACTED_ON
from holdfast.top.cell import ago, number, word
from holdfast.top.sheet import Action, Column, Found, Jump, Sheet, figures
from holdfast.top.sheets.jobs import looked, planned
from holdfast.top.words import Words

if TYPE_CHECKING:
    from holdfast.ops.answer import DeadLetterGroup
    from holdfast.ops.desk import Desk
    from holdfast.ops.person import Person
    from holdfast.top.sheet import Look, Plan


async def _read(look: Look) -> Found[DeadLetterGroup]:
    answer = await look.desk.dead_letters(DeadLetterSearch())
    return Found(answer.groups, looked(answer.looked, look.now))


async def _open(_: Look, group: DeadLetterGroup) -> Jump:
    named = {"status": "failed", "kind": group.kind, "queue": group.queue, "error": group.error_code}
    return Jump("jobs", Words(fields=named))


async def _redrive(desk: Desk, by: Person, group: DeadLetterGroup) -> Plan:
    which = JobFilter(status="failed", kind=group.kind, queue=group.queue, error_code=group.error_code)
    action = JobAction(action="retry", filter=which, most=MOST_ACTED_ON)
    return await planned(desk, by, action, f"of {group.kind} that failed with {group.error_code}")


DEAD_LETTERS: Sheet[DeadLetterGroup] = Sheet(
    name="dead-letters",
    title="Dead letters",
    one="group",
    read=_read,
    row_id=lambda group: f"{group.queue} {group.kind} {group.error_code}",
    columns=(
        Column("kind", lambda group, _: word(group.kind)),
        Column("error", lambda group, _: word(group.error_code, "bad")),
        figures("jobs", lambda group, _: number(group.jobs)),
        figures("last", lambda group, now: ago(group.last_at, now)),
        figures("first", lambda group, now: ago(group.first_at, now)),
        Column("queue", lambda group, _: word(group.queue)),
        Column("says", lambda group, _: word(group.error)),
    ),
    sorted_by="jobs",
    empty="No dead letters.",
    open=_open,
    actions=(Action("redrive", _redrive),),
)
