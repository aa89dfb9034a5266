"""The service under the API, the terminal and the command line: all queries and actions, bounded in time and size."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self, TypeVar

from holdfast._engine.report.transition import Transitions
from holdfast._ops import actions, bulk_actions, fleet, jobs
from holdfast._ops.caller import RequestRefused, audit_entry
from holdfast._ops.fleet import runtime
from holdfast._ops.jobs import find, find_asked, search_of
from holdfast._ops.overview import depth, read_overview
from holdfast._ops.pool import Pool
from holdfast._ops.redaction import Redaction
from holdfast._ops.requests import JobAction, JobFilter
from holdfast._ops.responses.archive import RetentionLine
from holdfast._ops.responses.fleet import ParkedPage, RunPage, StatsConfig, StatsQueue, StatsRuntime
from holdfast._ops.responses.job import (
    AuditLine,
    AuditPage,
    BulkActions,
    ChainItem,
    ChainPage,
    DeadLetters,
    Done,
    JobPage,
)
from holdfast._store.access import list_audit
from holdfast._store.archive import read_retention, set_retention
from holdfast._store.bulk_action_line import list_bulk_actions
from holdfast._store.dead_letter import dismiss_group, group_dead_letters, read_last_error, restore_group
from holdfast._store.inspect import read_census, take_census
from holdfast._store.schedule import list_runs
from holdfast._store.search import (
    Looked,
    Search,
    follow_ids,
    last_of_chains,
    read_landmarks,
    resume_order_key,
)
from holdfast._store.subscription import list_parked
from holdfast._store.tally import sum_tallies
from holdfast._store.worker import list_workers, live_settings, pause_queue, resume_queue, set_queue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from holdfast._engine.report.transition import Listener
    from holdfast._ops.actions import SubscriptionChange
    from holdfast._ops.caller import Person
    from holdfast._ops.pool import Connections, Transaction
    from holdfast._ops.requests import (
        Before,
        BulkActionControl,
        ChainSearch,
        DeadLetterAction,
        DeadLetterSearch,
        JobSearch,
        LimitControl,
        OrderKeyAction,
        QueueAction,
        QueueControl,
        RetentionChange,
        RunnerAction,
        SubscriptionAction,
    )
    from holdfast._ops.responses.fleet import (
        Kinds,
        Limits,
        Overview,
        Problem,
        QueueLine,
        Queues,
        Runners,
        Subscriptions,
        Workers,
    )
    from holdfast._ops.responses.job import ChainGraph, JobActionResult, JobStory
    from holdfast._store.bulk_action_line import BulkAction
    from holdfast._store.inspect import AttemptLine
    from holdfast._store.search import ActionResult
    from holdfast._store.statement import Statement

T = TypeVar("T")

DEAD_LETTERS_LOOKED_AT = 20_000
_MOST_GROUPS = 200
_ENDED_WORKERS = 50
_DONE = {
    "run": "will run once, soon",
    "pause": "paused; what runs now goes on",
    "resume": "goes on with its next slot",
    "edit": "has new times from its next slot on",
    "remove": "removed",
}


class Service:
    """Opens a few connections on first use and closes them at the end of its `async with` block."""

    def __init__(
        self,
        database: str | Connections,
        *,
        connections: int = 4,
        timeout: timedelta = timedelta(seconds=2),
        redaction: Redaction | None = None,
        listeners: Sequence[Listener] = (),
    ) -> None:
        """`database` is an address, or connections that are open already and set their own timeout.

        `timeout` applies to each statement. At most `connections` are open at once. `listeners` are called for jobs
        that are replayed or cancelled here.
        """
        self._pool = Pool(database, connections=connections, timeout=timeout) if isinstance(database, str) else database
        self._redaction = redaction or Redaction()
        self._transitions = Transitions("", listeners)
        self._problems: Sequence[Problem] = ()
        """Those of the last overview: some thresholds differ for what was there before."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._pool.close()

    def sever(self) -> None:
        """End every statement under way at once, also if the server does not answer."""
        self._pool.sever()

    def reading(self) -> AbstractAsyncContextManager[Transaction]:
        """Open a read-only transaction on one snapshot."""
        return self._pool.reading()

    async def run(self, statement: Statement[T]) -> T:
        """Run one statement of the store."""
        async with self._pool.writing() as transaction:
            return await transaction.run(statement)

    async def read(self, statement: Statement[T]) -> T:
        """Run one statement that only reads, as a standby allows."""
        async with self._pool.reading() as transaction:
            return await transaction.run(statement)

    async def record(
        self, by: Person, action: str, *, target: str | None = None, jobs: int | None = None, **detail: Any
    ) -> None:
        """Record an action in the audit that was done elsewhere."""
        await self.run(audit_entry(by, action, target=target, jobs=jobs, detail=detail))

    async def count(self, *, small: bool) -> bool:
        """Count live jobs again unless that was done recently. With `small`, only if there are few."""
        return await self.run(take_census(every_ms=200 if small else 5_000, whole=small))

    # --- overview

    async def overview(self, minutes: int = 60) -> Overview:
        await self.count(small=True)
        async with self._pool.reading() as transaction:
            found = await read_overview(transaction, minutes, self._problems)
        self._problems = found.problems
        return found

    async def stats_queue(self) -> StatsQueue:
        """Return the queue's part of the statistics. Blocked jobs count as pending."""
        await self.count(small=True)
        async with self._pool.reading() as transaction:
            census = await transaction.run(read_census())
            kept = await transaction.run(sum_tallies())
        now = depth(census.lines, census.now)
        pending, sent, failed = now.pending + now.blocked, kept.get("completed", 0), kept.get("failed", 0)
        return StatsQueue(
            total=pending + now.processing + sent + failed,
            due_now=now.due,
            oldest_pending_age_seconds=now.oldest_due_seconds,
            stuck_processing=now.stuck,
            pending=pending,
            processing=now.processing,
            sent=sent,
            failed=failed,
        )

    async def fleet_runtime(self) -> StatsRuntime:
        """Return the sum over live workers. If there is none, over the last ended ones, including manual ticks."""
        async with self._pool.reading() as transaction:
            workers = await transaction.run(list_workers(latest=_ENDED_WORKERS))
        live = [worker for worker in workers if worker.state == "live"]
        counters = [worker.counters for worker in live or workers]
        return runtime(counters, is_running=bool(live), last_error=await self.last_error())

    async def stats_config(self, own: Mapping[str, int | None]) -> StatsConfig:
        """Return the settings of the live workers, None where they differ. If no worker is alive, return `own`."""
        async with self._pool.reading() as transaction:
            configured = await transaction.run(live_settings()) or own
        return StatsConfig.model_validate({name: configured.get(name) for name in StatsConfig.model_fields})

    async def last_error(self) -> str | None:
        """Return the error of the latest dead letter or of the latest failed outbox tick, whichever is newer."""
        async with self._pool.reading() as transaction:
            await transaction.run(follow_ids())
            letter = await transaction.run(read_last_error())
            runs = await transaction.run(list_runs("outbox", limit=20))
        errors = [] if letter is None else [(letter.at, letter.text)]
        errors += [(run.started_at, run.error) for run in runs if run.outcome == "failed"]
        return max(errors, key=lambda error: error[0])[1] if errors else None

    # --- jobs, chains, dead letters

    async def jobs(self, search: JobSearch) -> JobPage:
        async with self._pool.reading() as transaction:
            found = await find_asked(
                transaction, search_of(search), search.text, self._redaction, limit=search.limit, before=search.before
            )
        return JobPage(items=found.jobs, next=found.next, looked=found.looked)

    async def job(self, job_id: int) -> JobStory:
        async with self._pool.reading() as transaction:
            return await jobs.read_story(transaction, job_id, self._redaction)

    async def act_on_jobs(self, action: JobAction, by: Person) -> JobActionResult:
        return await actions.act(self._pool, action, by, self._redaction, self._transitions)

    async def act_on_named_jobs(self, action: JobAction, by: Person) -> list[ActionResult]:
        """Act on jobs by their ids, and return the result of each."""
        return await actions.act_on_named(self._pool, action, by, self._transitions)

    async def bulk_actions(self, limit: int) -> BulkActions:
        async with self._pool.reading() as transaction:
            found = await transaction.run(list_bulk_actions(limit=limit))
        return BulkActions(items=[bulk_actions.explained(line) for line in found])

    async def bulk_action(self, id_: int) -> BulkAction:
        return await bulk_actions.read(self._pool, id_)

    async def control_bulk_action(self, id_: int, control: BulkActionControl, by: Person) -> BulkAction:
        return await bulk_actions.control(self._pool, id_, control, by)

    async def carry_on(self, id_: int) -> BulkAction:
        """Carry on a bulk action for about a second, beside the workers, and return it."""
        return await bulk_actions.carry_on(self._pool, id_, self._transitions)

    async def resume_order_key(self, key: str, by: Person) -> bool:
        """Let an order key go on that a failed job has stopped. Return False if none has."""
        async with self._pool.writing() as transaction:
            resumed = await transaction.run(resume_order_key(key))
            if resumed:
                await transaction.run(audit_entry(by, "order_key.resume", target=key))
        return resumed

    async def act_on_order_key(self, action: OrderKeyAction, by: Person) -> Done:
        if not await self.resume_order_key(action.key, by):
            raise RequestRefused(404, "not_found", "No dead letter has stopped that order key.")
        return Done(message=f"{action.key}: goes on with its next job")

    async def chains(self, search: ChainSearch) -> ChainPage:
        """Return chains by their first job: those with several jobs, with blockers, or that block others."""
        async with self._pool.reading() as transaction:
            which = Search(kind=search.kind, first=True)
            found = await find(transaction, which, limit=search.limit, before=search.before)
            ends = await transaction.run(last_of_chains(job.id for job in found.jobs))
        chains = [
            ChainItem(
                id=job.id,
                kind=job.kind,
                last_id=ends[job.id].id,
                last_kind=ends[job.id].kind,
                status=ends[job.id].status,  # type: ignore[arg-type]
                created_at=job.created_at,
                finished_at=ends[job.id].finished_at,
            )
            for job in found.jobs
        ]
        wanted = [chain for chain in chains if search.status in (None, chain.status)]
        return ChainPage(items=wanted, next=found.next, looked=found.looked)

    async def chain(self, chain_id: int) -> ChainGraph:
        async with self._pool.reading() as transaction:
            return await jobs.read_graph(transaction, chain_id, self._redaction)

    async def dead_letters(self, search: DeadLetterSearch) -> DeadLetters:
        which = Search(**search.model_dump(exclude={"dismissed"}))
        async with self._pool.reading() as transaction:
            span = await transaction.run(read_landmarks(which.created_from, which.created_until))
            look = await transaction.run(
                group_dead_letters(
                    which, span, scan=DEAD_LETTERS_LOOKED_AT, limit=_MOST_GROUPS, dismissed=search.dismissed
                )
            )
        return DeadLetters(
            items=look.groups,
            looked=Looked(jobs=look.jobs, back_to=look.back_to, complete=look.jobs < DEAD_LETTERS_LOOKED_AT),
        )

    async def act_on_dead_letters(self, action: DeadLetterAction, by: Person) -> Done:
        """Dismiss a group of dead letters, or show it again."""
        group = (action.kind, action.queue, action.error_code)
        detail = {"queue": action.queue, "error_code": action.error_code}
        async with self._pool.writing() as transaction:
            if action.last_at is not None:
                await transaction.run(dismiss_group(*group, action.last_at, by=by.name))
            elif not await transaction.run(restore_group(*group)):
                raise RequestRefused(404, "not_found", "That group of dead letters is not dismissed.")
            await transaction.run(audit_entry(by, f"dead_letters.{action.action}", target=action.kind, detail=detail))
        until = "dismissed until a job of it fails again" if action.action == "dismiss" else "shown again"
        return Done(message=f"{action.kind}, {action.error_code or 'no code'}: {until}")

    # --- the fleet

    async def workers(self) -> Workers:
        await self.count(small=True)
        async with self._pool.reading() as transaction:
            return await fleet.read_workers(transaction)

    async def kinds(self) -> Kinds:
        await self.count(small=True)
        async with self._pool.reading() as transaction:
            return await fleet.read_kinds(transaction)

    async def queues(self) -> Queues:
        await self.count(small=True)
        async with self._pool.reading() as transaction:
            return await fleet.read_queue_lines(transaction)

    async def act_on_queue(self, name: str, action: QueueAction, by: Person) -> Done | JobActionResult:
        """Pause or resume a queue, or cancel its waiting jobs."""
        if action.action == "cancel_waiting":
            cancel = JobAction(
                action="cancel", filter=JobFilter(queue=name), preview=action.is_preview, limit=action.limit
            )
            return await actions.act(
                self._pool, cancel, by, self._redaction, self._transitions, statuses=("blocked", "pending")
            )
        pauses = action.action == "pause"
        message = f"{name}: {'workers claim nothing more from their next heartbeat on' if pauses else 'goes on'}"
        async with self._pool.writing() as transaction:
            await actions.check_queue(transaction, name)
            if action.is_preview:
                return Done(message=f"Would be done: {message}")
            change = pause_queue(name, by=by.name, reason=action.reason) if pauses else resume_queue(name)
            await transaction.run(change)
            detail = {"reason": action.reason} if action.reason else {}
            await transaction.run(audit_entry(by, f"queue.{action.action}", target=name, detail=detail))
        return Done(message=message)

    async def set_queue(self, name: str, control: QueueControl, by: Person, *, if_match: str | None = None) -> Done:
        async with self._pool.writing() as transaction:

            async def read() -> QueueLine | None:
                lines = (await fleet.read_queue_lines(transaction)).items
                return next((line for line in lines if line.name == name), None)

            given = control.model_dump()
            await actions.check_queue(transaction, name)
            await actions.check_unchanged(transaction, f"queue {name}", if_match, read)
            await transaction.run(set_queue(name, **given))
            await transaction.run(audit_entry(by, "queue.set", target=name, detail=given))
        return Done(message=f"{name}: workers follow with their next heartbeat")

    # --- limits

    async def limits(self) -> Limits:
        async with self._pool.reading() as transaction:
            return await fleet.read_limit_lines(transaction)

    async def set_limit(self, name: str, control: LimitControl, by: Person, *, if_match: str | None = None) -> Done:
        await actions.change_limit(self._pool, name, control, by, if_match)
        return Done(message=f"{name}: in force for the next claim; what runs goes on")

    async def reset_limit(self, name: str, by: Person, *, if_match: str | None = None) -> Done:
        await actions.change_limit(self._pool, name, None, by, if_match)
        return Done(message=f"{name}: as the code declares it")

    # --- runners

    async def runners(self) -> Runners:
        async with self._pool.reading() as transaction:
            return await fleet.read_runners(transaction, self._redaction)

    async def runs(self, runner: str | None, limit: int) -> RunPage:
        async with self._pool.reading() as transaction:
            return RunPage(items=await transaction.run(list_runs(runner, limit=limit)))

    async def act_on_runner(self, name: str, action: RunnerAction, by: Person, *, if_match: str | None = None) -> Done:
        await actions.change_schedule(self._pool, name, action, by, if_match)
        return Done(message=f"{name}: {_DONE[action.action]}")

    # --- subscriptions

    async def subscriptions(self) -> Subscriptions:
        async with self._pool.reading() as transaction:
            return await fleet.read_subscriptions(transaction)

    async def parked(self, name: str, page: Before) -> ParkedPage:
        """Return parked events, oldest first. `before` is the last event id of the previous page."""
        async with self._pool.reading() as transaction:
            subscription = await actions.find_named(transaction, name)
            found = await transaction.run(list_parked(subscription, after=page.before or 0, limit=page.limit))
        following = found[-1].event_id if len(found) == page.limit else None
        return ParkedPage(items=found, next=following)

    async def act_on_subscription(self, name: str, action: SubscriptionAction, by: Person) -> Done:
        given = action.model_dump(include={"since", "after", "key", "reason"}, exclude_none=True)
        number = await self.change_subscription(name, action.action, by, **given)
        messages = {
            "pause": "nothing is read from now on",
            "resume": "goes on",
            "replay": f"hands over again what came after event {number}",
            "skip": "everything published until now is passed",
            "release": f"{number} parked events are handed over again",
        }
        nothing = action.action == "replay" and number is None
        return Done(message=f"{name}: {'nothing was published since' if nothing else messages[action.action]}")

    async def change_subscription(self, name: str, action: SubscriptionChange, by: Person, **given: Any) -> int | None:
        """Change a subscription. See `actions.change_subscription` for the arguments and the number returned."""
        return await actions.change_subscription(self._pool, name, action, by, **given)

    # --- archive

    async def archived_job(self, row: dict[str, Any], attempts: list[AttemptLine]) -> JobStory:
        """Return a job that was read from the archive, with what the database still has of it."""
        async with self._pool.reading() as transaction:
            return await jobs.read_archived(transaction, row, attempts, self._redaction)

    async def set_retention(self, change: RetentionChange, by: Person, *, if_match: str | None = None) -> Done:
        async with self._pool.writing() as transaction:

            async def read() -> RetentionLine | None:
                lines = await transaction.run(read_retention())
                found = (line for line in lines if line.family == change.family)
                return next((RetentionLine(**line._asdict(), changeable=True) for line in found), None)

            await actions.check_unchanged(transaction, f"retention of {change.family}", if_match, read)
            kept = {line.family: line.days for line in await transaction.run(read_retention())}
            await transaction.run(set_retention(change.family, change.days))
            detail = {"days": change.days, "before": kept.get(change.family)}
            await transaction.run(audit_entry(by, "archive.retention", target=change.family, detail=detail))
        return Done(message=f"{change.family}: ended rows are kept for {change.days} days")

    # --- audit

    async def audit(self, page: Before) -> AuditPage:
        async with self._pool.reading() as transaction:
            found = await transaction.run(list_audit(before=page.before, limit=page.limit))
        following = found[-1].id if len(found) == page.limit else None
        return AuditPage(items=[AuditLine.model_validate(entry._asdict()) for entry in found], next=following)
