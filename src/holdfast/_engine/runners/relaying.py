"""The interface of relays to the engine: they are on a higher layer."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from holdfast._engine.keeper import Keeper
    from holdfast._engine.report.transition import Transitions
    from holdfast._engine.runners.runner import Budget, Counts, Tick


class Relaying(Protocol):
    """Reads the event log of one database while its `async with` block runs."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Events delivered so far, by subscription."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def wake(self) -> None:
        """Look now: an event was published."""

    async def drain(self, budget: Budget) -> Mapping[str, int]:
        """Deliver the available events once, without the block."""
        ...


class MakeRelaying(Protocol):
    def __call__(
        self,
        url: str,
        *,
        worker: Callable[[], int],
        heard: Callable[[], bool],
        transitions: Transitions,
        keeper: Keeper | None = None,
    ) -> Relaying:
        """`worker()`: the id of the worker's row, or 0. `heard()`: whether notifications arrive."""
        ...


class RelayOnce:
    """Makes one pass over the event log."""

    def __init__(self, relaying: Relaying) -> None:
        self._relaying = relaying

    async def tick(self, tick: Tick) -> Counts:
        before = Counter(self._relaying.counts)
        try:
            return await self._relaying.drain(tick.budget)
        finally:
            tick.counts.update(Counter(self._relaying.counts) - before)
