"""The errors that Holdfast raises, and the signal that asks a running handler to stop.

    HoldfastError
    ├── InvalidJob              a kind, an option or an argument that cannot be enqueued or run
    ├── InvalidEvent            a topic, a key, a header or a payload that cannot be published or read
    ├── PayloadTooLarge         kind, size, limit
    ├── DuplicateJob            existing_id
    ├── AlreadyReplayed         replay_id: a job is replaying this dead letter, or has completed it
    ├── ChainFailed             chain_id, status, error_code, error: the chain did not complete
    ├── ChainAwaited            waiters: jobs of other chains wait for a chain that was to be deleted
    ├── WrongIsolation          the operation needs a READ COMMITTED transaction
    ├── NoTransaction           a message was received on an autocommit connection, outside of a transaction
    ├── NotCommitted            the handler completed its job in a transaction that it did not commit
    ├── InvalidStep             a step that cannot be recorded: used twice, inside another, without a result type
    ├── StoryChanged            a new step was reached while a recorded one was not
    ├── StepFailed              code: a step failed in an earlier attempt, with an error of an unknown class
    ├── UnknownKind
    ├── KindTaken
    ├── SubscriptionTaken
    ├── UnsupportedConnection   a pool, an engine, an unsupported library, or sync in place of async or the reverse
    ├── DatabaseRefused         at a worker's first start: no such database or role, or a wrong password
    ├── RoleMissing             role: the user of the connection lacks a database role
    ├── SchemaMissing           the database was never migrated
    ├── SchemaOutdated          the database is older than this code
    ├── SchemaUnknown           the database is newer than this code, or was changed by hand
    └── Aborted                 reason: a running job was asked to stop
        └── LeaseLost           and this worker no longer holds it

The first paragraph of a class's docstring is its default message, the second is the cure.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import threading
import time
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from holdfast._model.duration import as_timedelta

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast._model.duration import Duration


# ruff: noqa: N818 - names describe what happened


def meaning_of(cls: type[BaseException]) -> str:
    """Return the first paragraph of an error's docstring: its default message."""
    return inspect.cleandoc(cls.__doc__ or cls.__name__).partition("\n\n")[0]


