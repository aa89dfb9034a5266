"""Keeps the calls of async verbs that were never awaited: such an assertion passes without checking anything."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar

from holdfast._model.call import callers_place

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

Calls: TypeAlias = dict[object, str]
"""Calls with their lines."""


class HasCalls(Protocol):
    _calls: Calls


K = TypeVar("K", bound=HasCalls)
P = ParamSpec("P")
T = TypeVar("T")


def awaited(
    verb: Callable[Concatenate[K, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[K, P], Coroutine[Any, Any, T]]:
    """Decorate an async method so that its object keeps each call until it begins to run."""

    @wraps(verb)
    def call(self: K, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        this = object()
        self._calls[this] = f"{verb.__name__}() at {callers_place()}"

        @wraps(verb)
        async def run() -> T:
            __tracebackhide__ = True
            del self._calls[this]
            return await verb(self, *args, **kwargs)

        return run()

    return call
