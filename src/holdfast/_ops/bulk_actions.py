"""Actions by a filter: stored with their audit entry, begun in the request, carried on by workers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from holdfast._model.limit import parsed_rate
from holdfast._ops.caller import RequestRefused, audit_entry
from holdfast._ops.jobs import search_of
from holdfast._store.bulk_action import advance_bulk_action, begin_bulk_action, resume_bulk_action, stop_bulk_action
from holdfast._store.bulk_action_line import BulkAction, RefusedJob, read_bulk_action
from holdfast._store.search import find_replays

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast._engine.report.transition import Transitions
    from holdfast._ops.caller import Person
    from holdfast._ops.pool import Connections
    from holdfast._ops.requests import BulkActionControl, JobAction, JobFilter
    from holdfast._store.bulk_action import Portion

# A request carries on its own action for so long: most end within it.
SECONDS = 1.0
_WHY = {
    "not_failed": "it is no dead letter, or its history has aged out",
    "not_found": "it has ended, was deleted, or never was",
    "processing": "it runs: cancel it, or wait until it has ended",
    "blocked": "it waits for something else than its time",
    "busy": "another session is changing it",
}


def why(answer: str) -> str:
    """Return in words why an action was not done to a job."""
    if answer.startswith("duplicate of "):
        return f"another live job has its unique key: {answer.removeprefix('duplicate of ')}"
    if answer.startswith("replayed as "):
        return f"it was retried already, as job {answer.removeprefix('replayed as ')}: `again` retries it once more"
    if answer.startswith("error "):
        return f"the database refused it with the error {answer.removeprefix('error ')}"
    return _WHY.get(answer, answer)


async def begin(  # noqa: PLR0913 - what a stored action has
    pool: Connections,
    action: JobAction,
    which: JobFilter,
    statuses: Sequence[str],
    by: Person,
    *,
    expected: int | None,
) -> int:
    """Store an action and its audit entry; return its id. `expected`: how many jobs match; None: not known."""
    starts, period_ms = (None, 1) if action.rate is None else parsed_rate(action.rate)
    async with pool.writing() as transaction:
        id_ = await transaction.run(
            begin_bulk_action(
                action.action,
                search_of(which),
                statuses if which.status is None else (which.status,),
                due=action.at,
                rate=None if starts is None else 1000 * starts / period_ms,
                most=action.limit,
                expected=expected,
                who=by.name,
                credential=by.credential,
                role=by.role,
            )
        )
        if id_ is None:
            raise RequestRefused(409, "too_many", "A hundred bulk actions are under way: stop some, or wait.")
        detail = action.model_dump(mode="json", include={"filter", "at", "rate", "limit"}, exclude_none=True)
        detail["bulk_action"] = str(id_)
        await transaction.run(audit_entry(by, f"jobs.{action.action}", jobs=expected, detail=detail))
    return id_


async def carry_on(pool: Connections, id_: int, transitions: Transitions, *, seconds: float = SECONDS) -> BulkAction:
    """Act on portions that are due, for about so many seconds; return the action as it is then."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        async with pool.writing() as transaction:
            portion = await transaction.run(advance_bulk_action(id_))
            retried = portion is not None and transitions and portion.action == "retry"
            made = dict(zip(map(int, portion.answers), portion.ids, strict=True)) if portion and retried else {}
            replays = await transaction.run(find_replays(made)) if made else []
        transitions.enqueued(replays, "replay")
        _tell_cancelled(portion, transitions)
        if portion is None or portion.ended or portion.wait_ms:
            break
    return await read(pool, id_)


def _tell_cancelled(portion: Portion | None, transitions: Transitions) -> None:
    for id_, answer in zip(portion.ids, portion.answers, strict=True) if portion and portion.ids else ():
        if answer == "cancelled":
            transitions.tell("job_cancelled", id_)


async def read(pool: Connections, id_: int) -> BulkAction:
    async with pool.reading() as transaction:
        found = await transaction.run(read_bulk_action(id_))
    if found is None:
        raise RequestRefused(404, "not_found", f"There is no bulk action {id_}: it never was, or has aged out.")
    return explained(found)


def explained(line: BulkAction) -> BulkAction:
    """Return it with its refusals in words."""
    return line.model_copy(update={"refusals": [RefusedJob(id=one.id, why=why(one.why)) for one in line.refusals]})


async def control(pool: Connections, id_: int, action: BulkActionControl, by: Person) -> BulkAction:
    """Stop or resume an action."""
    async with pool.writing() as transaction:
        changes = stop_bulk_action(id_, by.name) if action.action == "stop" else resume_bulk_action(id_)
        if await transaction.run(changes):
            await transaction.run(audit_entry(by, f"bulk_action.{action.action}", target=str(id_)))
            changed = True
        else:
            changed = False
    line = await read(pool, id_)
    if not changed:
        needed = "running" if action.action == "stop" else "stopped"
        raise RequestRefused(409, "wrong_state", f"Bulk action {id_} is {line.state}, not {needed}.")
    return line
