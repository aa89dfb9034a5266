"""The async verbs of an application: they run on the caller's connection; `wait` opens its own."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, overload

from holdfast._app.roles import names_roles
from holdfast._drivers import run
from holdfast._drivers.autocommit import run_joined
from holdfast._drivers.steps import run_steps
from holdfast._engine.keeper import in_thread
from holdfast._engine.wake.chains import Watchers
from holdfast._model.call import explained_methods
from holdfast._model.kind import OPTIONS
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
    from holdfast._model.connection import AsyncConnection
    from holdfast._model.continuation import Continue
    from holdfast._model.databases import Databases
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

WAIT = timedelta(seconds=30)
VERB_HINTS = dict.fromkeys(OPTIONS, "it is an option of the job: write job.options(…)")


@names_roles("app")
@explained_methods("app", VERB_HINTS)
class Client:
    """Enqueues jobs, publishes events, reads and changes jobs, chains, queues and schedules, and waits for results."""

    def __init__(self, verbs: Verbs) -> None:
        """Create it beside a `SyncClient`, which runs the same verbs."""
        self._verbs = verbs
        self._watchers = Watchers()

    @property
    def url(self) -> str:
        """The address of the database, of several the first. Raises SettingsError if code and settings name none."""
        return self.databases.first

    @url.setter
    def url(self, url: str | None) -> None:
        self._verbs.use(url)

    @property
    def has_own_database(self) -> bool:
        """Whether the code names the database, or several; otherwise the settings do."""
        return self._verbs.has_own

    @property
    def databases(self) -> Databases:
        """The databases of the application, else those of the settings: `app.databases.place(customer_id)`."""
        return self._verbs.databases

    async def enqueue(self, conn: AsyncConnection, job: NewJob[R]) -> Handle[R]:
        """Enqueue a job in the transaction of `conn` and return its handle; the job exists only if that commits."""
        return await run_joined(conn, self._verbs.enqueue(job))

    async def enqueue_many(self, conn: AsyncConnection, jobs: Sequence[NewJob[R]]) -> list[Handle[R]]:
        """Enqueue any number of jobs with one statement; return their handles in the same order."""
        return await run_joined(conn, self._verbs.enqueue_many(jobs)) if jobs else []

    async def enqueue_group(self, conn: AsyncConnection, jobs: Sequence[NewJob[Any]], *, then: NewJob[R]) -> Handle[R]:
        """Enqueue jobs that run in parallel, and `then`, which runs when all their chains completed; return its handle.

        `then` finds the results of the others in `job.blockers`, in the order of `jobs`.
        """
        return await run_joined(conn, self._verbs.enqueue_group(jobs, then))

    async def complete_many(self, conn: AsyncConnection, ends: Mapping[Job[Any], object]) -> list[Job[Any]]:
        """Complete jobs of a batch in the transaction of `conn`, with one statement; return those that were lost.

        `ends`: each job with its result, or a Continue. A job that this worker no longer holds is not completed: write
        nothing for it, or roll back. Call it shortly before the commit: it locks the jobs. See `Job.complete`.
        """
        return await run(conn, self._verbs.complete_many(ends)) if ends else []

    async def send(
        self,
        conn: AsyncConnection,
        job: Handle[Any] | NewJob[Any] | int,
        message: Message[A],
        value: A,
        /,
        *,
        key: str | None = None,
    ) -> Sent:
        """Send a message to a story in the transaction of `conn`; it is received only if that commits.

        `job`: its handle, the id of its chain, or a new job with the same unique key. `key`: a second message of this
        sort with the same key is not kept. Default: none. Returns `sent`, `duplicate`, `already_ended` or `not_found`.
        The transaction must be READ COMMITTED.
        """
        return await run_joined(conn, self._verbs.send(job, message, value, key))

    async def publish(self, conn: AsyncConnection, event: NewEvent) -> int:
        """Publish an event in the transaction of `conn`; return the event's id."""
        return await run_joined(conn, self._verbs.publish(event))

    async def publish_many(self, conn: AsyncConnection, events: Sequence[NewEvent]) -> list[int]:
        """Publish any number of events with one statement; return their ids in the same order."""
        return await run_joined(conn, self._verbs.publish_many(events)) if events else []

    @overload
    async def get_job(self, conn: AsyncConnection, job: Handle[R]) -> JobInfo[R] | None: ...
    @overload
    async def get_job(self, conn: AsyncConnection, job: int) -> JobInfo[object] | None: ...
    async def get_job(self, conn: AsyncConnection, job: Handle[Any] | int) -> JobInfo[Any] | None:
        """Return a job, waiting, running or ended; None when it does not exist or is no longer stored.

        With a handle, its result has the type that the handler declares, as in `app.get_job(conn, send.handle(7))`.
        """
        return await run(conn, self._verbs.get_job(job))

    async def list_jobs(  # noqa: PLR0913 - one keyword per filter
        self,
        conn: AsyncConnection,
        *,
        kind: str | None = None,
        status: JobStatus | None = None,
        queue: str | None = None,
        order_key: str | None = None,
        tag: str | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> JobList:
        """Return the newest matching jobs, waiting, running or ended, and where the next page begins.

        `limit`: 1 to 200. Default: 50. For the next page, pass `page.next` as `before`. A search looks at no more than
        50,000 jobs of each table, by a tag at no more that have tags, and takes about two seconds at most: a page may
        be short, or empty, and have a next.
        """
        which = Search(kind=kind, status=status, queue=queue, order_key=order_key, tag=tag)
        return await run_steps(conn, self._verbs.list_jobs(which, before, limit))

    async def cancel(self, conn: AsyncConnection, job: Handle[Any] | int) -> Cancellation:
        """Cancel a waiting job, or ask the worker that runs it to stop.

        Returns `cancelled`, `requested` (a worker runs it, or it leaves its order key in its turn) or `not_found` (it
        has ended or does not exist).
        """
        return await run(conn, self._verbs.cancel(job))

    @overload
    async def retry(self, conn: AsyncConnection, job: Handle[R], *, again: bool = False) -> RetryResult[R]: ...
    @overload
    async def retry(self, conn: AsyncConnection, job: int, *, again: bool = False) -> RetryResult[object]: ...
    async def retry(self, conn: AsyncConnection, job: Handle[Any] | int, *, again: bool = False) -> RetryResult[Any]:
        """Run a failed job again, as a new job that continues its chain; return its handle and what was done.

        `again`: also if an earlier retry is live or has completed. Default: False. The transaction of `conn` must be
        READ COMMITTED if the job has an order key or comes after other chains.
        """
        return await run(conn, self._verbs.retry(job, again=again))

    async def reschedule(
        self,
        conn: AsyncConnection,
        job: Handle[Any] | int,
        *,
        at: datetime | None = None,
        delay: Duration | None = None,
    ) -> Rescheduling:
        """Change when a pending job is due. Give one of the two; a time that has passed means at once.

        `at`: a time with a time zone. `delay`: seconds or a timedelta from now, by PostgreSQL's clock. Default:
        neither. Returns `rescheduled`, or the status that the job has instead: `processing`, `blocked`, or `not_found`
        (it has ended or does not exist).
        """
        return await run(conn, self._verbs.reschedule(job, at, delay))

    async def pause_queue(self, conn: AsyncConnection, queue: str) -> bool:
        """Let no worker claim more jobs of a queue; return False if it was paused already. Running jobs go on."""
        return await run(conn, pause_queue(queue))

    async def resume_queue(self, conn: AsyncConnection, queue: str) -> bool:
        """Let workers claim jobs of a queue again; return False if it was not paused."""
        return await run(conn, resume_queue(queue))

    async def resume_order_key(self, conn: AsyncConnection, key: str) -> bool:
        """Unblock an order key that a failed job blocked, and skip that job; return False if none blocked it."""
        return await run(conn, resume_order_key(key))

    async def add_schedule(
        self, conn: AsyncConnection, name: str, job: NewJob[Any], *, every: Schedule, missed: Missed = "run"
    ) -> bool:
        """Enqueue this job once per slot from the commit on, however many workers run; return whether it is new.

        A schedule of this name that was added before is replaced, and stays paused if it is. Raises HoldfastError if
        the code declares one of this name with `app.schedule`. `missed`: whether the job of a slot that passed more
        than a minute ago is enqueued once, late, or not at all (`skip`). Default: `run`.
        """
        return await run(conn, self._verbs.add_schedule(name, job, every, missed))

    async def list_schedules(self, conn: AsyncConnection, *, limit: int = 1000) -> list[ScheduleLine]:
        """Return the stored schedules of runners and periodic jobs, by name. `limit`: in schedules. Default: 1000."""
        return await run(conn, list_schedules(limit=limit))

    async def pause_schedule(self, conn: AsyncConnection, name: str) -> bool:
        """Start no more slots of a runner or periodic job; return False if no schedule has this name.

        A tick that runs goes on. Workers follow within HOLDFAST_IDLE_MAX_MS.
        """
        return await run(conn, pause_schedule(name))

    async def resume_schedule(self, conn: AsyncConnection, name: str) -> bool:
        """Resume a schedule with its next slot; return False if no schedule has this name. Missed slots are not run."""
        return await run(conn, resume_schedule(name))

    async def trigger_schedule(self, conn: AsyncConnection, name: str) -> bool:
        """Run a runner or periodic job once, soon, even if it is paused; return False if no schedule has this name."""
        return await run(conn, trigger_schedule(name))

    async def edit_schedule(self, conn: AsyncConnection, name: str, every: Schedule) -> bool:
        """Replace a schedule until the code declares a new one; return False if no schedule has this name."""
        return await run(conn, edit_schedule(name, every))

    async def remove_schedule(self, conn: AsyncConnection, name: str) -> bool:
        """Delete a schedule that was added, or that the code no longer declares; return False if there is none."""
        return await run(conn, remove_schedule(name))

    async def list_ticks(self, conn: AsyncConnection, *, limit: int = 1000) -> list[Running]:
        """Return the ticks of runners that run now, longest first. `limit`: in ticks. Default: 1000.

        Ticks of runners without a schedule appear after a second; most take less.
        """
        return await run(conn, list_running(limit=limit))

    @overload
    async def get_chain(self, conn: AsyncConnection, chain: Handle[R]) -> Chain[R] | None: ...
    @overload
    async def get_chain(self, conn: AsyncConnection, chain: int) -> Chain[object] | None: ...
    async def get_chain(self, conn: AsyncConnection, chain: Handle[Any] | int) -> Chain[Any] | None:
        """Return a chain and its jobs; None when it does not exist or is no longer stored."""
        return await run(conn, self._verbs.get_chain(chain))

    async def list_chains(
        self,
        conn: AsyncConnection,
        *,
        kind: str | None = None,
        status: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[ChainLine]:
        """Return chains by the kind of their first job and the status of their last, newest first.

        `limit`: 1 to 1,000. Default: 100. For the next page, pass the last id as `before`. A search for rare chains can
        be slow: set a `statement_timeout`.
        """
        return await run(conn, list_chains(kind=kind, status=status, before=before, limit=limit))

    async def delete_chains(
        self, conn: AsyncConnection, chains: Iterable[Handle[Any] | int], *, cascade: bool = False
    ) -> list[int]:
        """Delete up to 1,000 chains, ended or live, with all their data; return the ids of those that existed.

        Raises ChainAwaited when a job of another chain waits for one of them; with `cascade`, the chains of such jobs
        are deleted too. Default: False. Workers that run jobs of deleted chains are asked to stop.
        """
        return await run(conn, self._verbs.delete_chains(chains, cascade=cascade))

    @overload
    async def complete_chain(self, conn: AsyncConnection, chain: Handle[R], result: R | Continue[R]) -> Completion: ...
    @overload
    async def complete_chain(self, conn: AsyncConnection, chain: int, result: object) -> Completion: ...
    async def complete_chain(self, conn: AsyncConnection, chain: Handle[Any] | int, result: object) -> Completion:
        """Complete a chain from outside, whatever the state of its job, with a result or a Continue.

        A handle encodes the result by the type that the handler declares. With an id, the type is unknown and the
        result must be JSON-serializable as it is. If a worker runs the job, that attempt is aborted with
        `already_completed`. The transaction of `conn` must be READ COMMITTED.
        """
        return await run(conn, self._verbs.complete_chain(chain, result))

    @overload
    async def wait(self, chain: HasResult[R], *, timeout: Duration = WAIT, url: str | None = None) -> R: ...  # noqa: ASYNC109
    @overload
    async def wait(self, chain: int, *, timeout: Duration = WAIT, url: str | None = None) -> object: ...  # noqa: ASYNC109
    async def wait(
        self,
        chain: HasResult[Any] | int,
        *,
        timeout: Duration = WAIT,  # noqa: ASYNC109 - the error names the chain and why there was no answer
        url: str | None = None,
    ) -> object:
        """Wait until a chain ends and return its result. Call it after your commit, outside of a transaction.

        Raises ChainFailed when the chain did not complete, and TimeoutError when it has not ended within `timeout`,
        seconds or a timedelta of at most a day. Default: 30 seconds. All waits share one listening connection. `url`:
        the database. Default: the application's.
        """
        wait = self._verbs.wait(chain, timeout, url)
        return wait.result(await self._watchers.wait(wait.url, wait.chain, seconds=wait.seconds, listen=wait.listen))

    async def migrate(self, *, url: str | None = None) -> list[str]:
        """Create or update the Holdfast schema of the application's database; return the migrations applied.

        It opens its own connection. Any number of processes may call it at once, even while workers run. `url`: the
        database. Default: the application's.
        """
        applied: list[str] = await in_thread(partial(self._verbs.migrate, url), name="holdfast.migrate")
        return applied

    async def wake(self, *queues: str) -> bool:
        """Wake the sleeping workers of these queues, or of all, through the broker; return whether it was reached.

        Call it after your commit, and only where workers cannot LISTEN. Without a broker it returns False.
        """
        return await self._verbs.wake(*queues)
