"""Relays as the engine sees them: they stand a floor above."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from holdfast.engine.keeper import Keeper
    from holdfast.engine.runner import Budget, Counts, Tick
    from holdfast.engine.transition import Transitions


class Relaying(Protocol):
    """Reads the log of one database while its `async with` block runs."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Events handed over so far, by subscription."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def wake(self) -> None:
        """Something was published."""

    async def drain(self, budget: Budget) -> Mapping[str, int]:
        """Hand over what is there, once, without the block."""
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
        """`worker()`: the id of the worker's row, 0 while there is none. `heard()`: notifications reach us."""
        ...


class RelayOnce:
    """One pass over the log."""

    def __init__(self, relaying: Relaying) -> None:
        self._relaying = relaying

    async def tick(self, tick: Tick) -> Counts:
        return await self._relaying.drain(tick.budget)
