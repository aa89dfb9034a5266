"""The newest jobs, or those that a filter asks the database for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, get_args

from holdfast.ops.answer import JobActionResult, Status
from holdfast.ops.question import MOST_JOBS, JobAction, JobSearch
from holdfast.ops.refusal import Refused
from holdfast.top.cell import Cell, ago, ahead, compact, plain, since, word
from holdfast.top.sheet import Action, Column, Found, Page, Plan, Sheet, figures

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from datetime import datetime
    from typing import Literal

    from holdfast.ops.answer import JobLine, JobStory, Looked
    from holdfast.ops.desk import Desk
    from holdfast.ops.person import Person
    from holdfast.top.cell import Tone
    from holdfast.top.sheet import Look

_TONES: dict[str, Tone] = {
    "processing": "warn",
    "completed": "good",
    "failed": "bad",
    "cancelled": "dim",
    "blocked": "dim",
}
# What a filter may say of jobs to the database, by the name of the field there.
_ASKED = {
    "status": "status",
    "kind": "kind",
    "queue": "queue",
    "error": "error_code",
    "order_key": "order_key",
    "unique_key": "unique_key",
    "text": "text",
}
_CAN_BE = {"retry": ("failed",), "cancel": ("pending", "blocked", "processing")}
_LONGEST_TEXT = 20_000


async def _read(look: Look) -> Found[JobLine]:
    asked = {_ASKED[name]: value for name, value in look.words.fields.items() if name in _ASKED}
    if (status := asked.get("status")) is not None and status not in get_args(Status):
        raise Refused(422, "unknown_status", f"no status is {plain(status)}: there are {', '.join(get_args(Status))}")
    answer = await look.desk.jobs(JobSearch.model_validate({**asked, "most": MOST_JOBS}))
    more = "the newest; there are more" if answer.next is not None else ""
    return Found(answer.jobs, ", ".join(filter(None, (more, looked(answer.looked, look.now) if asked else ""))))


def looked(far: Looked, now: datetime) -> str:
    """Say how far a search looked, unless it looked at everything."""
    if far.complete or far.back_to is None:
        return ""
    return f"looked at {compact(far.jobs)} jobs, back to {since(far.back_to, now)} ago"


def _when(job: JobLine, now: datetime) -> Cell:
    """Say when it ended, or when it is due."""
    if job.finished_at is not None:
        return Cell(f"{since(job.finished_at, now)} ago", job.finished_at.timestamp())
    due = ahead(job.available_at, now)
    return due if due.text == "now" else due._replace(text=f"in {due.text}")


async def _open(look: Look, job: JobLine) -> Page:
    story = await look.desk.job(job.id)
    return Page(f"Job {story.id}: {plain(story.kind)}", [*_story(story, look.now)])


def _story(job: JobStory, now: datetime) -> Iterator[str]:
    yield f"status    {job.status}, attempt {job.attempt} of {job.max_attempts}"
    yield f"queue     {plain(job.queue)}, priority {job.priority}"
    yield f"created   {_time(job.created_at, now)}"
    if job.finished_at is not None:
        yield f"ended     {_time(job.finished_at, now)}"
    else:
        yield f"due       {job.available_at:%Y-%m-%d %H:%M:%S}Z"
    facts = {
        "worker": job.worker_name and f"{plain(job.worker_name)} ({job.worker})",
        "chain": None if job.chain_id == job.id else job.chain_id,
        "next": job.next_id,
        "order key": job.order_key,
        "unique": job.unique_key,
        "replays": job.replay_of,
        "replayed": ", ".join(map(str, job.replays)),
        "waits for": ", ".join(str(blocker.chain_id) for blocker in job.blockers),
        "progress": job.progress is not None and f"{job.progress:.0%} {job.progress_note or ''}",
        "trace": job.trace,
        "cancel": job.cancel_requested_at and f"asked for {_time(job.cancel_requested_at, now)}",
        "error": job.error_code and f"{job.error_code}: {job.error or ''}",
    }
    yield from (f"{name:<9} {plain(str(value), 2_000)}" for name, value in facts.items() if value)
    if job.attempts:
        yield ""
        yield "attempts"
        for attempt in job.attempts:
            why = f"{attempt.error_code or ''} {attempt.error or ''}".strip()
            yield f"  {attempt.attempt:>3} {attempt.outcome:<10} {_time(attempt.ended_at, now)}  {plain(why, 500)}"
    for name, value in (("payload", job.payload), ("headers", job.headers), ("result", job.result)):
        if value is not None:
            yield ""
            yield f"{name} (parts are redacted)" if name in job.redacted_parts else name
            text = json.dumps(value, indent=2, ensure_ascii=False)[:_LONGEST_TEXT]
            yield from (f"  {plain(line, 2_000)}" for line in text.splitlines())


def _time(then: datetime, now: datetime) -> str:
    return f"{then:%Y-%m-%d %H:%M:%S}Z, {since(then, now)} ago"


def _one(action: Literal["retry", "cancel"]) -> Callable[[Desk, Person, JobLine], Awaitable[Plan]]:
    async def plan(desk: Desk, by: Person, job: JobLine) -> Plan:
        if job.status not in _CAN_BE[action]:
            can = " or ".join(_CAN_BE[action])
            raise Refused(409, "wrong_status", f"{action} is for jobs that are {can}: {job.id} is {job.status}")
        asked = JobAction.model_validate({"action": action, "ids": [str(job.id)]})
        return await planned(desk, by, asked, f"{job.id}, {plain(job.kind)}")

    return plan


async def planned(desk: Desk, by: Person, action: JobAction, which: str) -> Plan:
    """Preview an action on jobs; refused when it would do nothing."""
    preview = await desk.act_on_jobs(action, by)
    if not preview.matched:
        why = preview.refused[0].why if preview.refused else "there is none any more"
        raise Refused(409, "nothing_to_do", f"{action.action} {which}: {why}")
    many = f"job {which}" if action.ids else f"{preview.matched:,} {_noun(preview.matched)} {which}"
    more = " There may be more: repeat it for the next." if preview.capped else ""

    async def act() -> str:
        return _told(action, await desk.act_on_jobs(action.model_copy(update={"preview": False}), by))

    return Plan(f"{action.action.capitalize()} {many}?", f"{_MEANS[action.action]}{more}", act)


_MEANS = {
    "retry": "Each runs again as a new job that names the dead letter.",
    "cancel": "It is cancelled at once where it waits; where it runs, its worker is asked to stop.",
}
_DONE = {"retry": "retried", "cancel": "cancelled, or asked to stop"}


def _noun(jobs: int) -> str:
    return "dead letter" if jobs == 1 else "dead letters"


def _told(action: JobAction, result: JobActionResult) -> str:
    said = f"{result.done:,} {'job' if result.done == 1 else 'jobs'} {_DONE[action.action]}"
    refused = f"; {len(result.refused)} refused: {result.refused[0].why}" if result.refused else ""
    return f"{said}{refused}"


JOBS: Sheet[JobLine] = Sheet(
    name="jobs",
    title="Jobs",
    one="job",
    read=_read,
    row_id=lambda job: str(job.id),
    columns=(
        figures("id", lambda job, _: Cell(str(job.id), job.id)),
        Column("status", lambda job, _: word(job.status, _TONES.get(job.status, "plain"))),
        Column("kind", lambda job, _: word(job.kind)),
        Column("queue", lambda job, _: word(job.queue)),
        figures("try", lambda job, _: Cell(f"{job.attempt}/{job.max_attempts}", job.attempt)),
        figures("created", lambda job, now: ago(job.created_at, now)),
        figures("due or ended", _when),
        Column("error", lambda job, _: word(job.error_code, "bad")),
        figures("worker", lambda job, _: Cell("-" if job.worker is None else str(job.worker), job.worker)),
        Column("order_key", lambda job, _: word(job.order_key)),
        Column("unique_key", lambda job, _: word(job.unique_key)),
    ),
    sorted_by="id",
    empty="No jobs.",
    open=_open,
    actions=(Action("retry", _one("retry")), Action("cancel", _one("cancel"))),
    asks=frozenset(_ASKED),
)
