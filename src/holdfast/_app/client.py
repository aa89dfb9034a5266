"""The client methods of an application: they run on the caller's connection; `wait` opens its own."""

from __future__ import annotations

import os
from datetime import timedelta
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TypeVar, overload

from holdfast._drivers import run, run_sync
from holdfast._engine.jobs.complete import completed, follower
from holdfast._engine.report.transition import Transitions
from holdfast._engine.wake.chains import Watchers, wait_for_end
from holdfast._model.event import NewEvent
from holdfast._model.job import Handle
from holdfast._model.new_job import LAST_ID, Continue, check_new_job
from holdfast._model.settings import Settings, SettingsError, check_address
from holdfast._store.chain import Chain, Completion, complete_chain, delete_chains, list_chains, read_chain, result_of
from holdfast._store.enqueue import EnqueuedJob, enqueue_group, enqueue_job, enqueue_jobs
from holdfast._store.event import publish_event, publish_events
from holdfast._store.search import Cancellation, cancel_job, resume_order_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from holdfast._engine.report.transition import Listener
    from holdfast._model.codec import JsonCodec
    from holdfast._model.connection import AsyncConnection, SyncConnection
    from holdfast._model.job import HasResult
    from holdfast._model.new_job import NewJob
    from holdfast._store.chain import ChainJob, ChainLine
    from holdfast._store.statement import Statement

R = TypeVar("R")

WAIT = timedelta(seconds=30)
LONGEST_WAIT = timedelta(days=1)


