"""Batches: many jobs in one call of their handler, each with its own outcome."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from holdfast._logs import log as logs
from holdfast._logs.trace import carry_trace, trace_in
from holdfast._model.errors import AbortReason, HoldfastError, NotCommitted
from holdfast._model.kind import Item

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast._engine.attempt import Attempt
    from holdfast._engine.jobs.handlers import Handlers
    from holdfast._model.job import Outcome

# A handler that finishes in spite of these has done its work.
_NO_MATTER = frozenset({None, AbortReason.shutdown})


class Batches:
    """Runs the handlers of batch kinds."""

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers

    async def outcomes(self, attempts: Sequence[Attempt]) -> list[Outcome | None]:
        """Run the handler once for all jobs that can run, and return the outcome of each. None: the claim is lost."""
        if (spans := self._handlers.spans) is None:
            return await self._outcomes(attempts)
        with spans.attempts(self._handlers.worker, attempts) as ended:
            outcomes = await self._outcomes(attempts)
            ended(outcomes)
        return outcomes

    async def _outcomes(self, attempts: Sequence[Attempt]) -> list[Outcome | None]:
        early: dict[Attempt, Outcome | None] = {}
        items = {attempt: item for attempt in attempts if (item := self._item(attempt, early)) is not None}
        if items:
            early |= await self._run(items)
        return [early[attempt] for attempt in attempts]

    def _item(self, attempt: Attempt, early: dict[Attempt, Outcome | None]) -> Item[object] | None:
        """Return the item for the handler. None: the job does not reach the handler, and `early` has its outcome."""
        claimed, handlers = attempt.claimed, self._handlers
        if attempt.signal.aborted:
            early[attempt] = handlers.aborted(attempt)
        elif claimed.expired or claimed.cancelled or claimed.blocker_failed:
            early[attempt] = handlers.called_off(attempt)
        else:
            try:
                arguments = attempt.kind.arguments(claimed.payload or "{}", claimed.payload_version)
            except BaseException as exc:  # noqa: BLE001 - a validator of the application may raise anything
                early[attempt] = handlers.misfit(attempt, exc)
            else:
                return Item(handlers.job(attempt), arguments["args"])
        return None

    async def _run(self, items: Mapping[Attempt, Item[object]]) -> dict[Attempt, Outcome | None]:
        first, *_ = items
        fields = {"kind": first.claimed.kind, "worker": self._handlers.worker}
        if self._handlers.spans is not None:
            self._handlers.carry({}, fields)
        logs.context.set(fields)
        try:
            results = await self._handlers.called(
                first, items[first].job, partial(first.kind.handler, [*items.values()])
            )
            endings = _endings(results, len(items), first.claimed.kind)
        except BaseException as exc:  # noqa: BLE001 - anything a handler raises is an outcome, also SystemExit
            return {attempt: self._ended(attempt, exc) for attempt in items}
        return {attempt: self._ended(attempt, ending) for attempt, ending in zip(items, endings, strict=True)}

    def _ended(self, attempt: Attempt, ending: object) -> Outcome | None:
        handlers = self._handlers
        # The next job in a chain belongs to the trace of its own predecessor.
        carry_trace(trace_in(attempt.claimed.read_headers()))
        if isinstance(ending, BaseException):
            return handlers.aborted(attempt) if attempt.signal.aborted else handlers.raised(attempt, ending)
        if attempt.completed:
            return handlers.raised(attempt, NotCommitted())
        if attempt.signal.reason not in _NO_MATTER:
            return handlers.aborted(attempt)
        return handlers.returned(attempt, ending)


def _endings(results: object, count: int, kind: str) -> Sequence[object]:
    if results is None:
        return [None] * count
    if not isinstance(results, list | tuple) or len(results) != count:
        said = len(results) if isinstance(results, list | tuple) else type(results).__name__
        raise HoldfastError(f"{kind}: a batch of {count} jobs ends with a list of {count}, or None; this was {said}")
    return results
