"""Actions, all audited: on named jobs, 100 per transaction, on schedules, limits and subscriptions."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from holdfast._model.limit import parsed_rate
from holdfast._model.schedule import parse
from holdfast._ops import bulk_actions
from holdfast._ops.bulk_actions import why
from holdfast._ops.caller import RequestRefused, audit_entry
from holdfast._ops.fleet import read_limit_lines, read_runners
from holdfast._ops.jobs import count, find_asked, search_of
from holdfast._ops.redaction import Redaction
from holdfast._ops.responses.job import JobActionResult
from holdfast._store.bulk_action_line import RefusedJob
from holdfast._store.limit import mend_limits, reset_limit, set_limit
from holdfast._store.schedule import (
    edit_schedule,
    is_schedule_declared,
    pause_schedule,
    remove_schedule,
    resume_schedule,
    take_singleton,
    trigger_schedule,
)
from holdfast._store.search import (
    MOST_ACTED_ON,
    ActionResult,
    JobLine,
    Looked,
    act_on_jobs,
    find_named_jobs,
    find_replays,
    read_clock,
)
from holdfast._store.subscription import (
    clear_subscription,
    delete_subscription,
    find_subscription,
    pause_subscription,
    rebase_subscription,
    release_parked,
    repartition_subscription,
    replay_subscription,
    skip_subscription,
)
from holdfast._store.worker import is_queue_known

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from datetime import datetime

    from holdfast._engine.report.transition import Transitions
    from holdfast._ops.caller import Person
    from holdfast._ops.pool import Connections, Transaction
    from holdfast._ops.requests import JobAction, JobFilter, LimitControl, RunnerAction
    from holdfast._ops.responses.fleet import LimitLine, RunnerLine
    from holdfast._ops.responses.job import Edited
    from holdfast._store.statement import Statement

# The statuses that each action applies to.
_OF = {
    "retry": ("failed",),
    "cancel": ("pending", "blocked", "processing"),
    "delete": ("pending", "blocked"),
    "reschedule": ("pending",),
}
_AT_ONCE = 100
_SAMPLE = 20
_MOST_REFUSED = 100

ScheduleChange: TypeAlias = Literal["run", "pause", "resume", "edit", "remove"]
SubscriptionChange: TypeAlias = Literal[
    "pause", "resume", "replay", "skip", "release", "rebase", "repartition", "delete"
]
_SCHEDULE: Mapping[ScheduleChange, Callable[..., Statement[bool]]] = {
    "run": trigger_schedule,
    "pause": pause_schedule,
    "resume": resume_schedule,
    "edit": edit_schedule,
    "remove": remove_schedule,
}
_SUBSCRIPTION: Mapping[SubscriptionChange, Callable[..., Statement[Any]]] = {
    "pause": partial(pause_subscription, paused=True),
    "resume": partial(pause_subscription, paused=False),
    "replay": replay_subscription,
    "skip": skip_subscription,
    "release": release_parked,
    "rebase": rebase_subscription,
    "repartition": repartition_subscription,
    "delete": delete_subscription,
}
# Rows per transaction, and the most transactions, of deleting a subscription.
_PIECE, _PIECES = 10_000, 1_000


async def act_on_named(
    pool: Connections, action: JobAction, by: Person, transitions: Transitions
) -> list[ActionResult]:
    """Act on jobs by their ids, in this order. `why` explains an answer that is not done."""
    ids = dict.fromkeys(action.ids or ())
    done = {one.id: one for one in await _act(pool, action, ids, by, transitions)}
    return [done[id_] for id_ in ids]


async def act(  # noqa: PLR0913 - the dependencies of an action
    pool: Connections,
    action: JobAction,
    by: Person,
    redaction: Redaction,
    transitions: Transitions,
    *,
    statuses: tuple[str, ...] = (),
) -> JobActionResult:
    """Act on the matching jobs, or only preview that.

    `statuses`: act on these, the first ones first. Default: all that the action applies to.
    """
    statuses = statuses or _OF[action.action]
    if action.filter is not None and action.filter.text is None:
        return await _act_in_bulk(pool, action, action.filter, by, transitions, statuses)
    matched = await _matched(pool, action, statuses, redaction)
    jobs = dict.fromkeys(action.ids or ()) | {job.id: job.finished_at for job in matched.jobs}
    acted = matched.refused
    if not action.preview:
        acted = await _act(pool, action, jobs, by, transitions)
    refused = [one for one in acted if not one.done][:_MOST_REFUSED]
    return JobActionResult(
        preview=action.preview,
        matched=len(matched.jobs) if action.preview else len(jobs),
        capped=matched.capped,
        done=sum(one.done for one in acted),
        bulk=None,
        refused=[RefusedJob(id=one.id, why=why(one.answer)) for one in refused],
        sample=matched.jobs[:_SAMPLE],
        looked=matched.looked,
        at=matched.at,
    )


async def _act_in_bulk(  # noqa: PLR0913, PLR0917 - as above
    pool: Connections,
    action: JobAction,
    asked: JobFilter,
    by: Person,
    transitions: Transitions,
    statuses: tuple[str, ...],
) -> JobActionResult:
    _check_status(action, asked, statuses)
    # A dead letter whose replay already exists is only retried by its id.
    which = replace(search_of(asked), replayed=False)
    matched, seen, sample = 0, 0, list[JobLine]()
    back_to, complete = None, True
    async with pool.reading() as transaction:
        at = await transaction.run(read_clock())
        for status in statuses if which.status is None else (which.status,):
            one = await count(transaction, replace(which, status=status), sample=_SAMPLE - len(sample))
            matched, seen, sample = matched + one.jobs, seen + one.looked.jobs, sample + one.sample
            back_to = min(filter(None, (back_to, one.looked.back_to)), default=None)
            complete = complete and one.looked.complete
    bulk = None
    if not action.preview and (matched or not complete):
        expected = min(matched, action.limit or matched) if complete else None
        id_ = await bulk_actions.begin(pool, action, asked, statuses, by, expected=expected)
        bulk = await bulk_actions.carry_on(pool, id_, transitions)
    return JobActionResult(
        preview=action.preview,
        matched=min(matched, action.limit or matched),
        capped=not complete or matched > (action.limit or matched),
        done=0 if bulk is None else bulk.done,
        bulk=bulk,
        refused=[] if bulk is None else bulk.refusals,
        sample=sample[: action.limit],
        looked=Looked(jobs=seen, back_to=back_to, complete=complete),
        at=at,
    )


class _Matched(NamedTuple):
    """The jobs an action applies to, and the named jobs it does not apply to."""

    jobs: list[JobLine]
    refused: list[ActionResult]
    looked: Looked
    at: datetime
    capped: bool


async def _matched(pool: Connections, action: JobAction, statuses: tuple[str, ...], redaction: Redaction) -> _Matched:
    async with pool.reading() as transaction:
        at = await transaction.run(read_clock())
        if action.filter is None:
            jobs, refused = await _named(transaction, action, statuses)
            looked = Looked(jobs=len(action.ids or ()), back_to=None, complete=True)
            return _Matched(jobs, refused, looked, at, capped=False)
        _check_status(action, action.filter, statuses)
        found, capped, looked = await _find_text(transaction, action, action.filter, statuses, redaction)
        return _Matched(found, [], looked, at, capped=capped)


def _check_status(action: JobAction, asked: JobFilter, statuses: tuple[str, ...]) -> None:
    if asked.status is not None and asked.status not in statuses:
        message = f"{action.action} is for jobs that are {' or '.join(statuses)}, not {asked.status}."
        raise RequestRefused(409, "wrong_status", message)


async def _named(
    transaction: Transaction, action: JobAction, statuses: tuple[str, ...]
) -> tuple[list[JobLine], list[ActionResult]]:
    """Return the named jobs the action applies to, in their current state, and a reason for each of the others."""
    ids = list(dict.fromkeys(action.ids or ()))
    found = await transaction.run(find_named_jobs(ids)) if action.preview else {}
    fitting = {id_: job for id_, job in found.items() if job.status in statuses}
    left = [id_ for id_ in ids if id_ not in fitting] if action.preview else []
    return list(fitting.values()), [
        ActionResult(id_, done=False, answer=_unfit(action, found.get(id_))) for id_ in left
    ]


def _unfit(action: JobAction, job: JobLine | None) -> str:
    if action.action == "retry":
        return "not_failed"
    return job.status if job is not None and job.status in ("processing", "blocked") else "not_found"


async def _find_text(
    transaction: Transaction, action: JobAction, asked: JobFilter, statuses: tuple[str, ...], redaction: Redaction
) -> tuple[list[JobLine], bool, Looked]:
    """Return the jobs with a text in their payload: only this process knows what is hidden from a search."""
    # A dead letter whose replay already exists is only retried by its id.
    which = replace(search_of(asked), replayed=False)
    most = min(action.limit or MOST_ACTED_ON, MOST_ACTED_ON)
    found: list[JobLine] = []
    jobs, back_to, complete = 0, None, True
    for status in statuses if which.status is None else (which.status,):
        limit = max(1, most - len(found))
        one = await find_asked(transaction, replace(which, status=status), asked.text, redaction, limit=limit)
        found += one.jobs
        jobs += one.looked.jobs
        back_to = min(filter(None, (back_to, one.looked.back_to)), default=None)
        complete = complete and one.looked.complete
    capped = len(found) > most or not complete
    return found[:most], capped, Looked(jobs=jobs, back_to=back_to, complete=complete)


async def _act(
    pool: Connections, action: JobAction, jobs: Mapping[int, datetime | None], by: Person, transitions: Transitions
) -> list[ActionResult]:
    """Act in parts, each with its own transaction and an audit entry with its ids in that transaction.

    If one part is refused, the parts before it stay done and the rest is not tried.
    """
    ids = list(jobs)
    acted: list[ActionResult] = []
    detail = action.model_dump(mode="json", include={"filter", "at"}, exclude_none=True)
    for begin in range(0, len(ids), _AT_ONCE):
        try:
            async with pool.writing() as transaction:
                these = {id_: jobs[id_] for id_ in ids[begin : begin + _AT_ONCE]}
                part = await transaction.run(act_on_jobs(action.action, these, action.at, again=action.again))
                done = [one.id for one in part if one.done]
                if done or not begin:
                    only = done if len(done) == 1 else ids
                    target = str(only[0]) if len(only) == 1 else None
                    line_ = audit_entry(
                        by, f"jobs.{action.action}", target=target, jobs=len(done), ids=done, detail=detail
                    )
                    await transaction.run(line_)
                made = {int(one.answer): one.id for one in part if one.done and action.action == "retry"}
                replays = await transaction.run(find_replays(made)) if made and transitions else []
        except RequestRefused as refused:
            if not acted:
                raise
            return acted + [ActionResult(id_, done=False, answer=refused.message) for id_ in ids[begin:]]
        acted += part
        transitions.enqueued(replays, "replay")
        for one in part:
            if one.answer == "cancelled":
                transitions.tell("job_cancelled", one.id)
    return acted


async def check_queue(transaction: Transaction, name: str) -> None:
    """Refuse a queue that no worker, job or control row names: it is misspelled."""
    if not await transaction.run(is_queue_known(name)):
        message = f"No queue is named {name}: a queue is there once a worker serves it or a job is enqueued into it."
        raise RequestRefused(404, "not_found", message)


async def change_schedule(
    pool: Connections, name: str, asked: RunnerAction, by: Person, if_match: str | None = None
) -> None:
    more: dict[str, Any] = {"by": by.name, "reason": asked.reason} if asked.action == "pause" else {}
    if asked.schedule is not None:
        more["every"] = parse(asked.schedule)
    async with pool.writing() as transaction:

        async def read() -> RunnerLine | None:
            lines = (await read_runners(transaction, Redaction())).items
            return next((line for line in lines if line.name == name), None)

        await check_unchanged(transaction, f"schedule {name}", if_match, read)
        if asked.action == "remove" and await transaction.run(is_schedule_declared(name)):
            message = f"{name} is declared in code, and would be stored again: pause it, or remove it from the code."
            raise RequestRefused(409, "declared", message)
        if not await transaction.run(_SCHEDULE[asked.action](name, **more)):
            raise RequestRefused(404, "not_found", f"No schedule is named {name}.")
        detail = asked.model_dump(exclude={"action"}, exclude_none=True)
        await transaction.run(audit_entry(by, f"runner.{asked.action}", target=name, detail=detail))


async def check_unchanged(
    transaction: Transaction, thing: str, if_match: str | None, read: Callable[[], Awaitable[Edited | None]]
) -> None:
    """Refuse a change of a line that is no more as the caller saw it. Until this transaction ends, others wait."""
    if if_match in {None, "*"}:
        return
    if not await transaction.run(take_singleton(f"holdfast edit {thing}")):
        raise RequestRefused(409, "in_progress", f"Somebody else is changing the {thing}: try again.")
    line = await read()
    if line is None or line.etag != if_match:
        raise RequestRefused(412, "changed", f"Somebody has changed the {thing} meanwhile: look at it again.")


async def change_limit(
    pool: Connections, name: str, control: LimitControl | None, by: Person, if_match: str | None = None
) -> None:
    """Set what a limit allows, None: what the code declares; then let go on what has room by now."""
    async with pool.writing() as transaction:

        async def read() -> LimitLine | None:
            lines = (await read_limit_lines(transaction)).items
            return next((line for line in lines if line.name == name), None)

        await check_unchanged(transaction, f"limit {name}", if_match, read)
        if control is None:
            found = await transaction.run(reset_limit(name))
        else:
            starts, period_ms = (None, None) if control.rate is None else parsed_rate(control.rate)
            rule = {"concurrency": control.concurrency, "starts": starts, "period_ms": period_ms}
            found = await transaction.run(set_limit(name, **rule, burst=control.burst, who=by.name))
        if not found:
            which = "No limit is" if control else "No limit that code declares is"
            raise RequestRefused(404, "not_found", f"{which} named {name}.")
        detail = {} if control is None else control.model_dump()
        await transaction.run(
            audit_entry(by, "limit.reset" if control is None else "limit.set", target=name, detail=detail)
        )
    until = None
    while True:
        async with pool.writing() as transaction:
            until, _ = await transaction.run(mend_limits(since=until, name=name, limit=_AT_ONCE))
        if until is None:
            return


async def change_subscription(
    pool: Connections, name: str, action: SubscriptionChange, by: Person, **given: Any
) -> int | None:
    """Change a subscription.

    `given`: of `pause`, the `reason`; of `replay`, `since` a time or `after` an event; of `release`, the `key` and at
    `limit` how many events; of `repartition`, the number of `partitions`. Returns the event after which a `replay`
    begins, None if there is none; how many events a `release` freed; the first event that is delivered after a
    `rebase`.
    """
    if action == "delete":
        await _clear(pool, name)
    pause = {"by": by.name} if action == "pause" else {}
    async with pool.writing() as transaction:
        result = await transaction.run(_SUBSCRIPTION[action](await find_named(transaction, name), **given, **pause))
        if action == "repartition" and not result:
            makes_jobs = f"{name} makes jobs, and those are shared already: only a relay is cut"
            raise RequestRefused(409, "makes_jobs", makes_jobs)
        detail = {key: value for key, value in given.items() if key != "limit" and value is not None}
        await transaction.run(audit_entry(by, f"subscription.{action}", target=name, detail=detail))
    return result if action in ("replay", "release", "rebase") else None


async def find_named(transaction: Transaction, name: str) -> int:
    """Return the id of a subscription."""
    found = await transaction.run(find_subscription(name))
    if found is None:
        raise RequestRefused(404, "not_found", f"No subscription is named {name}.")
    return found


async def _clear(pool: Connections, name: str) -> None:
    """Delete the rows of a subscription, each piece in its own transaction."""
    for _ in range(_PIECES):
        async with pool.writing() as transaction:
            piece = clear_subscription(await find_named(transaction, name), limit=_PIECE)
            if await transaction.run(piece) < _PIECE:
                return
