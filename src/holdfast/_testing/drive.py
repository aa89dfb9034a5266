"""Runs async work behind a sync call, with an event loop in a thread of its own.

Plain functions run in the caller's thread: a test's transaction often belongs to its thread, as with Django's
connections and scoped sessions. Also, a handler may start an event loop, as in a worker, because none runs there.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call:
    """Runs a plain function in the right thread and returns its result."""

    run: Callable[[Callable[[], Any]], Awaitable[Any]]
    wait: Callable[[Coroutine[Any, Any, Any]], Any] | None = None
    """Runs a coroutine in the event loop while such a function waits. Default: as in a worker."""

    def __call__(self, function: Callable[[], Any]) -> Awaitable[Any]:
        return self.run(function)


def drive(work: Callable[[Call], Coroutine[Any, Any, T]], *, of: object) -> T:
    """Run `work(call)` in an event loop. `of` is the connection it uses."""
    return _drive_django(work) if _is_django(of) else _drive(work)


def at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits."""
    __tracebackhide__ = True
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise RuntimeError("a coroutine waited where nothing can be waited for")


def _drive_django(work: Callable[[Call], Coroutine[Any, Any, T]]) -> T:
    """Leave the threads to asgiref, so that Django's async methods also reach the caller's thread."""
    from asgiref.sync import async_to_sync, sync_to_async

    async def call(function: Callable[[], Any]) -> Any:
        result, error = await sync_to_async(caught, thread_sensitive=True)(function)
        if error is not None:
            raise error
        return result

    def wait(coroutine: Coroutine[Any, Any, Any]) -> Any:
        async def waited() -> Any:
            return await coroutine

        return async_to_sync(waited)()

    async def begin() -> T:
        return await work(Call(call, wait))

    return async_to_sync(begin)()


def _drive(work: Callable[[Call], Coroutine[Any, Any, T]]) -> T:
    calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
    ended: list[tuple[Any, BaseException | None]] = []
    at_work: list[asyncio.Task[Any]] = []
    given_up = threading.Event()

    async def call(function: Callable[[], Any]) -> Any:
        if given_up.is_set():
            raise asyncio.CancelledError
        loop = asyncio.get_running_loop()
        future: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
        context = copy_context()

        def run() -> None:
            outcome = caught(partial(context.run, function))
            if isinstance(outcome[1], KeyboardInterrupt):
                raise outcome[1]
            with suppress(RuntimeError):  # the loop has ended without waiting for it
                loop.call_soon_threadsafe(_settle, future, outcome)

        calls.put(run)
        result, error = await future
        if error is not None:
            raise error
        return result

    def wait(coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run the statements of the coroutine here, in the thread of the handler that waits for it."""
        future = asyncio.run_coroutine_threadsafe(coroutine, at_work[0].get_loop())
        future.add_done_callback(lambda _: calls.put(nothing))
        while not future.done():
            (calls.get() or nothing)()
        return future.result()

    async def begin() -> T:
        at_work.extend(asyncio.all_tasks())
        return await work(Call(call, wait))

    def nothing() -> None: ...

    def loop() -> None:
        ended.append(caught(lambda: asyncio.run(begin())))
        calls.put(None)

    threading.Thread(target=copy_context().run, args=(loop,), name="holdfast-testing", daemon=True).start()
    try:
        while (run := calls.get()) is not None:
            run()
    except KeyboardInterrupt:  # cancel the loop's tasks, but do not wait for them
        given_up.set()
        with suppress(RuntimeError):  # the loop has just ended
            for task in at_work:
                task.get_loop().call_soon_threadsafe(task.cancel)
        raise
    result, error = ended[0]
    if error is not None:
        raise error
    value: T = result
    return value


def _settle(future: asyncio.Future[T], outcome: T) -> None:
    if not future.done():
        future.set_result(outcome)


def caught(function: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """Return the result and the exception as values, to pass them between threads."""
    try:
        return function(), None
    except BaseException as exc:  # noqa: BLE001 - raised again where it is awaited
        return None, exc


def _is_django(conn: object) -> bool:
    return any(cls.__module__.partition(".")[0] == "django" for cls in type(conn).__mro__)
