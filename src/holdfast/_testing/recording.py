"""How a test records steps: on its own connection, and with a worker that may die after one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from holdfast._engine.jobs.recorder import Recorder
from holdfast._model.errors import AbortReason

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from holdfast._engine.jobs.recorder import RunStatement
    from holdfast._engine.own_row import OwnRow
    from holdfast._model.errors import AbortSignal
    from holdfast._store.step import NewStep, Saved
    from holdfast._testing.drive import Call

T = TypeVar("T")


class Crashed(BaseException):
    """The worker of a test died here. No handler catches it."""


class StageRecorder(Recorder):
    """Records steps on the test's connection, and can let the worker die after one of them."""

    def __init__(self, run: RunStatement, row: OwnRow, call: Call) -> None:
        super().__init__(run, row)
        self._call = call
        self.crash_after: str | None = None

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        result: T = super().wait(coroutine) if self._call.wait is None else self._call.wait(coroutine)
        return result

    async def _save_with_others(self, step: NewStep) -> Saved:
        """Record one alone, in the task of its handler: asgiref finds the thread of a connection by the context."""
        return await self._save_alone(step)

    async def is_open(self, under: Sequence[str], signal: AbortSignal) -> bool:  # noqa: ARG002 - as in a worker
        """Return False: handlers share the transaction of the test, which stays open."""
        return False

    async def save(self, step: NewStep, signal: AbortSignal) -> Saved:
        saved = await super().save(step, signal)
        if step.at is not None and step.at[0] == self.crash_after:
            self.crash_after = None
            signal.abort(AbortReason.shutdown)
            raise Crashed
        return saved
