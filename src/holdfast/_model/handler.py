"""The function that runs the jobs of a kind: what it must be, and which parameters it has."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, get_origin

from holdfast._model.job import Job

if TYPE_CHECKING:
    from collections.abc import Callable

_Parameter = inspect.Parameter


def is_async(handler: Callable[..., Any]) -> bool:
    """Return whether the handler returns a coroutine: an `async def`, or an object whose `__call__` is one."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)


def check_importable(kind: str, handler: Callable[..., Any], *, is_async: bool) -> None:
    """Raise a TypeError unless another process can import the handler by its name."""
    if is_async:
        raise TypeError(f'{kind}: executor="process" is for a plain function: write def, or leave it out')
    name = getattr(handler, "__qualname__", "")
    if not name or "<" in name:
        raise TypeError(
            f'{kind}: executor="process" imports the handler in another process, and {name or "this object"} cannot be '
            "imported by name: define it with def at the top level of a module"
        )


def _check_callable(handler: object) -> None:
    """Raise a TypeError unless it is a function that can run a job."""
    if isinstance(handler, type):
        raise TypeError(
            f"{handler.__qualname__}: a handler is a function, and this is a class: write def, or async def"
        )
    if not callable(handler):
        raise TypeError(f"{handler!r:.60}: a handler is a function: write def, or async def")
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        name = getattr(handler, "__qualname__", "handler")
        raise TypeError(f"{name}: a handler cannot yield: return the result, or enqueue a job for each part")


def parameters_of(handler: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the handler's parameters after the job; raises TypeError when it cannot be a handler."""
    _check_callable(handler)
    name = getattr(handler, "__qualname__", repr(handler))
    parameters = list(inspect.signature(handler).parameters.values())
    if not parameters or parameters[0].kind not in {_Parameter.POSITIONAL_ONLY, _Parameter.POSITIONAL_OR_KEYWORD}:
        raise TypeError(f"{name}: a handler's first parameter is the job")
    first, *rest = parameters
    annotation = first.annotation
    if (
        isinstance(annotation, type)
        and annotation is not first.empty
        and (get_origin(annotation) or annotation) is not Job
    ):
        raise TypeError(f"{name}: a handler's first parameter is the job, and {first.name} is annotated otherwise")
    for parameter in rest:
        if parameter.kind in {_Parameter.POSITIONAL_ONLY, _Parameter.VAR_POSITIONAL, _Parameter.VAR_KEYWORD}:
            raise TypeError(
                f"{name}: {str(parameter).partition(':')[0]}: the payload names every argument, so positional-only, "
                "*args and **kwargs parameters are not possible"
            )
    return {parameter.name: parameter for parameter in rest}
