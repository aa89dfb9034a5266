"""Acting on jobs: found by a filter or named, previewed, capped, a hundred to a transaction, and written down."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.ops.answer import JobActionResult, Looked, RefusedJob
from holdfast.ops.finding import find, line, narrowed, search_of
from holdfast.ops.refusal import Refused
from holdfast.store.audit import add_to_audit, record_audit
from holdfast.store.search import Search, act_on_jobs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from holdfast.ops.person import Person
    from holdfast.ops.pool import Pool, Talk
    from holdfast.ops.question import JobAction
    from holdfast.store.search import Acted, FoundJob

# What an action can be done to.
_OF = {
    "retry": ("failed",),
    "cancel": ("pending", "blocked", "processing"),
    "delete": ("pending", "blocked"),
    "reschedule": ("pending",),
}
_AT_ONCE = 100
_SAMPLE = 20
_MOST_REFUSED = 100
_WHY = {
    "not_failed": "it is no dead letter, or its history has aged out",
    "not_found": "it has ended, was deleted, or never was",
    "processing": "it runs: cancel it, or wait until it has ended",
    "blocked": "it waits for something else than its time",
    "busy": "somebody else is changing it",
}


async def act(pool: Pool, action: JobAction, by: Person) -> JobActionResult:
    matched, capped, looked = await _matched(pool, action)
    jobs = dict.fromkeys(action.ids or ()) | {job.id: job.finished_at for job in matched}
    sample = [line(job) for job in matched[:_SAMPLE]]
    acted: list[Acted] = []
    if not action.preview:
        acted = await _act(pool, action, jobs, by)
    return JobActionResult(
        preview=action.preview,
        matched=len(jobs),
        capped=capped,
        done=sum(one.done for one in acted),
        refused=[RefusedJob(id=one.id, why=_why(one.answer)) for one in acted if not one.done][:_MOST_REFUSED],
        sample=sample,
        looked=looked,
    )


async def _matched(pool: Pool, action: JobAction) -> tuple[list[FoundJob], bool, Looked]:
    """Return the jobs that a filter finds; of named ones there is nothing to find."""
    if action.filter is None:
        return [], False, Looked(jobs=len(action.ids or ()), back_to=None, complete=True)
    which = search_of(action.filter)
    statuses = _OF[action.action]
    if which.status is not None and which.status not in statuses:
        raise Refused(
            409, "wrong_status", f"{action.action} is for jobs that are {' or '.join(statuses)}, not {which.status}."
        )
    async with pool.look() as talk:
        return await _find(talk, action, which, statuses)


async def _find(
    talk: Talk, action: JobAction, which: Search, statuses: tuple[str, ...]
) -> tuple[list[FoundJob], bool, Looked]:
    # A dead letter that runs again already is not run a third time by a filter; who names it, may.
    which = Search(**{name: getattr(which, name) for name in Search.__dataclass_fields__} | {"replayed": False})
    found: list[FoundJob] = []
    jobs, back_to, complete = 0, None, True
    for status in statuses if which.status is None else (which.status,):
        one = await find(talk, narrowed(which, status), most=action.most - len(found) or 1)
        found += one.jobs
        jobs += one.looked.jobs
        back_to = min(filter(None, (back_to, one.looked.back_to)), default=None)
        complete = complete and one.looked.complete
    capped = len(found) > action.most or not complete
    return found[: action.most], capped, Looked(jobs=jobs, back_to=back_to, complete=complete)


async def _act(pool: Pool, action: JobAction, jobs: Mapping[int, datetime | None], by: Person) -> list[Acted]:
    """Each part has a transaction of its own, and its number is written down in it."""
    ids = list(jobs)
    acted: list[Acted] = []
    written: int | None = None
    detail = action.model_dump(mode="json", include={"filter", "at"}, exclude_none=True)
    if action.ids is not None:
        detail["ids"] = [str(id_) for id_ in action.ids[:_AT_ONCE]]
    for begin in range(0, len(ids), _AT_ONCE):
        async with pool.act() as talk:
            these = {id_: jobs[id_] for id_ in ids[begin : begin + _AT_ONCE]}
            part = await talk.ask(act_on_jobs(action.action, these, action.at))
            done = sum(one.done for one in part)
            if written is None:
                target = str(ids[0]) if len(ids) == 1 else None
                written = await talk.ask(
                    record_audit(by.name, by.role, f"jobs.{action.action}", target=target, jobs=done, detail=detail)
                )
            elif done:
                await talk.ask(add_to_audit(written, done))
        acted += part
    return acted


def _why(answer: str) -> str:
    if answer.startswith("duplicate of "):
        return f"another live job has its unique key: {answer.removeprefix('duplicate of ')}"
    return _WHY.get(answer, answer)
