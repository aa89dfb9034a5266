"""The process of handlers that keep a CPU core busy: what a worker sees of it, and what runs in it."""

from __future__ import annotations

import asyncio
import inspect
import mmap
import multiprocessing
import os
import pickle
import signal
import threading
import time
from contextlib import contextmanager, suppress
from importlib import import_module
from multiprocessing import resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from holdfast._drivers import run, run_sync
from holdfast._engine.jobs.complete import Completion
from holdfast._logs.failure import Failure
from holdfast._logs.kept import job_logger
from holdfast._logs.log import carry_trace, current_trace
from holdfast._model.call import IMPORTING
from holdfast._model.codec import JsonCodec
from holdfast._model.errors import AbortSignal, InvalidStep
from holdfast._model.job import Job
from holdfast._model.kind import Kind
from holdfast._model.retry import Retry
from holdfast._store.lease import Held

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from logging import Logger
    from multiprocessing.connection import Connection

    from holdfast._engine.attempt import Attempt
    from holdfast._model.connection import AsyncConnection, SyncConnection
    from holdfast._model.job import Blocker, Progress
    from holdfast._store.lease import ClaimAnswer
    from holdfast._store.statement import Statement

# A process that has not imported the application within this many seconds is ended, and another is started.
START_SECONDS = 60.0
_OF_THE_GROUP = (signal.SIGINT, signal.SIGTERM)


class ChildDied(Exception):  # noqa: N818 - the name states what happened
    """The process of the handler ended before the handler did."""

    retryable = True


class ChildDiedIdle(ChildDied):
    """It ended before the handler began."""


class Child:
    """A process that runs one handler at a time."""

    def __init__(self, modules: Sequence[str] = ()) -> None:
        """`modules`: what it imports before it is ready, so that no handler waits for it."""
        self.busy = False
        """Whether a handler runs there, even if its caller no longer waits for it."""
        self._begun = False
        """Whether the handler of the current call was called."""
        self.taken = False
        """Whether an attempt has it."""
        self.jobs = 0
        """How many attempts had it."""
        self.over = asyncio.Event()
        """Set when no attempt can use it any more."""
        self._lock = threading.Lock()
        self._stopped = False
        self._exit_code: int | None = None
        context = multiprocessing.get_context("spawn")
        self._pipe, self._theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(self._theirs, modules), name=IMPORTING, daemon=True)

    def start(self) -> None:
        """Start it and block until it has imported the application, at most `START_SECONDS`."""
        with self._lock:
            if self._stopped:
                raise ChildDied("the process was stopped before it was started")
            with _held_back():
                self._process.start()
            self._theirs.close()
        try:
            imported = self._pipe.recv() if self._pipe.poll(START_SECONDS) else None
        except (EOFError, OSError):
            raise ChildDied(
                f"a process for handlers ended with exit code {self._ended()} while it imported the application: "
                "its error stands on stderr"
            ) from None
        if not imported:
            raise ChildDied(f"a process for handlers has not imported the application within {START_SECONDS:g} s")

    def call(self, attempt: Attempt, job: Job[Any], arguments: Mapping[str, object]) -> object:
        """Block until the handler has ended in the process. An exception that it raised is raised here."""
        handler = attempt.kind.handler
        fields = {"id": job.id, "kind": job.kind, "attempt": job.attempt, "token": job.token, "chain_id": job.chain_id}
        fields["headers"] = dict(job.headers)
        self.busy, self._begun = True, False
        self._send(
            handler.__module__,
            handler.__qualname__,
            attempt.kind.takes_job,
            attempt.completer.worker,
            (attempt.idempotency_key, attempt.database, attempt.signal.seconds_left),
            fields,
            attempt.blockers,
            arguments,
            current_trace(),
        )
        while True:
            tag, value = self._receive()
            match tag:
                case "begun":
                    self._begun = True
                case "progress":
                    attempt.report(value)
                case "completed":
                    attempt.completed, attempt.follower = True, value
                case "raised":
                    self.busy = False
                    raise value
                case _:
                    self.busy = False
                    return value

    def _send(self, *what: object) -> None:
        # Raised outside the handler: the error of the pipe refers to its buffers, which a collector may free in any
        # order.
        with suppress(OSError):
            self._pipe.send(what)
            return
        raise self._died()

    def _receive(self) -> tuple[str, Any]:
        try:
            tag: tuple[str, Any] = self._pipe.recv()
        except (EOFError, OSError):
            raise self._died() from None
        return tag

    def _died(self) -> ChildDied:
        died = ChildDied if self._begun else ChildDiedIdle
        return died(f"the process of the handler ended with exit code {self._ended()}")

    def _ended(self) -> int | None:
        with self._lock:
            if not self._stopped:
                self._process.join(1)
                self._exit_code = self._process.exitcode
            return self._exit_code

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return not self._stopped and self._process.is_alive()

    @property
    def memory(self) -> int:
        """The bytes of memory that it holds now; 0 where the system does not say, or it has ended."""
        try:
            return int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]) * mmap.PAGESIZE
        except OSError:
            return 0

    @property
    def sentinel(self) -> int:
        """A descriptor that is readable once the process has ended."""
        return self._process.sentinel

    def kill(self) -> None:
        with self._lock:
            if not self._stopped and self._process.pid is not None:
                self._process.kill()

    def stop(self) -> None:
        """End the process and close its descriptors."""
        self.kill()
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
            if self._process.pid is not None:
                self._process.join()
                self._exit_code = self._process.exitcode
            self._process.close()
        self._pipe.close()
        self._theirs.close()


