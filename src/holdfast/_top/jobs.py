"""Dead letters, and the newest jobs or those that a filter selects in the database."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, get_args

from holdfast._model.retry import tries
from holdfast._ops.caller import RequestRefused
from holdfast._ops.requests import DeadLetterSearch, JobAction, JobFilter, JobSearch
from holdfast._ops.wording import compact, counted, plain, since, span, stamp
from holdfast._store.job import JobStatus
from holdfast._store.search import MOST_LISTED
from holdfast._top.cell import Cell, ago, ahead, number, state, word
from holdfast._top.sheet import Action, Column, Jump, Plan, Sheet, SheetRows, TextPage, Words, figures

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from datetime import datetime
    from typing import Literal

    from holdfast._ops.caller import Person
    from holdfast._ops.responses.job import JobActionResult, JobStory
    from holdfast._ops.service import Service
    from holdfast._store.dead_letter import DeadLetterGroup
    from holdfast._store.search import JobLine, Looked
    from holdfast._top.sheet import Query


# Filter fields that the database applies, with their names in the query.
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


async def _read_jobs(look: Query) -> SheetRows[JobLine]:
    asked = {_ASKED[name]: value for name, value in look.words.fields.items() if name in _ASKED}
    if (status := asked.get("status")) is not None and status not in get_args(JobStatus):
        raise RequestRefused(
            422, "unknown_status", f"no status is {plain(status)}: there are {', '.join(get_args(JobStatus))}"
        )
    answer = await look.service.jobs(JobSearch.model_validate({**asked, "limit": MOST_LISTED}))
    more = "the newest; there are more" if answer.next is not None else ""
    return SheetRows(answer.items, ", ".join(filter(None, (more, looked(answer.looked, look.now) if asked else ""))))


def looked(far: Looked, now: datetime) -> str:
    """Return how far a search reached, or an empty text if it was complete."""
    if far.complete or far.back_to is None:
        return ""
    return f"searched {compact(far.jobs)} jobs, back to {since(far.back_to, now)} ago"


def _when(job: JobLine, now: datetime) -> Cell:
    """Return when the job ended or is due."""
    if job.finished_at is not None:
        return Cell(f"{since(job.finished_at, now)} ago", job.finished_at.timestamp())
    due = ahead(job.available_at, now)
    return due if due.text == "now" else due._replace(text=f"in {due.text}")


async def _open_jobs(look: Query, job: JobLine) -> TextPage:
    story = await look.service.job(job.id)
    return TextPage(f"Job {story.id}: {plain(story.kind)}", [*_story(story, look.now)])


def _story(job: JobStory, now: datetime) -> Iterator[str]:
    limit = ", no limit" if job.max_attempts is None else f" of {job.max_attempts}"
    yield f"status    {job.status}, attempt {job.attempt}{limit}"
    yield f"queue     {plain(job.queue)}, priority {job.priority}"
    yield f"created   {_time(job.created_at, now)}"
    if job.finished_at is not None:
        yield f"ended     {_time(job.finished_at, now)}"
    else:
        yield f"due       {stamp(job.available_at)}"
    ran = job.ran_ms is not None and f", ran {span(job.ran_ms / 1000)}"
    if job.running_since is not None:
        limit = f" of at most {span(job.max_runtime_ms / 1000)}" if job.max_runtime_ms else ""
        yield f"running   for {since(job.running_since, now)}{limit}, since {stamp(job.running_since)}"
    if job.waited_ms is not None:
        yield f"waited    {span(job.waited_ms / 1000)}{ran or ''}, first due {stamp(job.first_due_at)}"
    for wait in job.waits:
        yield f"waits     {wait.text}{f' {wait.command}' if wait.command else ''}"
    facts = {
        "worker": job.worker_name and f"{plain(job.worker_name)} ({job.worker})",
        "version": job.app_version,
        "chain": None if job.chain_id == job.id else job.chain_id,
        "next": job.next_id,
        "order key": job.order_key,
        "unique": job.unique_key,
        "replays": job.replay_of,
        "retried as": ", ".join(map(str, job.replays)),
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
    return f"{stamp(then)}, {since(then, now)} ago"


def _one(action: Literal["retry", "cancel"]) -> Callable[[Service, Person, JobLine], Awaitable[Plan]]:
    async def plan(service: Service, by: Person, job: JobLine) -> Plan:
        if job.status not in _CAN_BE[action]:
            can = " or ".join(_CAN_BE[action])
            raise RequestRefused(409, "wrong_status", f"{action} is for jobs that are {can}: {job.id} is {job.status}")
        asked = JobAction.model_validate({"action": action, "ids": [str(job.id)]})
        return await planned(service, by, asked, f"{job.id}, {plain(job.kind)}")

    return plan


async def planned(service: Service, by: Person, action: JobAction, which: str) -> Plan:
    """Preview an action on jobs. Raise RequestRefused if it would do nothing."""
    preview = await service.act_on_jobs(action, by)
    if not preview.matched:
        why = preview.refused[0].why if preview.refused else "there is none any more"
        raise RequestRefused(409, "nothing_to_do", f"{action.action} {which}: {why}")
    many = f"job {which}" if action.ids else f"{counted(preview.matched, 'dead letter')} {which}"
    more = " There are more than were counted." if preview.capped else ""

    async def act() -> str:
        return _outcome_of(action, await service.act_on_jobs(action.model_copy(update={"preview": False}), by))

    return Plan(f"{action.action.capitalize()} {many}?", f"{_MEANS[action.action]}{more}", act)


_MEANS = {
    "retry": "Each runs again as a new job that names the dead letter.",
    "cancel": "It is cancelled at once where it waits; where it runs, its worker is asked to stop.",
}
_DONE = {"retry": "retried", "cancel": "cancelled, or asked to stop"}


def _outcome_of(action: JobAction, result: JobActionResult) -> str:
    done = f"{counted(result.done, 'job')} {_DONE[action.action]}"
    number = len(result.refused) if result.bulk is None else result.bulk.refused
    refused = f"; {number} refused: {result.refused[0].why}" if result.refused else ""
    rest = "; the workers carry on with the rest" if result.bulk is not None and result.bulk.ended_at is None else ""
    return f"{done}{refused}{rest}"


JOBS: Sheet[JobLine] = Sheet(
    name="jobs",
    title="Jobs",
    one="job",
    read=_read_jobs,
    row_id=lambda job: str(job.id),
    columns=(
        figures("id", lambda job, _: Cell(str(job.id), job.id)),
        Column("status", lambda job, _: state(job.status)),
        Column("kind", lambda job, _: word(job.kind)),
        Column("queue", lambda job, _: word(job.queue)),
        figures("try", lambda job, _: Cell(tries(job.attempt, job.max_attempts), job.attempt)),
        figures("created", lambda job, now: ago(job.created_at, now)),
        figures("due or ended", _when),
        Column("error", lambda job, _: word(job.error_code, "bad")),
        figures("worker", lambda job, _: Cell("-" if job.worker is None else str(job.worker), job.worker)),
        Column("order_key", lambda job, _: word(job.order_key)),
        Column("unique_key", lambda job, _: word(job.unique_key)),
    ),
    sorted_by="id",
    empty="No jobs.",
    open=_open_jobs,
    actions=(Action("retry", _one("retry")), Action("cancel", _one("cancel"))),
    asks=frozenset(_ASKED),
)


async def _read_dead_letters(look: Query) -> SheetRows[DeadLetterGroup]:
    answer = await look.service.dead_letters(DeadLetterSearch())
    return SheetRows(answer.items, looked(answer.looked, look.now))


async def _open_dead_letters(_: Query, group: DeadLetterGroup) -> Jump:
    named = {"status": "failed", "kind": group.kind, "queue": group.queue, "error": group.error_code}
    return Jump("jobs", Words(fields=named))


async def _retry_group(service: Service, by: Person, group: DeadLetterGroup) -> Plan:
    which = JobFilter(status="failed", kind=group.kind, queue=group.queue, error_code=group.error_code)
    action = JobAction(action="retry", filter=which)
    return await planned(service, by, action, f"of {group.kind} that failed with {group.error_code}")


DEAD_LETTERS: Sheet[DeadLetterGroup] = Sheet(
    name="dead-letters",
    title="Dead letters",
    one="group",
    read=_read_dead_letters,
    row_id=lambda group: f"{group.queue} {group.kind} {group.error_code}",
    columns=(
        Column("kind", lambda group, _: word(group.kind)),
        Column("error", lambda group, _: word(group.error_code, "bad")),
        figures("jobs", lambda group, _: number(group.jobs)),
        figures("last", lambda group, now: ago(group.last_at, now)),
        figures("first", lambda group, now: ago(group.first_at, now)),
        Column("queue", lambda group, _: word(group.queue)),
        Column("message", lambda group, _: word(group.error)),
    ),
    sorted_by="jobs",
    empty="No dead letters.",
    open=_open_dead_letters,
    actions=(Action("retry", _retry_group),),
)
