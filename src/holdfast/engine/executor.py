"""Handlers that are plain functions: in threads, or in processes of their own."""

from __future__ import annotations

import asyncio
import contextvars
import multiprocessing
import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self

from holdfast.job import Job
from holdfast.kind import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from multiprocessing.connection import Connection
    from types import TracebackType

    from holdfast.engine.attempt import Attempt


class Executors:
    """As many threads as there are slots; a process is started when a kind first asks for one, and kept."""

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
        # A thread that ignores its signal cannot be ended, and must not hold up the rest.
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def run(self, attempt: Attempt, job: Job[Any], /, **arguments: object) -> object:
        if attempt.kind.work.executor == "process":
            return await self._run_in_process(attempt, job, arguments)
        return await self._in_thread(partial(attempt.kind.handler, job, **arguments))

    async def _in_thread(self, function: Callable[[], object]) -> object:
        """Run to the end, whatever happens meanwhile: the slot is taken for as long as the thread is."""
        call = partial(contextvars.copy_context().run, _caught, function)
        result, error = await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._threads, call))
        if error is not None:
            raise error
        return result

    async def _run_in_process(self, attempt: Attempt, job: Job[Any], arguments: Mapping[str, object]) -> object:
        child = await self._child()
        watch = asyncio.create_task(_kill_when_aborted(attempt, child))
        try:
            return await self._in_thread(partial(child.call, attempt.kind, job, arguments))
        except (EOFError, OSError):
            attempt.signal.raise_if_aborted()
            raise ChildDied(f"the process of the handler ended with exit code {child.exit_code}") from None
        finally:
            watch.cancel()
            if child.alive and not attempt.signal.aborted:
                self._idle.append(child)
            else:
                self._children.discard(child)
                child.stop()

    async def _child(self) -> Child:
        """Take an idle process, or start one; in a thread, for that takes a while."""
        while self._idle:
            child = self._idle.pop()
            if child.alive:
                return child
            self._children.discard(child)
            child.stop()
        child = await asyncio.get_running_loop().run_in_executor(self._threads, Child)
        self._children.add(child)
        return child


class ChildDied(Exception):  # noqa: N818 - a name says what happened
    """The process of the handler ended before the handler did."""


class Child:
    """A process that runs one handler at a time."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), name="holdfast-handler", daemon=True)
        self._process.start()
        theirs.close()

    def call(self, kind: Kind[..., Any], job: Job[Any], arguments: Mapping[str, object]) -> object:
        """Block until the handler has ended there; what it raised is raised here."""
        handler = kind.handler
        fields = {"id": job.id, "kind": job.kind, "attempt": job.attempt, "token": job.token, "chain_id": job.chain_id}
        self._pipe.send((handler.__module__, handler.__qualname__, fields | {"headers": dict(job.headers)}, arguments))
        ended, value = self._pipe.recv()
        if ended == "raised":
            raise value
        return value

    @property
    def exit_code(self) -> int | None:
        self._process.join(1)
        return self._process.exitcode

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def kill(self) -> None:
        self._process.kill()

    def stop(self) -> None:
        self._pipe.close()
        self.kill()
        self._process.join()


def _caught(function: Callable[[], object]) -> tuple[object, BaseException | None]:
    """Carry what was raised as a value: a future cannot take StopIteration, nor a coroutine GeneratorExit."""
    try:
        return function(), None
    except BaseException as exc:  # noqa: BLE001 - raised again where it is awaited
        return None, exc


async def _kill_when_aborted(attempt: Attempt, child: Child) -> None:
    await attempt.signal.wait()
    child.kill()


def _serve(pipe: Connection) -> None:
    """Run in the child: take a handler's name and its arguments, answer with what came of it."""
    while True:
        try:
            module, name, fields, arguments = pipe.recv()
        except EOFError:
            return
        try:
            found: Any = import_module(module)
            for part in name.split("."):
                found = getattr(found, part)
            handler = found.handler if isinstance(found, Kind) else found
            answer = ("returned", handler(Job(state=None, **fields), **arguments))
            pickle.dumps(answer)
        except Exception as exc:  # noqa: BLE001 - carried to the parent, which decides
            answer = ("raised", _portable(exc))
        pipe.send(answer)


def _portable(exc: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(exc))  # noqa: S301 - our own
    except Exception:  # noqa: BLE001 - an exception that cannot travel sends its name and text
        return RuntimeError(f"{type(exc).__name__}: {exc}")
    return exc