class ChildRun:
    """The job's connection to its worker while it runs in the child: reports go through the pipe."""

    def __init__(
        self, pipe: Connection, completion: Completion, blockers: tuple[Blocker, ...], home: tuple[str, str, float]
    ) -> None:
        """`home`: the job's idempotency key, the name of its database, and the seconds that the attempt has left."""
        self._pipe = pipe
        self._completion = completion
        self.blockers = blockers
        self.idempotency_key, self.database, seconds_left = home
        self.signal = AbortSignal()
        self.signal.deadline = time.monotonic() + seconds_left
        """It never fires: a process whose attempt is aborted is killed."""

    async def complete(self, conn: AsyncConnection, result: object) -> None:
        await run(conn, self._complete(result))

    def complete_sync(self, conn: SyncConnection, result: object) -> None:
        run_sync(conn, self._complete(result))

    @property
    def steps(self) -> NoReturn:
        raise InvalidStep(
            'a handler with executor="process" records no steps: its process cannot be suspended: use "thread"'
        )

    @property
    def logger(self) -> Logger:
        return job_logger

    def report(self, progress: Progress) -> None:
        self._pipe.send(("progress", progress))

    def _complete(self, result: object) -> Statement[None]:
        def check(answer: ClaimAnswer) -> None:
            self._completion.check(answer)
            self._pipe.send(("completed", self._completion.follower(result)))

        return self._completion.statement(result).then(check)


@contextmanager
def _held_back() -> Iterator[None]:
    """Block the signals of the process group while a process starts, until it has installed its own handlers."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    # The first process start also starts the resource tracker, and that unblocks the signals.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _OF_THE_GROUP)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _outlast_signals() -> None:
    """Do not react to signals that a terminal or systemd sends to the whole group: the worker ends this process.

    The handlers do nothing; SIG_IGN is not used, because programs that a job starts would inherit it.
    """
    for number in _OF_THE_GROUP:
        signal.signal(number, lambda *_: None)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _OF_THE_GROUP)


def _end_with_worker() -> None:
    """End this process when the worker is gone, however it died."""
    if (worker := multiprocessing.parent_process()) is not None:
        worker.join()
        os._exit(1)


def _serve(pipe: Connection, modules: Sequence[str]) -> None:
    """Run in the child: receive a handler's name and arguments, and send back its result."""
    _outlast_signals()
    threading.Thread(target=_end_with_worker, name="holdfast-worker-watch", daemon=True).start()
    for module in modules:
        # A module that cannot be imported fails the attempts of its own handlers, and no others.
        with suppress(Exception):
            import_module(module)
    multiprocessing.current_process().name = "holdfast-handler"
    pipe.send("imported")
    while True:
        try:
            module, name, takes_job, worker, home, fields, blockers, arguments, trace = pipe.recv()
        except EOFError:
            return
        carry_trace(trace)
        try:
            found: Any = import_module(module)
            for part in name.split("."):
                found = getattr(found, part)
            handler = found.handler if isinstance(found, Kind) else found
            codec = found.codec if isinstance(found, Kind) else JsonCodec()
            held = Held(fields["id"], fields["token"])
            returns = found.returns if isinstance(found, Kind) else None
            completion = Completion(
                worker,
                held,
                kind=fields["kind"],
                codec=codec,
                headers=fields["headers"],
                returns=returns,
                started_at=time.monotonic(),
            )
            run = ChildRun(pipe, completion, blockers, home)
            given = (Job(state=None, run=run, **fields),) if takes_job else ()
            pipe.send(("begun", None))
            answer = ("returned", _plain(handler(*given, **arguments)))
            pickle.dumps(answer)
        except Exception as exc:  # noqa: BLE001 - passed to the parent, which decides
            answer = ("raised", _portable(exc, found.work.retry if isinstance(found, Kind) else None))
        pipe.send(answer)


def _plain(result: object) -> object:
    if inspect.iscoroutine(result):
        result.close()
        raise TypeError("a handler in a process returned a coroutine, and there is no event loop to await it in")
    return result


class ChildError(RuntimeError):
    """It stands for an error that cannot be pickled, with its name and text."""

    def __init__(self, text: str, code: str, retryable: bool) -> None:  # noqa: FBT001 - pickled by position
        super().__init__(text, code, retryable)
        self.code = code
        self.retryable = retryable

    def __str__(self) -> str:
        return str(self.args[0])


def _portable(exc: BaseException, retry: Retry | None) -> BaseException:
    if isinstance(exc, Retry.again) and exc.error is not exc:
        exc.__cause__ = _portable(exc.error, retry)
    try:
        pickle.loads(pickle.dumps(exc))  # noqa: S301 - our own data
    except Exception:  # noqa: BLE001 - an exception that cannot be pickled is replaced by its name and text
        failure = Failure.of(exc)
        return ChildError(failure.text, failure.code, (retry or Retry()).retries(exc))
    return exc
