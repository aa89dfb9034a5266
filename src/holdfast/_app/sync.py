"""The same verbs for code without an event loop, as `app.sync`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar, overload

from holdfast._app.arguments import check_no_event_loop
from holdfast._app.client import VERB_HINTS, WAIT
from holdfast._app.roles import names_roles
from holdfast._drivers import run_sync
from holdfast._drivers.autocommit import run_joined_sync
from holdfast._drivers.steps import run_steps_sync
from holdfast._engine.wake.chains import wait_for_end
from holdfast._model.call import explained_methods
from holdfast._store.chain import list_chains
from holdfast._store.schedule import (
    edit_schedule,
    list_running,
    list_schedules,
    pause_schedule,
    remove_schedule,
    resume_schedule,
    trigger_schedule,
)
from holdfast._store.search import Search, resume_order_key
from holdfast._store.worker import pause_queue, resume_queue

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from holdfast._app.verbs import Verbs
    from holdfast._model.connection import SyncConnection
    from holdfast._model.continuation import Continue
    from holdfast._model.duration import Duration
    from holdfast._model.event import NewEvent
    from holdfast._model.handle import Handle, HasResult
    from holdfast._model.job import Job
    from holdfast._model.message import Message
    from holdfast._model.new_job import NewJob
    from holdfast._model.schedule import Missed, Schedule
    from holdfast._store.chain import ChainLine, Completion
    from holdfast._store.job import Chain, JobInfo, JobList, JobStatus, Rescheduling, RetryResult
    from holdfast._store.schedule import Running, ScheduleLine
    from holdfast._store.search import Cancellation
    from holdfast._store.step import Sent

A = TypeVar("A")
R = TypeVar("R")


@names_roles("app.sync")
@explained_methods("app.sync", VERB_HINTS)
class SyncClient:
    """The verbs of an application for synchronous connections: `app.sync`. See the same verb of `Holdfast`."""

    def __init__(self, verbs: Verbs) -> None:
        """Create it beside a `Client`, which runs the same verbs."""
        self._verbs = verbs

    def enqueue(self, conn: SyncConnection, job: NewJob[R]) -> Handle[R]:
        """Enqueue a job in the transaction of `conn` and return its handle. See `Holdfast.enqueue`."""
        return run_joined_sync(conn, self._verbs.enqueue(job))

    def enqueue_many(self, conn: SyncConnection, jobs: Sequence[NewJob[R]]) -> list[Handle[R]]:
        """Enqueue any number of jobs with one statement. See `Holdfast.enqueue_many`."""
        return run_joined_sync(conn, self._verbs.enqueue_many(jobs)) if jobs else []

    def enqueue_group(self, conn: SyncConnection, jobs: Sequence[NewJob[Any]], *, then: NewJob[R]) -> Handle[R]:
        """Enqueue jobs that run in parallel, and `then`, which runs after them. See `Holdfast.enqueue_group`."""
        return run_joined_sync(conn, self._verbs.enqueue_group(jobs, then))

    def complete_many(self, conn: SyncConnection, ends: Mapping[Job[Any], object]) -> list[Job[Any]]:
        """Complete jobs of a batch in the transaction of `conn`. See `Holdfast.complete_many`."""
        return run_sync(conn, self._verbs.complete_many(ends)) if ends else []

    def send(
        self,
        conn: SyncConnection,
        job: Handle[Any] | NewJob[Any] | int,
        message: Message[A],
        value: A,
        /,
        *,
        key: str | None = None,
    ) -> Sent:
        """Send a message to a story in the transaction of `conn`. See `Holdfast.send`."""
        return run_joined_sync(conn, self._verbs.send(job, message, value, key))

    def publish(self, conn: SyncConnection, event: NewEvent) -> int:
        """Publish an event in the transaction of `conn`. See `Holdfast.publish`."""
        return run_joined_sync(conn, self._verbs.publish(event))

    def publish_many(self, conn: SyncConnection, events: Sequence[NewEvent]) -> list[int]:
        """Publish any number of events with one statement. See `Holdfast.publish_many`."""
        return run_joined_sync(conn, self._verbs.publish_many(events)) if events else []

    @overload
    def get_job(self, conn: SyncConnection, job: Handle[R]) -> JobInfo[R] | None: ...
    @overload
    def get_job(self, conn: SyncConnection, job: int) -> JobInfo[object] | None: ...
    def get_job(self, conn: SyncConnection, job: Handle[Any] | int) -> JobInfo[Any] | None:
        """Return a job, waiting, running or ended. See `Holdfast.get_job`."""
        return run_sync(conn, self._verbs.get_job(job))

    def list_jobs(  # noqa: PLR0913 - one keyword per filter
        self,
        conn: SyncConnection,
        *,
        kind: str | None = None,
        status: JobStatus | None = None,
        queue: str | None = None,
        order_key: str | None = None,
        tag: str | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> JobList:
        """Return the newest matching jobs, and where the next page begins. See `Holdfast.list_jobs`."""
        which = Search(kind=kind, status=status, queue=queue, order_key=order_key, tag=tag)
        return run_steps_sync(conn, self._verbs.list_jobs(which, before, limit))

    def cancel(self, conn: SyncConnection, job: Handle[Any] | int) -> Cancellation:
        """Cancel a waiting job, or ask the worker that runs it to stop. See `Holdfast.cancel`."""
        return run_sync(conn, self._verbs.cancel(job))

    @overload
    def retry(self, conn: SyncConnection, job: Handle[R], *, again: bool = False) -> RetryResult[R]: ...
    @overload
    def retry(self, conn: SyncConnection, job: int, *, again: bool = False) -> RetryResult[object]: ...
    def retry(self, conn: SyncConnection, job: Handle[Any] | int, *, again: bool = False) -> RetryResult[Any]:
        """Run a failed job again, as a new job that continues its chain. See `Holdfast.retry`."""
        return run_sync(conn, self._verbs.retry(job, again=again))

    def reschedule(
        self,
        conn: SyncConnection,
        job: Handle[Any] | int,
        *,
        at: datetime | None = None,
        delay: Duration | None = None,
    ) -> Rescheduling:
        """Change when a pending job is due. See `Holdfast.reschedule`."""
        return run_sync(conn, self._verbs.reschedule(job, at, delay))

    def pause_queue(self, conn: SyncConnection, queue: str) -> bool:
        """Let no worker claim more jobs of a queue. See `Holdfast.pause_queue`."""
        return run_sync(conn, pause_queue(queue))

    def resume_queue(self, conn: SyncConnection, queue: str) -> bool:
        """Let workers claim jobs of a queue again. See `Holdfast.resume_queue`."""
        return run_sync(conn, resume_queue(queue))

    def resume_order_key(self, conn: SyncConnection, key: str) -> bool:
        """Unblock an order key that a failed job blocked. See `Holdfast.resume_order_key`."""
        return run_sync(conn, resume_order_key(key))

    def add_schedule(
        self, conn: SyncConnection, name: str, job: NewJob[Any], *, every: Schedule, missed: Missed = "run"
    ) -> bool:
        """Enqueue this job once per slot from the commit on. See `Holdfast.add_schedule`."""
        return run_sync(conn, self._verbs.add_schedule(name, job, every, missed))

    def list_schedules(self, conn: SyncConnection, *, limit: int = 1000) -> list[ScheduleLine]:
        """Return the stored schedules of runners and periodic jobs, by name. See `Holdfast.list_schedules`."""
        return run_sync(conn, list_schedules(limit=limit))

    def pause_schedule(self, conn: SyncConnection, name: str) -> bool:
        """Start no more slots of a runner or periodic job. See `Holdfast.pause_schedule`."""
        return run_sync(conn, pause_schedule(name))

    def resume_schedule(self, conn: SyncConnection, name: str) -> bool:
        """Resume a schedule with its next slot. See `Holdfast.resume_schedule`."""
        return run_sync(conn, resume_schedule(name))

    def trigger_schedule(self, conn: SyncConnection, name: str) -> bool:
        """Run a runner or periodic job once, soon, even if it is paused. See `Holdfast.trigger_schedule`."""
        return run_sync(conn, trigger_schedule(name))

    def edit_schedule(self, conn: SyncConnection, name: str, every: Schedule) -> bool:
        """Replace a schedule until the code declares a new one. See `Holdfast.edit_schedule`."""
        return run_sync(conn, edit_schedule(name, every))

    def remove_schedule(self, conn: SyncConnection, name: str) -> bool:
        """Delete a schedule that was added, or that the code no longer declares. See `Holdfast.remove_schedule`."""
        return run_sync(conn, remove_schedule(name))

    def list_ticks(self, conn: SyncConnection, *, limit: int = 1000) -> list[Running]:
        """Return the ticks of runners that run now, longest first. See `Holdfast.list_ticks`."""
        return run_sync(conn, list_running(limit=limit))

    @overload
    def get_chain(self, conn: SyncConnection, chain: Handle[R]) -> Chain[R] | None: ...
    @overload
    def get_chain(self, conn: SyncConnection, chain: int) -> Chain[object] | None: ...
    def get_chain(self, conn: SyncConnection, chain: Handle[Any] | int) -> Chain[Any] | None:
        """Return a chain and its jobs. See `Holdfast.get_chain`."""
        return run_sync(conn, self._verbs.get_chain(chain))

    def list_chains(
        self,
        conn: SyncConnection,
        *,
        kind: str | None = None,
        status: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[ChainLine]:
        """Return chains by kind and status, newest first. See `Holdfast.list_chains`."""
        return run_sync(conn, list_chains(kind=kind, status=status, before=before, limit=limit))

    def delete_chains(
        self, conn: SyncConnection, chains: Iterable[Handle[Any] | int], *, cascade: bool = False
    ) -> list[int]:
        """Delete up to 1,000 chains, ended or live, with all their data. See `Holdfast.delete_chains`."""
        return run_sync(conn, self._verbs.delete_chains(chains, cascade=cascade))

    @overload
    def complete_chain(self, conn: SyncConnection, chain: Handle[R], result: R | Continue[R]) -> Completion: ...
    @overload
    def complete_chain(self, conn: SyncConnection, chain: int, result: object) -> Completion: ...
    def complete_chain(self, conn: SyncConnection, chain: Handle[Any] | int, result: object) -> Completion:
        """Complete a chain from outside, with a result or a Continue. See `Holdfast.complete_chain`."""
        return run_sync(conn, self._verbs.complete_chain(chain, result))

    @overload
    def wait(self, chain: HasResult[R], *, timeout: Duration = WAIT, url: str | None = None) -> R: ...
    @overload
    def wait(self, chain: int, *, timeout: Duration = WAIT, url: str | None = None) -> object: ...
    def wait(self, chain: HasResult[Any] | int, *, timeout: Duration = WAIT, url: str | None = None) -> object:
        """Wait until a chain ends and return its result; each call opens a connection. See `Holdfast.wait`."""
        check_no_event_loop("wait")
        wait = self._verbs.wait(chain, timeout, url)
        return wait.result(wait_for_end(wait.url, wait.chain, seconds=wait.seconds, listen=wait.listen))

    def migrate(self, *, url: str | None = None) -> list[str]:
        """Create or update the Holdfast schema of the application's database. See `Holdfast.migrate`."""
        return self._verbs.migrate(url)

    def wake(self, *queues: str) -> bool:
        """Wake the sleeping workers of these queues, or of all, through the broker. See `Holdfast.wake`."""
        check_no_event_loop("wake")
        return asyncio.run(self._verbs.wake(*queues))
