"""A job as its handler sees it."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from holdfast._logs.kept import job_logger
from holdfast._model.errors import AbortSignal, HoldfastError
from holdfast._model.story import Story, SyncStory

if TYPE_CHECKING:
    import logging
    from collections.abc import Mapping

    from holdfast._model.connection import AsyncConnection, SyncConnection
    from holdfast._model.step import Steps

T = TypeVar("T")
S_co = TypeVar("S_co", covariant=True)

_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Blocker(NamedTuple):
    """A chain that had to end before this job, and how it ended. `kind.result(blocker)` decodes its result."""

    chain_id: int
    status: Literal["completed", "failed", "cancelled"] | None
    """A deleted chain counts as cancelled. None: it is still live; only cancelled jobs see that."""
    result: str | None
    """JSON text."""
    error_code: str | None
    error: str | None


class Progress(NamedTuple):
    """How far a job has come, as `job.progress` reported it."""

    fraction: float
    """From 0 to 1."""
    note: str | None = None
    """At most 200 characters; longer notes are cut."""


class Run(Protocol):
    """The services that a worker provides to the job it runs."""

    @property
    def signal(self) -> AbortSignal: ...
    @property
    def idempotency_key(self) -> str: ...
    @property
    def database(self) -> str: ...
    @property
    def blockers(self) -> tuple[Blocker, ...]: ...
    async def complete(self, conn: AsyncConnection, result: object) -> None: ...
    def complete_sync(self, conn: SyncConnection, result: object) -> None: ...
    @property
    def logger(self) -> logging.Logger: ...
    def report(self, progress: Progress) -> None: ...
    @property
    def steps(self) -> Steps: ...


class Job(Story, Generic[S_co]):
    """The job that a handler receives as its first argument.

    >>> Job(id=7, kind="receipt.send", state=None).idempotency_key
    'holdfast:7'
    """

    __slots__ = ("_run", "attempt", "chain_id", "headers", "id", "kind", "signal", "state", "token")

    def __init__(  # noqa: PLR0913 - one keyword per attribute
        self,
        *,
        id: int,  # noqa: A002 - the usual name
        kind: str,
        state: S_co,
        attempt: int = 1,
        token: int = 0,
        chain_id: int | None = None,
        headers: Mapping[str, str] = _NO_HEADERS,
        run: Run | None = None,
    ) -> None:
        self.id: int = id
        self.kind: str = kind
        self.state: S_co = state
        """The value that the application's lifespan yielded; shared by all handlers."""
        self.attempt: int = attempt
        """The number of this attempt; the first is 1."""
        self.token: int = token
        """A fencing token that grows with every claim: pass it to systems that can reject stale ones."""
        self.chain_id: int = id if chain_id is None else chain_id
        """The id of the chain's first job."""
        self.headers: Mapping[str, str] = headers
        self.signal: AbortSignal = AbortSignal() if run is None else run.signal
        """Fires with the reason when this attempt should stop."""
        self._run = run

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.kind} attempt {self.attempt}>"

    @property
    def database(self) -> str:
        """The name of the database that holds this job, such as `eu`: connect there with `app.databases[job.database]`.

        Empty outside of workers.
        """
        return "" if self._run is None else self._run.database

    @property
    def idempotency_key(self) -> str:
        """A key that is the same for every attempt, and that no other job has, also none of another database.

        It consists of the identity of the schema, the time when the job was enqueued, and its id, which a database that
        was restored from a backup gives again: `holdfast:5f0c…:1767225600000000:7`.
        """
        return f"holdfast:{self.id}" if self._run is None else self._run.idempotency_key

    def step_key(self, name: str, key: str | int | None = None) -> str:
        """Return an idempotency key for a step: the same in every attempt, and no other step has it."""
        return ":".join(str(part) for part in (self.idempotency_key, name, key) if part is not None)

    @property
    def _steps(self) -> Steps:
        return _running(self.id, self._run).steps

    @property
    def log(self) -> logging.Logger:
        """A logger whose lines carry this job, as those of any logger do while the handler runs.

        If the kind has `keep_logs`, they are kept whatever the level of the loggers, and from any thread.
        """
        return job_logger if self._run is None else self._run.logger

    @property
    def blockers(self) -> tuple[Blocker, ...]:
        """The chains that had to end before this job, in the order of `after`."""
        return () if self._run is None else self._run.blockers

    async def complete(self, conn: AsyncConnection, result: T) -> T:
        """Complete this job in the transaction of `conn`, with a result or a Continue, and return that value.

        Call it as the last statement before the commit: earlier writes then commit together with the completion, or not
        at all. Raises LeaseLost when this worker no longer holds the job: then roll back.
        """
        await _running(self.id, self._run).complete(conn, result)
        return result

    @property
    def sync(self) -> SyncJob:
        """The same for synchronous connections: `job.sync.complete(conn, result)`."""
        return SyncJob(self.id, self._run)

    def progress(self, fraction: float, note: str | None = None) -> None:
        """Report how far the job has come. Call it as often as you like: it is stored about once a second.

        `fraction`: from 0 to 1. `note`: at most 200 characters; longer notes are cut. Default: none.
        """
        if not 0 <= fraction <= 1:
            raise ValueError(f"progress: expected a fraction from 0 to 1, got {fraction!r:.40}")
        if self._run is not None:
            self._run.report(Progress(fraction, note))


class SyncJob(SyncStory):
    """The verbs of a job for synchronous connections: `job.sync`. See the same verb of `Job`."""

    __slots__ = ("_id", "_run")

    def __init__(self, id: int, run: Run | None) -> None:  # noqa: A002 - the usual name
        self._id = id
        self._run = run

    @property
    def _steps(self) -> Steps:
        return _running(self._id, self._run).steps

    def complete(self, conn: SyncConnection, result: T) -> T:
        """Complete this job in the transaction of `conn` and return the result. See `Job.complete`."""
        _running(self._id, self._run).complete_sync(conn, result)
        return result


def run_of(job: Job[Any]) -> Run:
    """Return the services of the worker that runs a job. Raises HoldfastError if none does."""
    return _running(job.id, job._run)  # noqa: SLF001 - of this module


def _running(job_id: int, run: Run | None) -> Run:
    if run is None:
        raise HoldfastError(f"job {job_id} is not run by a worker")
    return run