class Client:
    """Enqueues jobs, publishes events, and reads, completes and waits for chains."""

    codec: JsonCodec
    listeners: list[Listener]

    def __init__(self, url: str | None) -> None:
        """Create it beside a `Registry`, whose codec and listeners it uses."""
        if url is not None:
            check_address(url)
        self.url = url
        self._watchers = Watchers()
        self._loaded: Settings | None = None

    async def enqueue(self, conn: AsyncConnection, job: NewJob[R]) -> Handle[R]:
        """Enqueue a job in the transaction of `conn` and return its handle; the job exists only if that commits."""
        check_jobs([job])
        return self._enqueued_one(job, await run(conn, enqueue_job(job)))

    async def enqueue_many(self, conn: AsyncConnection, jobs: Sequence[NewJob[R]]) -> list[Handle[R]]:
        """Enqueue any number of jobs with one statement; return their handles in the same order."""
        check_jobs(jobs)
        return self._enqueued(jobs, await run(conn, enqueue_jobs(jobs))) if jobs else []

    async def enqueue_group(self, conn: AsyncConnection, jobs: Sequence[NewJob[Any]], *, then: NewJob[R]) -> Handle[R]:
        """Enqueue jobs that run in parallel, and `then`, which runs when all their chains completed; return its handle.

        `then` finds the results of the others in `job.blockers`, in the order of `jobs`.
        """
        check_jobs([*jobs, then])
        handle = await run(conn, enqueue_group(jobs, then) if jobs else enqueue_job(then))
        return self._enqueued_one(then, handle, jobs)

    def enqueue_sync(self, conn: SyncConnection, job: NewJob[R]) -> Handle[R]:
        """Enqueue one job on a synchronous connection. See `enqueue`."""
        check_jobs([job])
        return self._enqueued_one(job, run_sync(conn, enqueue_job(job)))

    def enqueue_many_sync(self, conn: SyncConnection, jobs: Sequence[NewJob[R]]) -> list[Handle[R]]:
        """Enqueue any number of jobs on a synchronous connection. See `enqueue_many`."""
        check_jobs(jobs)
        return self._enqueued(jobs, run_sync(conn, enqueue_jobs(jobs))) if jobs else []

    def enqueue_group_sync(self, conn: SyncConnection, jobs: Sequence[NewJob[Any]], *, then: NewJob[R]) -> Handle[R]:
        """Enqueue a group of jobs on a synchronous connection. See `enqueue_group`."""
        check_jobs([*jobs, then])
        handle = run_sync(conn, enqueue_group(jobs, then) if jobs else enqueue_job(then))
        return self._enqueued_one(then, handle, jobs)

    def _enqueued_one(self, job: NewJob[Any], handle: Handle[R], others: Sequence[NewJob[Any]] = ()) -> Handle[R]:
        self._enqueued([job, *others], [handle])
        return handle

    def _enqueued(self, jobs: Sequence[NewJob[Any]], handles: list[Handle[R]]) -> list[Handle[R]]:
        """Report enqueued jobs to the listeners of this process, if any. In a group only the last job has a handle."""
        if self.listeners:
            made = [
                EnqueuedJob(None if handle is None else handle.id, job.kind, job.envelope.queue)
                for job, handle in zip_longest(jobs, handles)
                if handle is None or handle.created
            ]
            Transitions("", self.listeners).enqueued(made, "call")
        return handles

    def _completed(self, chain: Handle[Any] | int, result: object, answer: Completion) -> Completion:
        """Report the job that continues a chain to the listeners; its id is unknown here."""
        if self.listeners and answer == "completed" and (made := follower(_id(chain), result)) is not None:
            Transitions("", self.listeners).enqueued([made], "chain")
        return answer

    def _cancelled(self, job_id: int, answer: Cancellation) -> Cancellation:
        """Report a job that was cancelled while it waited; for a running job, its worker does this."""
        if self.listeners and answer == "cancelled":
            Transitions("", self.listeners).tell("job_cancelled", job_id)
        return answer

    async def publish(self, conn: AsyncConnection, event: NewEvent) -> int:
        """Publish an event in the transaction of `conn`; return the event's id."""
        check_events([event])
        return await run(conn, publish_event(event))

    async def publish_many(self, conn: AsyncConnection, events: Sequence[NewEvent]) -> list[int]:
        """Publish any number of events with one statement; return their ids in the same order."""
        check_events(events)
        return await run(conn, publish_events(events)) if events else []

    def publish_sync(self, conn: SyncConnection, event: NewEvent) -> int:
        """Publish one event on a synchronous connection. See `publish`."""
        check_events([event])
        return run_sync(conn, publish_event(event))

    def publish_many_sync(self, conn: SyncConnection, events: Sequence[NewEvent]) -> list[int]:
        """Publish any number of events on a synchronous connection. See `publish_many`."""
        check_events(events)
        return run_sync(conn, publish_events(events)) if events else []

    async def cancel(self, conn: AsyncConnection, job_id: int) -> Cancellation:
        """Cancel a waiting job, or ask the worker that runs it to stop."""
        return self._cancelled(job_id, await run(conn, cancel_job(_id(job_id))))

    def cancel_sync(self, conn: SyncConnection, job_id: int) -> Cancellation:
        """Cancel a job on a synchronous connection. See `cancel`."""
        return self._cancelled(job_id, run_sync(conn, cancel_job(_id(job_id))))

    async def resume_order_key(self, conn: AsyncConnection, key: str) -> bool:
        """Unblock an order key that a failed job blocked, and skip that job; return False if it was not blocked."""
        return await run(conn, resume_order_key(key))

    def resume_order_key_sync(self, conn: SyncConnection, key: str) -> bool:
        """Unblock an order key on a synchronous connection. See `resume_order_key`."""
        return run_sync(conn, resume_order_key(key))

    @overload
    async def get_chain(self, conn: AsyncConnection, chain: Handle[R]) -> Chain[R] | None: ...
    @overload
    async def get_chain(self, conn: AsyncConnection, chain: int) -> Chain[object] | None: ...
    async def get_chain(self, conn: AsyncConnection, chain: Handle[Any] | int) -> Chain[Any] | None:
        """Return a chain and its jobs; None when it does not exist or is no longer stored."""
        return self._chain(chain, await run(conn, read_chain(_id(chain))))

    @overload
    def get_chain_sync(self, conn: SyncConnection, chain: Handle[R]) -> Chain[R] | None: ...
    @overload
    def get_chain_sync(self, conn: SyncConnection, chain: int) -> Chain[object] | None: ...
    def get_chain_sync(self, conn: SyncConnection, chain: Handle[Any] | int) -> Chain[Any] | None:
        """Return a chain on a synchronous connection. See `get_chain`."""
        return self._chain(chain, run_sync(conn, read_chain(_id(chain))))

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

    def list_chains_sync(
        self,
        conn: SyncConnection,
        *,
        kind: str | None = None,
        status: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[ChainLine]:
        """Return chains on a synchronous connection. See `list_chains`."""
        return run_sync(conn, list_chains(kind=kind, status=status, before=before, limit=limit))

    async def delete_chains(
        self, conn: AsyncConnection, chains: Iterable[Handle[Any] | int], *, cascade: bool = False
    ) -> list[int]:
        """Delete up to 1,000 chains, ended or live, with all their data; return the ids of those that existed.

        Raises ChainAwaited when a job of another chain waits for one of them; with `cascade`, the chains of such jobs
        are deleted too. Default: False. Workers that run jobs of deleted chains are asked to stop.
        """
        return await run(conn, delete_chains(map(_id, chains), cascade=cascade))

    def delete_chains_sync(
        self, conn: SyncConnection, chains: Iterable[Handle[Any] | int], *, cascade: bool = False
    ) -> list[int]:
        """Delete chains on a synchronous connection. See `delete_chains`."""
        return run_sync(conn, delete_chains(map(_id, chains), cascade=cascade))

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
        return self._completed(chain, result, await run(conn, self._completion(chain, result)))

    @overload
    def complete_chain_sync(self, conn: SyncConnection, chain: Handle[R], result: R | Continue[R]) -> Completion: ...
    @overload
    def complete_chain_sync(self, conn: SyncConnection, chain: int, result: object) -> Completion: ...
    def complete_chain_sync(self, conn: SyncConnection, chain: Handle[Any] | int, result: object) -> Completion:
        """Complete a chain on a synchronous connection. See `complete_chain`."""
        return self._completed(chain, result, run_sync(conn, self._completion(chain, result)))

    @overload
    async def wait(self, chain: HasResult[R], *, timeout: timedelta = WAIT, url: str | None = None) -> R: ...  # noqa: ASYNC109
    @overload
    async def wait(self, chain: int, *, timeout: timedelta = WAIT, url: str | None = None) -> object: ...  # noqa: ASYNC109
    async def wait(
        self,
        chain: HasResult[Any] | int,
        *,
        timeout: timedelta = WAIT,  # noqa: ASYNC109 - the error names the chain and why there was no answer
        url: str | None = None,
    ) -> object:
        """Wait until a chain ends and return its result. Call it after your commit, outside of a transaction.

        Raises ChainFailed when the chain did not complete, and TimeoutError when it has not ended within `timeout`, at
        most a day. Default: 30 seconds. All waits share one listening connection. `url`: the database. Default: the
        application's.
        """
        url, listen = self._address(url)
        end = await self._watchers.wait(url, _id(chain), seconds=_seconds(timeout), listen=listen)
        return result_of(_given(chain), end, self._decode(chain))

    @overload
    def wait_sync(self, chain: HasResult[R], *, timeout: timedelta = WAIT, url: str | None = None) -> R: ...
    @overload
    def wait_sync(self, chain: int, *, timeout: timedelta = WAIT, url: str | None = None) -> object: ...
    def wait_sync(self, chain: HasResult[Any] | int, *, timeout: timedelta = WAIT, url: str | None = None) -> object:
        """Wait for a chain where no event loop runs; each call opens its own connection. See `wait`."""
        url, listen = self._address(url)
        end = wait_for_end(url, _id(chain), seconds=_seconds(timeout), listen=listen)
        return result_of(_given(chain), end, self._decode(chain))

    def _chain(self, chain: Handle[Any] | int, jobs: Sequence[ChainJob]) -> Chain[Any] | None:
        return Chain(_id(chain), tuple(jobs), self._decode(chain)) if jobs else None

    def _completion(self, chain: Handle[Any] | int, result: object) -> Statement[Completion]:
        if isinstance(chain, Handle) and chain.encode is not None and not isinstance(result, Continue):
            result = chain.encode(result)
        outcome = completed(result, self.codec, f"chain {_id(chain)}")
        return complete_chain(_id(chain), outcome.result, outcome.next)

    def _decode(self, chain: HasResult[Any] | int) -> Callable[[str | None], Any]:
        decode = None if isinstance(chain, int) else chain.decode
        return decode or (lambda text: self.codec.decode(text or "null"))

    def _address(self, url: str | None) -> tuple[str, bool]:
        """Return the address of the database, and whether to LISTEN there."""
        if self._loaded is None:
            self._loaded = Settings.load(os.environ)
        urls = [given] if (given := url or self.url) else self._loaded.database_urls
        if len(urls) != 1:
            raise SettingsError([f"{len(urls)} databases: give Holdfast an address, or say which, wait(…, url=…)"])
        return urls[0], self._loaded.listen


def _given(chain: HasResult[Any] | int) -> int:
    return chain if isinstance(chain, int) else chain.chain_id


def _id(chain: HasResult[Any] | int) -> int:
    """Return the chain's id, or 0, which no job has, if it is outside the range of job ids."""
    return given if 1 <= (given := _given(chain)) <= LAST_ID else 0


def _seconds(timeout: timedelta) -> float:
    if not timedelta(0) < timeout <= LONGEST_WAIT:
        raise ValueError("timeout: more than nothing, and at most a day")
    return timeout.total_seconds()


def check_events(events: Sequence[NewEvent]) -> None:
    for event in events:
        if not isinstance(event, NewEvent):
            raise TypeError(f"{type(event).__name__} given where a NewEvent is needed: call its topic's .new(...)")


def check_jobs(jobs: Sequence[NewJob[Any]]) -> None:
    for job in jobs:
        check_new_job(job)
