"""Recording steps: those of all stories of a worker that come while one statement is under way go into the next."""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING, TypeVar

from holdfast._engine.jobs.refusal import is_refusal
from holdfast._engine.link import Outage
from holdfast._logs.log import Log
from holdfast._model.errors import InvalidStep
from holdfast._store.step import open_transactions, save_steps

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence
    from typing import Any, Protocol

    from holdfast._engine.own_row import OwnRow
    from holdfast._model.errors import AbortSignal
    from holdfast._store.statement import Statement
    from holdfast._store.step import NewStep, Saved

    class RunStatement(Protocol):
        """Runs a statement on a connection of the worker."""

        def __call__(self, statement: Statement[T], /) -> Awaitable[T]: ...


T = TypeVar("T")

MOST_AT_ONCE = 200
# Seconds until a story whose row is locked is tried again; doubled each time.
BUSY_PAUSE = 0.01
LONGEST_BUSY_PAUSE = 1.0

log = Log(__name__)


class Recorder:
    """Records the steps of one worker in one database."""

    def __init__(self, run: RunStatement, row: OwnRow) -> None:
        """Create it in the worker's event loop."""
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._run = run
        self._row = row
        self._waiting: list[tuple[NewStep, asyncio.Future[Saved]]] = []
        self._writer: asyncio.Task[None] | None = None
        self._outage = Outage(log, "save_steps failed, trying again")

    @property
    def worker(self) -> int:
        """The id of the worker's row."""
        return self._row.id

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run this in the worker's event loop, and block the handler's thread meanwhile."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    async def save(self, step: NewStep, signal: AbortSignal) -> Saved:
        """Record a step, however long that takes while the attempt is not aborted. Raises InvalidStep for a refusal."""
        failures = 0
        while True:
            try:
                saved = await (self._save_with_others(step) if not failures else self._save_alone(step))
            except Exception as exc:
                if is_refusal(exc) and failures:
                    raise InvalidStep(f"step {step.at}: what it returned cannot be stored: {exc}") from exc
                signal.raise_if_aborted()
                failures += 1
                await asyncio.sleep(self._outage.failed(exc))
            else:
                self._outage.over()
                if saved.answer != "busy":
                    return saved
                await self._pause(failures, signal)
                failures += 1

    async def ask(self, make: Callable[[], Statement[T]], answer: Callable[[T], Any], signal: AbortSignal) -> T:
        """Run a statement until it is answered, and not with `busy`, while the attempt is not aborted."""
        failures = 0
        while True:
            try:
                found = await self._run(make())
            except Exception as exc:
                if is_refusal(exc):
                    raise
                signal.raise_if_aborted()
                await asyncio.sleep(self._outage.failed(exc))
            else:
                self._outage.over()
                if answer(found) != "busy":
                    return found
                await self._pause(failures, signal)
            failures += 1

    async def is_open(self, under: Sequence[str], signal: AbortSignal) -> bool:
        """Return whether one of these transactions is still open."""
        return await self.ask(lambda: open_transactions(under), bool, signal)

    async def _pause(self, failures: int, signal: AbortSignal) -> None:
        """Wait before the next try of a story whose row another transaction has locked."""
        signal.raise_if_aborted()
        await asyncio.sleep(min(BUSY_PAUSE * 2.0 ** min(failures, 10), LONGEST_BUSY_PAUSE))

    async def _save_with_others(self, step: NewStep) -> Saved:
        future: asyncio.Future[Saved] = self.loop.create_future()
        self._waiting.append((step, future))
        if self._writer is None or self._writer.done():
            # Not in the context of a handler: it writes for all of them.
            self._writer = self.loop.create_task(self._write(), context=contextvars.Context())
        return await future

    async def _save_alone(self, step: NewStep) -> Saved:
        """Record one that may have been recorded, or that made its batch fail."""
        (saved,) = await self._run(save_steps(self.worker, [step], again=True))
        return saved

    async def _write(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:MOST_AT_ONCE], self._waiting[MOST_AT_ONCE:]
            try:
                answers = await self._run(save_steps(self.worker, [step for step, _ in batch]))
            except BaseException as exc:
                error = exc if isinstance(exc, Exception) else ConnectionError("the writer of steps has ended")
                if error is not exc:  # it ends: those behind would wait for it
                    batch, self._waiting = batch + self._waiting, []
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                if error is not exc:
                    raise
            else:
                for (_, future), saved in zip(batch, answers, strict=True):
                    if not future.done():
                        future.set_result(saved)
