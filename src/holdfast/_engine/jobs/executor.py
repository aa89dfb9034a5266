"""Executors: handlers that are plain functions run in threads, or in processes if they keep a CPU core busy."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import multiprocessing
import os
import pickle
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Any, Self

from holdfast._drivers import run, run_sync
from holdfast._engine.jobs.complete import Completion
from holdfast._logs.log import Log, carry_trace, current_trace
from holdfast._model.codec import JsonCodec
from holdfast._model.errors import AbortReason, HoldfastError
from holdfast._model.job import Job
from holdfast._model.kind import Kind
from holdfast._store.lease import Held

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from multiprocessing.connection import Connection
    from types import TracebackType

    from holdfast._engine.attempt import Attempt
    from holdfast._model.connection import AsyncConnection, SyncConnection
    from holdfast._model.job import Blocker, Progress
    from holdfast._store.lease import ClaimAnswer
    from holdfast._store.statement import Statement

log = Log(__name__)

# Seconds that the thread of a given-up attempt has to end before a warning is logged.
REPORT_SECONDS = 1.0
_OF_THE_GROUP = (signal.SIGINT, signal.SIGTERM)


class Executors:
    """One thread per slot. Processes are started when a kind first needs one, and are kept."""

    def __init__(self, slots: int) -> None:
        self._threads = ThreadPoolExecutor(slots, thread_name_prefix="holdfast")
        self._idle: list[Child] = []
        self._children: set[Child] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in self._children:
            child.stop()
        # A thread that ignores its signal cannot be ended, and must not block the shutdown.
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def run(self, attempt: Attempt, job: Job[Any], handler: partial[object]) -> object:
        if attempt.kind.work.executor == "process":
            return await self._run_in_process(attempt, job, handler.keywords)
        return await self._in_thread(attempt, handler)

    async def ended(self, attempt: Attempt) -> None:
        """Return when no call of this attempt runs any more: then its slot is free, and its job may run again.

        Cancelling a call, for example by a middleware's timeout, does not end its thread.
        """
        running = [call for call in attempt.calls or () if not call.cancel() and not call.done()]
        if not running:
            return
        for each in attempt.group or (attempt,):
            each.signal.abort(AbortReason.timeout)
        waiting = {asyncio.wrap_future(call) for call in running}
        _, waiting = await asyncio.wait(waiting, timeout=REPORT_SECONDS)
        if waiting:
            log.warning(
                "a handler goes on in its thread after its attempt was given up; it keeps its slot until it returns",
                extra={"job": attempt.claimed.id, "kind": attempt.claimed.kind},
            )
            await asyncio.wait(waiting)

    async def _in_thread(
        self, attempt: Attempt, function: Callable[[], object], give_up: Callable[[], None] | None = None
    ) -> object:
        """Call the function in a thread. On cancellation, do not wait for it, unless `give_up()` can end it."""
        if attempt.over:
            raise HoldfastError(f"{attempt.claimed.kind}: called after its attempt had ended")
        call = self._threads.submit(contextvars.copy_context().run, _caught, function)
        attempt.calls = [*(attempt.calls or ()), call]
        running = asyncio.wrap_future(call)
        try:
            result, error = await asyncio.shield(running)
        except asyncio.CancelledError:
            call.cancel()
            if give_up is not None:
                give_up()
                await asyncio.wait({running})
            raise
        if error is not None:
            raise error
        return result

    async def _run_in_process(self, attempt: Attempt, job: Job[Any], arguments: Mapping[str, object]) -> object:
        child = await self._child()
        watch = asyncio.create_task(_kill_when_aborted(attempt, child))
        try:
            return await self._in_thread(attempt, partial(child.call, attempt, job, arguments), give_up=child.kill)
        except ChildDied:
            attempt.signal.raise_if_aborted()
            raise
        finally:
            watch.cancel()
            if child.alive and not child.busy and not attempt.signal.aborted:
                self._idle.append(child)
            else:
                self._children.discard(child)
                child.stop()

    async def _child(self) -> Child:
        """Take an idle process, or start one in a thread, because that takes a while."""
        while self._idle:
            child = self._idle.pop()
            if child.alive:
                return child
            self._children.discard(child)
            child.stop()
        child = await asyncio.get_running_loop().run_in_executor(self._threads, Child)
        self._children.add(child)
        return child


def _caught(function: Callable[[], object]) -> tuple[object, BaseException | None]:
    """Return a raised exception as a value: futures reject StopIteration, and coroutines GeneratorExit."""
    try:
        return function(), None
    except BaseException as exc:  # noqa: BLE001 - raised again where it is awaited
        return None, exc


async def _kill_when_aborted(attempt: Attempt, child: Child) -> None:
    await attempt.signal.wait()
    child.kill()


class ChildDied(Exception):  # noqa: N818 - the name states what happened
    """The process of the handler ended before the handler did."""


class Child:
    """A process that runs one handler at a time."""

    def __init__(self) -> None:
        self.busy = False
        """Whether a handler runs there, even if its caller no longer waits for it."""
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), name="holdfast-handler", daemon=True)
        with _held_back():
            self._process.start()
        theirs.close()

    def call(self, attempt: Attempt, job: Job[Any], arguments: Mapping[str, object]) -> object:
        """Block until the handler has ended in the process. An exception that it raised is raised here."""
        handler = attempt.kind.handler
        fields = {"id": job.id, "kind": job.kind, "attempt": job.attempt, "token": job.token, "chain_id": job.chain_id}
        fields["headers"] = dict(job.headers)
        self.busy = True
        self._send(
            handler.__module__,
            handler.__qualname__,
            attempt.kind.takes_job,
            attempt.completer.worker,
            (attempt.schema, attempt.database),
            fields,
            attempt.blockers,
            arguments,
            current_trace(),
        )
        while True:
            said, value = self._receive()
            match said:
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
        try:
            self._pipe.send(what)
        except OSError:
            raise self._died() from None

    def _receive(self) -> tuple[str, Any]:
        try:
            said: tuple[str, Any] = self._pipe.recv()
        except (EOFError, OSError):
            raise self._died() from None
        return said

    def _died(self) -> ChildDied:
        self._process.join(1)
        return ChildDied(f"the process of the handler ended with exit code {self._process.exitcode}")

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def kill(self) -> None:
        self._process.kill()

    def stop(self) -> None:
        self._pipe.close()
        self.kill()
        self._process.join()


class ChildRun:
    """The job's connection to its worker while it runs in the child: reports go through the pipe."""

    def __init__(
        self, pipe: Connection, completion: Completion, blockers: tuple[Blocker, ...], home: tuple[str, str]
    ) -> None:
        """`home`: the identity of the schema, and the name of the database."""
        self._pipe = pipe
        self._completion = completion
        self.blockers = blockers
        self.schema, self.database = home

    async def complete(self, conn: AsyncConnection, result: object) -> None:
        await run(conn, self._complete(result))

    def complete_sync(self, conn: SyncConnection, result: object) -> None:
        run_sync(conn, self._complete(result))

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
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _OF_THE_GROUP)


def _end_with_worker() -> None:
    """End this process when the worker is gone, however it died."""
    if (worker := multiprocessing.parent_process()) is not None:
        worker.join()
        os._exit(1)


def _serve(pipe: Connection) -> None:
    """Run in the child: receive a handler's name and arguments, and send back its result."""
    _outlast_signals()
    threading.Thread(target=_end_with_worker, name="holdfast-worker-watch", daemon=True).start()
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
            answer = ("returned", _plain(handler(*given, **arguments)))
            pickle.dumps(answer)
        except Exception as exc:  # noqa: BLE001 - passed to the parent, which decides
            answer = ("raised", _portable(exc))
        pipe.send(answer)


def _plain(result: object) -> object:
    if inspect.iscoroutine(result):
        result.close()
        raise TypeError("a handler in a process returned a coroutine, and there is no event loop to await it in")
    return result


def _portable(exc: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(exc))  # noqa: S301 - our own data
    except Exception:  # noqa: BLE001 - an exception that cannot be pickled is replaced by its name and text
        return RuntimeError(f"{type(exc).__name__}: {exc}")
    return exc
