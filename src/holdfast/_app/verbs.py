"""The verbs of an application, once for both clients: the checks, the statement, and what the rows become."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import psycopg

from holdfast._app.arguments import (
    check_event,
    check_registered_name,
    given_id,
    given_job_id,
    listed_events,
    listed_jobs,
    running_attempts,
)
from holdfast._engine.jobs.complete import completed, follower
from holdfast._engine.report.transition import Transitions
from holdfast._engine.runner import BUILT_IN
from holdfast._model.call import refuse_in_child, type_name
from holdfast._model.continuation import Continue
from holdfast._model.databases import Databases, check_address, databases_of, named
from holdfast._model.databases_file import DatabasesFile
from holdfast._model.duration import DAY, MORE_THAN_ZERO, as_timedelta
from holdfast._model.errors import HoldfastError, InvalidJob
from holdfast._model.handle import Handle
from holdfast._model.message import Message
from holdfast._model.new_job import LAST_ID, LONGEST_DELAY, NewJob, check_new_job
from holdfast._model.option import check_time
from holdfast._model.schedule import check_missed, check_schedule
from holdfast._model.settings import Settings, SettingsError
from holdfast._store.chain import STATUSES, Completion, complete_chain, delete_chains, result_of
from holdfast._store.enqueue import EnqueuedJob, enqueue_group, enqueue_job, enqueue_jobs
from holdfast._store.event import publish_event, publish_events
from holdfast._store.job import (
    Chain,
    JobList,
    RetryResult,
    get_job,
    read_chain,
    reschedule_job,
    retry_job,
)
from holdfast._store.schedule import add_schedule
from holdfast._store.schema import migrate
from holdfast._store.search import (
    MOST_LISTED,
    Cancellation,
    FoundJobs,
    Look,
    Search,
    begin_search,
    cancel_job,
    end_search,
    find_jobs,
    read_found_jobs,
)
from holdfast._store.step import send_message

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from datetime import datetime

    from holdfast._engine.report.transition import Listener
    from holdfast._engine.wake.carriers import Carrier
    from holdfast._model.codec import JsonCodec
    from holdfast._model.duration import Duration
    from holdfast._model.event import NewEvent
    from holdfast._model.handle import HasResult
    from holdfast._model.job import Job
    from holdfast._model.schedule import Missed, Schedule
    from holdfast._store.chain import ChainEnd
    from holdfast._store.job import JobInfo, Rescheduling, RetryRow
    from holdfast._store.statement import Statement
    from holdfast._store.step import Sent

A = TypeVar("A")
R = TypeVar("R")

# A list of jobs is not searched further after so long. One statement of it may take longer, but is ended.
_SEARCH_SECONDS = 2.0
_STATEMENT_SECONDS = 10


class Wait(NamedTuple):
    """A wait for the end of a chain: where, for which, how long, and what the end becomes."""

    url: str
    chain: int
    seconds: float
    listen: bool
    result: Callable[[ChainEnd], Any]


class Verbs:
    """Makes the statements of the verbs. `Client` runs them on async connections, `SyncClient` on sync ones."""

    def __init__(
        self,
        url: str | Databases | None,
        *,
        codec: JsonCodec,
        listeners: list[Listener],
        carrier: Carrier | None = None,
    ) -> None:
        self._databases: Databases | None = url if isinstance(url, Databases) else _one(url)
        self._codec = codec
        self._listeners = listeners
        self._carrier = carrier
        self._loaded: Settings | None = None
        self._file: DatabasesFile | None = None

    @property
    def databases(self) -> Databases:
        """The databases of the application, else those of the settings."""
        if self._databases is None and (path := self._settings.databases_file) is not None:
            if self._file is None:
                self._file = DatabasesFile(path)
            return self._file.current()
        return self.databases_with(self._settings)

    def databases_with(self, settings: Settings) -> Databases:
        """Return the databases of the application, else those of these settings."""
        return databases_of(settings) if self._databases is None else self._databases

    @property
    def has_own(self) -> bool:
        """Whether the application names its databases itself."""
        return self._databases is not None

    def use(self, url: str | None) -> None:
        """Use the database at this address from now on; None: that of the settings."""
        self._databases = _one(url)

    def enqueue(self, job: NewJob[R]) -> Statement[Handle[R]]:
        refuse_in_child("app.enqueue")
        check_new_job(job, "app.enqueue")
        statement = enqueue_job(job)
        return statement.then(partial(self._enqueued_one, [job])) if self._listeners else statement

    def enqueue_many(self, jobs: Sequence[NewJob[R]]) -> Statement[list[Handle[R]]]:
        refuse_in_child("app.enqueue_many")
        listed = listed_jobs("app.enqueue_many", jobs)
        return enqueue_jobs(listed).then(partial(self._enqueued, listed))

    def enqueue_group(self, jobs: Sequence[NewJob[Any]], last: NewJob[R]) -> Statement[Handle[R]]:
        refuse_in_child("app.enqueue_group")
        listed = listed_jobs("app.enqueue_group", jobs)
        check_new_job(last, "app.enqueue_group")
        statement = enqueue_group(listed, last) if listed else enqueue_job(last)
        return statement.then(partial(self._enqueued_one, [last, *listed]))

    def complete_many(self, ends: Mapping[Job[Any], object]) -> Statement[list[Job[Any]]]:
        attempts = running_attempts("app.complete_many", ends)
        first = next(iter(attempts.values()))
        statement = first.completer.complete_batch({attempts[job]: end for job, end in ends.items()})
        return statement.then(lambda lost: [job for job, attempt in attempts.items() if attempt in lost])

    def publish(self, event: NewEvent) -> Statement[int]:
        refuse_in_child("app.publish")
        check_event(event, "app.publish")
        return publish_event(event)

    def publish_many(self, events: Sequence[NewEvent]) -> Statement[list[int]]:
        refuse_in_child("app.publish_many")
        return publish_events(listed_events("app.publish_many", events))

    def send(
        self, job: Handle[Any] | NewJob[Any] | int, message: Message[A], value: A, key: str | None
    ) -> Statement[Sent]:
        if not isinstance(message, Message):
            raise TypeError(f"app.send: expected a message, as app.message declares it, got {type_name(message)}")
        payload = message.encode(value)
        if not isinstance(job, NewJob):
            return send_message(message.name, payload, key=key, chain=_id(job))
        if (unique := job.envelope.unique) is None:
            raise InvalidJob(f"app.send: {job.kind} has no unique key to find its job by: give the handle")
        return send_message(message.name, payload, key=key, kind=job.kind, unique_key=unique.key)

    def list_jobs(self, which: Search, before: int | None, limit: int) -> Generator[Statement[Any], Any, JobList]:
        """Check the arguments, and return the statements to run in one transaction."""
        if not 1 <= limit <= MOST_LISTED:
            raise ValueError(f"limit: expected a number from 1 to {MOST_LISTED}, got {limit}")
        if which.status is not None and which.status not in STATUSES:
            raise ValueError(f"status: expected one of {', '.join(STATUSES)}, got {which.status!r:.40}")
        return self._listed(find_jobs(which, limit=limit, before=before))

    def _listed(self, search: Generator[Look, Any, FoundJobs]) -> Generator[Statement[Any], Any, JobList]:
        settings = yield begin_search(_STATEMENT_SECONDS)
        ends = time.monotonic() + _SEARCH_SECONDS
        look = next(search)
        while True:
            answer = None if look.optional and time.monotonic() > ends else (yield look.statement)
            try:
                look = search.send(answer)
            except StopIteration as ended:
                found: FoundJobs = ended.value
                break
        jobs = (yield read_found_jobs(found.jobs, self._codec.decode)) if found.jobs else []
        yield end_search(settings)
        return JobList(tuple(jobs), found.next)

    def get_job(self, job: Handle[Any] | int) -> Statement[JobInfo[Any] | None]:
        return get_job(_job_id(job), self._decode(job), self._codec.decode)

    def cancel(self, job: Handle[Any] | int) -> Statement[Cancellation]:
        return cancel_job(_job_id(job)).then(partial(self._cancelled, _job_id(job)))

    def retry(self, job: Handle[Any] | int, *, again: bool) -> Statement[RetryResult[Any]]:
        return retry_job(_job_id(job), again=again).then(partial(self._retried, job))

    def reschedule(
        self, job: Handle[Any] | int, at: datetime | None, delay: Duration | None
    ) -> Statement[Rescheduling]:
        if (at is None) == (delay is None):
            raise InvalidJob("app.reschedule: expected one of at and delay, such as delay=60")
        if at is not None:
            check_time("at", at)
        span = None if delay is None else as_timedelta("delay", delay, limit=LONGEST_DELAY, error=InvalidJob)
        return reschedule_job(_job_id(job), due=at, delay=span)

    def add_schedule(self, name: str, job: NewJob[Any], every: Schedule, missed: Missed) -> Statement[bool]:
        check_registered_name("app.add_schedule", name)
        check_new_job(job, "app.add_schedule")
        check_schedule(every)
        check_missed(missed)
        if name in BUILT_IN:
            raise HoldfastError(f"{name}: a built-in runner has this name: choose another one")
        return add_schedule(name, every, job, missed=missed)

    def get_chain(self, chain: Handle[Any] | int) -> Statement[Chain[Any] | None]:
        id_ = _id(chain)
        return read_chain(id_, self._decode(chain), self._codec.decode).then(
            lambda jobs: Chain(id_, jobs) if jobs else None
        )

    def delete_chains(self, chains: Iterable[Handle[Any] | int], *, cascade: bool) -> Statement[list[int]]:
        if isinstance(chains, Handle | int | str) or not isinstance(chains, Iterable):
            given = type(chains).__name__
            raise TypeError(f"app.delete_chains: expected a list of handles or ids, such as [handle], got {given}")
        return delete_chains(map(_id, chains), cascade=cascade)

    def complete_chain(self, chain: Handle[Any] | int, result: object) -> Statement[Completion]:
        given = result
        if isinstance(chain, Handle) and chain.encode is not None and not isinstance(result, Continue):
            given = chain.encode(result)
        outcome = completed(given, self._codec, f"chain {_id(chain)}")
        statement = complete_chain(_id(chain), outcome.result, outcome.next)
        return statement.then(partial(self._completed, chain, result))

    def wait(self, chain: HasResult[Any] | int, timeout: Duration, url: str | None) -> Wait:
        address, listen = self._address(url)
        result = partial(result_of, given_id(chain), decode=self._decode(chain))
        return Wait(address, _id(chain), _seconds(timeout), listen, result)

    def migrate(self, url: str | None) -> list[str]:
        address, _ = self._address(url)
        with psycopg.connect(address, autocommit=True, prepare_threshold=None, client_encoding="UTF8") as conn:
            return migrate(conn)

    async def wake(self, *queues: str) -> bool:
        return self._carrier is not None and await self._carrier.wake(*queues)

    def _enqueued_one(self, jobs: Sequence[NewJob[Any]], handle: Handle[R]) -> Handle[R]:
        self._enqueued(jobs, [handle])
        return handle

    def _enqueued(self, jobs: Sequence[NewJob[Any]], handles: list[Handle[R]]) -> list[Handle[R]]:
        """Report enqueued jobs to the listeners of this process, if any. In a group only the last job has a handle."""
        if self._listeners:
            made = [
                EnqueuedJob(None if handle is None else handle.id, job.kind, job.envelope.queue)
                for job, handle in zip_longest(jobs, handles)
                if handle is None or handle.created
            ]
            Transitions("", self._listeners).enqueued(made, "call")
        return handles

    def _completed(self, chain: Handle[Any] | int, result: object, answer: Completion) -> Completion:
        """Report the job that continues a chain to the listeners; its id is unknown here."""
        if self._listeners and answer == "completed" and (made := follower(_id(chain), result)) is not None:
            Transitions("", self._listeners).enqueued([made], "chain")
        return answer

    def _cancelled(self, job_id: int, answer: Cancellation) -> Cancellation:
        """Report a job that was cancelled while it waited; for a running job, its worker does this."""
        if self._listeners and answer == "cancelled":
            Transitions("", self._listeners).tell("job_cancelled", job_id)
        return answer

    def _retried(self, job: Handle[Any] | int, row: RetryRow) -> RetryResult[Any]:
        """Report the new job to the listeners."""
        if row.made is None:
            return RetryResult(row.answer, None)
        created = row.answer == "retried"
        if self._listeners and created:
            made = EnqueuedJob(row.made, row.kind or "", row.queue or "", _job_id(job))
            Transitions("", self._listeners).enqueued([made], "replay")
        given: Handle[Any] = Handle(row.made, row.made, created=created) if isinstance(job, int) else job
        return RetryResult(row.answer, replace(given, id=row.made, chain_id=row.chain_id or row.made, created=created))

    def _decode(self, chain: HasResult[Any] | int) -> Callable[[str | None], Any]:
        decode = None if isinstance(chain, int) else chain.decode
        return decode or (lambda text: self._codec.decode(text or "null"))

    def _address(self, url: str | None) -> tuple[str, bool]:
        """Return the address of the database, and whether to LISTEN there."""
        settings = self._settings
        if url:
            return url, settings.listen
        if not self.has_own and not settings.database_urls and settings.databases_file is None:
            raise SettingsError(["no database: give Holdfast an address, or name one with url=…"])
        databases = self.databases
        if len(databases) != 1:
            raise SettingsError([f"{len(databases)} databases: name one with url=…, such as url=app.databases[name]"])
        return databases.first, settings.listen

    @property
    def _settings(self) -> Settings:
        if self._loaded is None:
            self._loaded = Settings.load(os.environ)
        return self._loaded


def _one(url: str | None) -> Databases | None:
    if url is not None:
        check_address(url)
    return named([url]) if url else None


def _id(chain: HasResult[Any] | int) -> int:
    """Return the chain's id, or 0, which no job has, if it is outside the range of job ids."""
    return _in_range(given_id(chain))


def _in_range(given: int) -> int:
    return given if 1 <= given <= LAST_ID else 0


def _job_id(job: Handle[Any] | int) -> int:
    """Return the job's own id, in the same way as `_id` returns its chain's."""
    return _in_range(given_job_id(job))


def _seconds(timeout: Duration) -> float:
    return as_timedelta("timeout", timeout, least=MORE_THAN_ZERO, limit=DAY).total_seconds()
