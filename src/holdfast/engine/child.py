"""A process of its own for handlers that keep a core busy."""

from __future__ import annotations

import inspect
import multiprocessing
import os
import pickle
import signal
import threading
from contextlib import contextmanager
from importlib import import_module
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Any

from holdfast.codec import JsonCodec
from holdfast.drivers import run, run_sync
from holdfast.engine.completion import Completion
from holdfast.job import Job
from holdfast.kind import Kind
from holdfast.store.lease import Held
from holdfast.trace import carry_trace, current_trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from multiprocessing.connection import Connection

    from holdfast.connection import AsyncConnection, SyncConnection
    from holdfast.engine.attempt import Attempt
    from holdfast.job import Blocker, Progress

_OF_THE_GROUP = (signal.SIGINT, signal.SIGTERM)


class ChildDied(Exception):  # noqa: N818 - a name says what happened
    """The process of the handler ended before the handler did."""


class Child:
    """A process that runs one handler at a time."""

    def __init__(self) -> None:
        self.busy = False
        """A handler runs there, whether or not anybody waits for it."""
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), name="holdfast-handler", daemon=True)
        with _held_back():
            self._process.start()
        theirs.close()

    def call(self, attempt: Attempt, job: Job[Any], arguments: Mapping[str, object]) -> object:
        """Block until the handler has ended there; what it raised is raised here."""
        handler = attempt.kind.handler
        fields = {"id": job.id, "kind": job.kind, "attempt": job.attempt, "token": job.token, "chain_id": job.chain_id}
        fields["headers"] = dict(job.headers)
        self.busy = True
        self._send(
            handler.__module__,
            handler.__qualname__,
            attempt.desk.worker,
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
                    attempt.completed = True
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
    """What a job in the child asks of its worker: what must be known there is said through the pipe."""

    def __init__(self, pipe: Connection, completion: Completion, blockers: tuple[Blocker, ...]) -> None:
        self._pipe = pipe
        self._completion = completion
        self.blockers = blockers

    async def complete(self, conn: AsyncConnection, result: object) -> None:
        self._completion.check(await run(conn, self._completion.statement(result)))
        self._pipe.send(("completed", None))

    def complete_sync(self, conn: SyncConnection, result: object) -> None:
        self._completion.check(run_sync(conn, self._completion.statement(result)))
        self._pipe.send(("completed", None))

    def report(self, progress: Progress) -> None:
        self._pipe.send(("progress", progress))


@contextmanager
def _held_back() -> Iterator[None]:
    """Start a process that gets no signal of its group's before it has said that it does not react to them."""
    # The first process that is started starts the tracker too, and that lets the signals through again.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _OF_THE_GROUP)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _outlast_signals() -> None:
    """Do not react to what a terminal or systemd sends to all processes of a group: the worker decides when we end.

    By a function that does nothing, not by ignoring them: programs that a handler starts would inherit that.
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
    """Run in the child: take a handler's name and its arguments, answer with what came of it."""
    _outlast_signals()
    threading.Thread(target=_end_with_worker, name="holdfast-worker-watch", daemon=True).start()
    while True:
        try:
            module, name, worker, fields, blockers, arguments, trace = pipe.recv()
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
                worker, held, kind=fields["kind"], codec=codec, headers=fields["headers"], returns=returns
            )
            run = ChildRun(pipe, completion, blockers)
            answer = ("returned", _plain(handler(Job(state=None, run=run, **fields), **arguments)))
            pickle.dumps(answer)
        except Exception as exc:  # noqa: BLE001 - carried to the parent, which decides
            answer = ("raised", _portable(exc))
        pipe.send(answer)


def _plain(result: object) -> object:
    if inspect.iscoroutine(result):
        result.close()
        raise TypeError("a handler in a process returned a coroutine, and there is no event loop to await it in")
    return result


def _portable(exc: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(exc))  # noqa: S301 - our own
    except Exception:  # noqa: BLE001 - an exception that cannot travel sends its name and text
        return RuntimeError(f"{type(exc).__name__}: {exc}")
    return exc