class HoldfastError(Exception):
    """Holdfast could not do what was asked."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or meaning_of(type(self)))

    def __reduce__(self) -> tuple[Any, ...]:
        # The constructor of a subclass may take other arguments than the message.
        return _restored, (type(self), self.args, self.__dict__)


def _restored(cls: type[HoldfastError], args: tuple[Any, ...], attributes: dict[str, Any]) -> HoldfastError:
    """Return an error as it was before it was pickled."""
    error = cls.__new__(cls, *args)
    error.__dict__.update(attributes)
    return error


class InvalidJob(HoldfastError):
    """This is not a valid job.

    Cure: The message names the option or the argument, and what is expected.
    """


class InvalidEvent(HoldfastError):
    """This is not a valid event.

    Cure: The message names the topic and the value, and what is expected.
    """


class PayloadTooLarge(HoldfastError):
    """The payload is larger than the codec allows.

    Cure: Store the data elsewhere and pass its key, or give Holdfast a codec with a higher `max_bytes`.
    """

    def __init__(self, *, kind: str, size: int, limit: int) -> None:
        super().__init__(
            f"{kind or 'payload'}: {size} bytes of JSON, and the limit is {limit}: store the data elsewhere and pass "
            "its key, or give Holdfast a codec with a higher max_bytes"
        )
        self.kind = kind
        self.size = size
        self.limit = limit


class DuplicateJob(HoldfastError):
    """A job with this unique key exists already.

    Cure: Use the job `existing_id`, or choose another `on_conflict` than `raise`.
    """

    def __init__(self, existing_id: int | None = None) -> None:
        super().__init__(None if existing_id is None else f"A job with this unique key exists already: {existing_id}")
        self.existing_id = existing_id


class AlreadyReplayed(HoldfastError):
    """This dead letter was replayed already.

    Cure: Look at the job `replay_id`. To replay the dead letter once more, use `holdfast jobs retry --again`.
    """

    def __init__(self, replay_id: int | None = None) -> None:
        super().__init__(None if replay_id is None else f"This dead letter was replayed already, as job {replay_id}")
        self.replay_id = replay_id


class ChainFailed(HoldfastError):
    """The chain did not complete.

    Cure: Look at `status`, `error_code` and `error`. Retry the dead letter, or enqueue the job again.
    """

    def __init__(
        self, chain_id: int, status: str | None = None, error_code: str | None = None, error: str | None = None
    ) -> None:
        detail = ": ".join(filter(None, (error_code, error)))
        super().__init__(f"chain {chain_id} {status or 'did not complete'}{f' ({detail})' if detail else ''}")
        self.chain_id = chain_id
        self.status = status
        """`failed`, `cancelled` or `not_found`."""
        self.error_code = error_code
        self.error = error


class ChainAwaited(HoldfastError):
    """Jobs of other chains wait for these chains.

    Cure: Delete the waiting chains first, or pass `cascade=True`.
    """

    def __init__(self, waiters: Sequence[int] = ()) -> None:
        named = ", ".join(map(str, waiters))
        super().__init__(f"Jobs of other chains wait for these chains: {named}" if named else None)
        self.waiters: tuple[int, ...] = tuple(waiters)
        """The ids of the first 100 jobs."""


class WrongIsolation(HoldfastError):
    """A job is claimed, completed or deleted in a READ COMMITTED transaction only.

    Cure: Use READ COMMITTED, PostgreSQL's default, for this transaction.
    """


class NoTransaction(HoldfastError):
    """A message is received in the transaction of what is done about it, and this connection is in none: begin one.

    Cure: Use a connection that is not in autocommit mode, or begin a transaction on it.
    """


class NotCommitted(HoldfastError):
    """The handler completed the job in a transaction that was never committed.

    Cure: Commit the transaction of `job.complete` before the handler returns. The job runs again.
    """

    retryable = True


class InvalidStep(HoldfastError):
    """This step cannot be recorded.

    Cure: The message names the step. Correct the handler, and retry the job.
    """

    retryable = False


class StoryChanged(HoldfastError):
    """This story was recorded by other code: a new step was reached, and a recorded one was not.

    Cure: Give the step its old name, or keep the old branch until its stories have ended. Then retry the job.
    """

    retryable = False


class StepFailed(HoldfastError):
    """A step failed in an earlier attempt, with an error whose class this process does not have.

    Cure: Look at `code` and the text.
    """

    def __init__(self, message: str, code: str = "", *, retryable: bool = True) -> None:
        super().__init__(message)
        self.code = code
        self.retryable = retryable


class UnknownKind(HoldfastError):
    """No handler is registered for this kind.

    Cure: Import the module that registers the kind in the worker, or declare the kind with `app.declare`.
    """


class KindTaken(HoldfastError):
    """Another handler is registered for this kind.

    Cure: Give one of the two another name. The message names both places.
    """


class SubscriptionTaken(HoldfastError):
    """Another subscription has this name.

    Cure: Give one of the two another name. The message names both places.
    """


class UnsupportedConnection(HoldfastError):
    """Holdfast cannot run a statement on this object.

    Cure: Give an open connection of psycopg 3, asyncpg, SQLAlchemy or Django; a sync one to `app.sync`.
    """


class DatabaseRefused(HoldfastError):
    """The server refuses the address of the database, and that does not pass by itself.

    Cure: Correct the address, or create the database or the role, and start the worker again.
    """


class RoleMissing(HoldfastError):
    """The user of this connection lacks a database role.

    Cure: Let an administrator of the server run the GRANT that the message contains.
    """

    def __init__(self, verb: str, role: str) -> None:
        super().__init__(
            f"{verb}: the user of this connection lacks the database role {role}: let an administrator run "
            f"GRANT {role} TO your_user"
        )
        self.verb = verb
        self.role = role


class SchemaMissing(HoldfastError):
    """This database has no Holdfast schema: run `holdfast migrate`.

    Cure: Run `holdfast migrate`, or correct the address of the database.
    """


class SchemaOutdated(HoldfastError):
    """The Holdfast schema of this database is older than this code: run `holdfast migrate`.

    Cure: Run `holdfast migrate` before the new version of the application starts.
    """


class SchemaUnknown(HoldfastError):
    """This code does not know the Holdfast schema of this database: it is newer, or was changed by hand.

    Cure: Install the version of Holdfast that migrated this database, or a later one.
    """


class Aborted(HoldfastError):
    """This job was asked to stop.

    Cure: Let the handler end. The worker decides by the `reason` whether the job runs again.
    """

    def __init__(self, reason: AbortReason) -> None:
        super().__init__(f"{meaning_of(type(self)).rstrip('.')}: {reason}")
        self.reason = reason


class LeaseLost(Aborted):
    """This job is no longer held by this worker.

    Cure: Roll back. If handlers often take longer than their lease to report, give their kind a longer one.
    """


class AutocommitWarning(UserWarning):
    """A job or an event was committed by itself, on a connection in autocommit mode, and not with your data.

    Cure: Enqueue and publish inside a transaction, or silence the warning.
    """


class AbortReason(StrEnum):
    """The same words in Python, SQL, logs and metrics."""

    taken_by_another_worker = "taken_by_another_worker"
    already_completed = "already_completed"
    not_found = "not_found"
    error = "error"
    timeout = "timeout"
    cancelled = "cancelled"
    shutdown = "shutdown"


# One lock for all signals: they fire rarely, and a lock for each would make every job slower.
_FIRING = threading.Lock()


class AbortSignal:
    """Asks a running handler to stop: it fires at most once, with a reason, and can be read from any thread.

    When it fires, an async handler is cancelled. A handler in a thread should check `aborted`, or call
    `raise_if_aborted`, between two steps of its work.
    """

    __slots__ = ("_reason", "_waiters", "deadline")

    def __init__(self) -> None:
        self.deadline: float = math.inf
        """When `max_runtime` ends the attempt, by the monotonic clock."""
        self._reason: AbortReason | None = None
        self._waiters: list[threading.Event | tuple[asyncio.AbstractEventLoop, asyncio.Event]] | None = None

    def __repr__(self) -> str:
        return f"<AbortSignal {self._reason or 'quiet'}>"

    @property
    def aborted(self) -> bool:
        """Whether it has fired."""
        return self._reason is not None

    @property
    def reason(self) -> AbortReason | None:
        """The reason why it fired; None before that."""
        return self._reason

    @property
    def seconds_left(self) -> float:
        """The seconds until `max_runtime` ends this attempt, so that a handler can stop before: 0 or more."""
        return max(0.0, self.deadline - time.monotonic())

    def raise_if_aborted(self) -> None:
        """Raise `Aborted` with the reason if it has fired."""
        if self._reason is not None:
            raise Aborted(self._reason)

    async def wait(self) -> AbortReason:
        """Wait until it fires and return the reason."""
        event = asyncio.Event()
        self._add((asyncio.get_running_loop(), event))
        while self._reason is None:
            await event.wait()
        return self._reason

    def wait_in_thread(self, timeout: Duration | None = None) -> bool:
        """Block a thread until it fires; return whether it has fired.

        `timeout`: seconds or a timedelta. Default: no limit.
        """
        seconds = None if timeout is None else as_timedelta("timeout", timeout).total_seconds()
        event = threading.Event()
        self._add(event)
        return self.aborted or event.wait(seconds)

    def abort(self, reason: AbortReason) -> bool:
        """Fire, from any thread; return False if it has fired before, and keep that reason."""
        with _FIRING:
            if self._reason is not None:
                return False
            self._reason = reason
        for waiter in self._waiters or ():
            if isinstance(waiter, threading.Event):
                waiter.set()
            else:
                loop, event = waiter
                # A closed event loop has no waiters.
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(event.set)
        return True

    def _add(self, waiter: threading.Event | tuple[asyncio.AbstractEventLoop, asyncio.Event]) -> None:
        with _FIRING:
            self._waiters = [*(self._waiters or ()), waiter]
