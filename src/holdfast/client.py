"""The verbs of an application: on the caller's own connection, and waiting for chains on one of its own."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, overload

from holdfast.drivers import run, run_sync
from holdfast.engine.completion import completed
from holdfast.engine.transition import Transitions
from holdfast.engine.watcher import Watchers, wait_for_end
from holdfast.new_job import LAST_ID
from holdfast.registry import Registry, check_events, check_jobs
from holdfast.settings import Settings, SettingsError, check_address
from holdfast.store.cancel import Cancellation, cancel_job, resume_order_key
from holdfast.store.chain import Chain, Completion, complete_chain, delete_chains, list_chains, read_chain, result_of
from holdfast.store.enqueue import enqueue_group, enqueue_job, enqueue_jobs
from holdfast.store.event import publish_event, publish_events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from holdfast.chain import Continue
    from holdfast.codec import JsonCodec
    from holdfast.connection import AsyncConnection, SyncConnection
    from holdfast.event import NewEvent
    from holdfast.job import Handle, HasResult
    from holdfast.new_job import NewJob
    from holdfast.store.chain import ChainJob, ChainLine
    from holdfast.store.statement import Statement

R = TypeVar("R")

WAIT = timedelta(seconds=30)
LONGEST_WAIT = timedelta(days=1)


class Client(Registry):
    """Enqueues, and looks after chains."""

    def __init__(self, url: str | None = None, *, codec: JsonCodec | None = None) -> None:
        super().__init__(codec=codec)
        if url is not None:
            check_address(url)
        self.url = url
        self._watchers = Watchers()
        self._loaded: Settings | None = None

    async def enqueue(self, conn: AsyncConnection, job: NewJob[R]) -> Handle[R]:
        """Enqueue in the transaction that `conn` is in: the job exists when it commits, and never if it does not."""
        check_jobs([job])
        return self._enqueued_one(job, await run(conn, enqueue_job(job)))

    async def enqueue_many(self, conn: AsyncConnection, jobs: Sequence[NewJob[R]]) -> list[Handle[R]]:
        """Enqueue any number of jobs with one statement; the handles are in the order of the jobs."""
        check_jobs(jobs)
        return self._enqueued(jobs, await run(conn, enqueue_jobs(jobs))) if jobs else []

    async def enqueue_group(self, conn: AsyncConnection, jobs: Sequence[NewJob[Any]], *, then: NewJob[R]) -> Handle[R]:
        """Enqueue jobs that run side by side, and one that runs when their chains have all completed; answer with that.

        How the others ended it finds in `job.blockers`, in the order of the jobs.
        """
        check_jobs([*jobs, then])
        handle = await run(conn, enqueue_group(jobs, then) if jobs else enqueue_job(then))
        return self._enqueued_one(then, handle, jobs)

    def enqueue_sync(self, conn: SyncConnection, job: NewJob[R]) -> Handle[R]:
        """Do as `enqueue` does, on a sync connection."""
        check_jobs([job])
        return self._enqueued_one(job, run_sync(conn, enqueue_job(job)))

    def enqueue_many_sync(self, conn: SyncConnection, jobs: Sequence[NewJob[R]]) -> list[Handle[R]]:
        """Do as `enqueue_many` does, on a sync connection."""
        check_jobs(jobs)
        return self._enqueued(jobs, run_sync(conn, enqueue_jobs(jobs))) if jobs else []

    def enqueue_group_sync(self, conn: SyncConnection, jobs: Sequence[NewJob[Any]], *, then: NewJob[R]) -> Handle[R]:
        """Do as `enqueue_group` does, on a sync connection."""
        check_jobs([*jobs, then])
        handle = run_sync(conn, enqueue_group(jobs, then) if jobs else enqueue_job(then))
        return self._enqueued_one(then, handle, jobs)

    def _enqueued_one(self, job: NewJob[Any], handle: Handle[R], others: Sequence[NewJob[Any]] = ()) -> Handle[R]:
        self._enqueued([job, *others], [handle])
        return handle

    def _enqueued(self, jobs: Sequence[NewJob[Any]], handles: list[Handle[R]]) -> list[Handle[R]]:
        """Tell the listeners of this process, if there are any."""
        if self.listeners:
            known = len(handles) == len(jobs)
            made = [job for job, handle in zip(jobs, handles, strict=True) if handle.created] if known else jobs
            Transitions("", self.listeners).enqueued(made, [one for one in handles if one.created or not known])
        return handles

    def _cancelled(self, job_id: int, answer: Cancellation) -> Cancellation:
        """Tell of a job that was cancelled while it waited; of one that runs, its worker tells."""
        if self.listeners and answer == "cancelled":
            Transitions("", self.listeners).tell("job_cancelled", job_id)
        return answer

    async def publish(self, conn: AsyncConnection, event: NewEvent) -> int:
        """Publish in the transaction that `conn` is in; the answer is the event's id."""
        check_events([event])
        return await run(conn, publish_event(event))

    async def publish_many(self, conn: AsyncConnection, events: Sequence[NewEvent]) -> list[int]:
        """Publish any number of events with one statement; the ids are in the order of the events."""
        check_events(events)
        return await run(conn, publish_events(events)) if events else []

    def publish_sync(self, conn: SyncConnection, event: NewEvent) -> int:
        """Do as `publish` does, on a sync connection."""
        check_events([event])
        return run_sync(conn, publish_event(event))

    def publish_many_sync(self, conn: SyncConnection, events: Sequence[NewEvent]) -> list[int]:
        """Do as `publish_many` does, on a sync connection."""
        check_events(events)
        return run_sync(conn, publish_events(events)) if events else []

    async def cancel(self, conn: AsyncConnection, job_id: int) -> Cancellation:
        """Cancel a waiting job, or ask the worker that runs it to stop."""
        return self._cancelled(job_id, await run(conn, cancel_job(_id(job_id))))

    def cancel_sync(self, conn: SyncConnection, job_id: int) -> Cancellation:
        """Do as `cancel` does, on a sync connection."""
        return self._cancelled(job_id, run_sync(conn, cancel_job(_id(job_id))))

    async def resume_order_key(self, conn: AsyncConnection, key: str) -> bool:
        """Let an order key go on that a failed job has stopped, without that job; False when it was not stopped."""
        return await run(conn, resume_order_key(key))

    def resume_order_key_sync(self, conn: SyncConnection, key: str) -> bool:
        """Do as `resume_order_key` does, on a sync connection."""
        return run_sync(conn, resume_order_key(key))

    @overload
    async def get_chain(self, conn: AsyncConnection, chain: Handle[R]) -> Chain[R] | None: ...
    @overload
    async def get_chain(self, conn: AsyncConnection, chain: int) -> Chain[object] | None: ...
    async def get_chain(self, conn: AsyncConnection, chain: Handle[Any] | int) -> Chain[Any] | None:
        """Return a chain and its jobs; None when there is none, or nothing is kept of it any more."""
        return self._chain(chain, await run(conn, read_chain(_id(chain))))

    @overload
    def get_chain_sync(self, conn: SyncConnection, chain: Handle[R]) -> Chain[R] | None: ...
    @overload
    def get_chain_sync(self, conn: SyncConnection, chain: int) -> Chain[object] | None: ...
    def get_chain_sync(self, conn: SyncConnection, chain: Handle[Any] | int) -> Chain[Any] | None:
        """Do as `get_chain` does, on a sync connection."""
        return self._chain(chain, run_sync(conn, read_chain(_id(chain))))

    async def list_chains(
        self,
        conn: AsyncConnection,
        *,
        kind: str | None = None,
        status: str | None = None,
        before: int | None = None,
        most: int = 100,
    ) -> list[ChainLine]:
        """Return chains by the kind of their first job and the status of their last, newest first, at most 1,000.

        The next page is `before` the last one's id. What is rare may take long to find: give it a `statement_timeout`.
        """
        return await run(conn, list_chains(kind=kind, status=status, before=before, most=most))

    def list_chains_sync(
        self,
        conn: SyncConnection,
        *,
        kind: str | None = None,
        status: str | None = None,
        before: int | None = None,
        most: int = 100,
    ) -> list[ChainLine]:
        """Do as `list_chains` does, on a sync connection."""
        return run_sync(conn, list_chains(kind=kind, status=status, before=before, most=most))

    async def delete_chains(
        self, conn: AsyncConnection, chains: Iterable[Handle[Any] | int], *, cascade: bool = False
    ) -> list[int]:
        """Delete chains, ended or alive, and all that is kept of them; return the ids of those there were.

        ChainAwaited when a job of another chain waits for one of them; with `cascade` the chains of such jobs go too.
        Who runs one of their jobs is told to stop. At most 1,000 at once.
        """
        return await run(conn, delete_chains(map(_id, chains), cascade=cascade))

    def delete_chains_sync(
        self, conn: SyncConnection, chains: Iterable[Handle[Any] | int], *, cascade: bool = False
    ) -> list[int]:
        """Do as `delete_chains` does, on a sync connection."""
        return run_sync(conn, delete_chains(map(_id, chains), cascade=cascade))

    @overload
    async def complete_chain(self, conn: AsyncConnection, chain: Handle[R], result: R | Continue[R]) -> Completion: ...
    @overload
    async def complete_chain(self, conn: AsyncConnection, chain: int, result: object) -> Completion: ...
    async def complete_chain(self, conn: AsyncConnection, chain: Handle[Any] | int, result: object) -> Completion:
        """Complete a chain from outside, whatever its job does just now, with a result or a Continue.

        Who runs the job is told to stop: `already_completed`. Within the transaction that `conn` is in, READ COMMITTED.
        """
        return await run(conn, self._completion(chain, result))

    @overload
    def complete_chain_sync(self, conn: SyncConnection, chain: Handle[R], result: R | Continue[R]) -> Completion: ...
    @overload
    def complete_chain_sync(self, conn: SyncConnection, chain: int, result: object) -> Completion: ...
    def complete_chain_sync(self, conn: SyncConnection, chain: Handle[Any] | int, result: object) -> Completion:
        """Do as `complete_chain` does, on a sync connection."""
        return run_sync(conn, self._completion(chain, result))

    @overload
    async def wait(self, chain: HasResult[R], *, timeout: timedelta = WAIT, url: str | None = None) -> R: ...  # noqa: ASYNC109
    @overload
    async def wait(self, chain: int, *, timeout: timedelta = WAIT, url: str | None = None) -> object: ...  # noqa: ASYNC109
    async def wait(
        self,
        chain: HasResult[Any] | int,
        *,
        timeout: timedelta = WAIT,  # noqa: ASYNC109 - the error says what was waited for, and why nobody answered
        url: str | None = None,
    ) -> object:
        """Return what a chain ended with, when it has ended: ask after your commit, in no transaction.

        ChainFailed when it did not complete; TimeoutError when it has not ended within the time, by default 30 seconds
        and at most a day. However many wait, one connection listens for all of them. `url`: the database, if it is not
        the application's.
        """
        url, listen = self._address(url)
        end = await self._watchers.wait(url, _id(chain), seconds=_seconds(timeout), listen=listen)
        return result_of(_given(chain), end, self._decode(chain))

    @overload
    def wait_sync(self, chain: HasResult[R], *, timeout: timedelta = WAIT, url: str | None = None) -> R: ...
    @overload
    def wait_sync(self, chain: int, *, timeout: timedelta = WAIT, url: str | None = None) -> object: ...
    def wait_sync(self, chain: HasResult[Any] | int, *, timeout: timedelta = WAIT, url: str | None = None) -> object:
        """Do as `wait` does, where no event loop runs: each call has a connection of its own."""
        url, listen = self._address(url)
        end = wait_for_end(url, _id(chain), seconds=_seconds(timeout), listen=listen)
        return result_of(_given(chain), end, self._decode(chain))

    def _chain(self, chain: Handle[Any] | int, jobs: Sequence[ChainJob]) -> Chain[Any] | None:
        return Chain(_id(chain), tuple(jobs), self._decode(chain)) if jobs else None

    def _completion(self, chain: Handle[Any] | int, result: object) -> Statement[Completion]:
        outcome = completed(result, self.codec, f"chain {_id(chain)}")
        return complete_chain(_id(chain), outcome.result, outcome.next)

    def _decode(self, chain: HasResult[Any] | int) -> Callable[[str | None], Any]:
        decode = None if isinstance(chain, int) else chain.decode
        return decode or (lambda text: self.codec.decode(text or "null"))

    def _address(self, url: str | None) -> tuple[str, bool]:
        """Return where to wait, and whether to listen there."""
        if self._loaded is None:
            self._loaded = Settings.load(os.environ)
        urls = [given] if (given := url or self.url) else self._loaded.database_urls
        if len(urls) != 1:
            raise SettingsError([f"{len(urls)} databases: give Holdfast an address, or say which, wait(…, url=…)"])
        return urls[0], self._loaded.listen


def _given(chain: HasResult[Any] | int) -> int:
    return chain if isinstance(chain, int) else chain.chain_id


def _id(chain: HasResult[Any] | int) -> int:
    """Return the id to ask for; 0, which nobody has, for one that no job can have and the server cannot read."""
    return given if 1 <= (given := _given(chain)) <= LAST_ID else 0


def _seconds(timeout: timedelta) -> float:
    if not timedelta(0) < timeout <= LONGEST_WAIT:
        raise ValueError("timeout: more than nothing, and at most a day")
    return timeout.total_seconds()
