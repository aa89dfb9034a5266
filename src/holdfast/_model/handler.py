"""The function that runs the jobs of a kind: what it must be, and which parameters it has."""

from __future__ import annotations

import inspect
import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, get_origin, get_type_hints

from holdfast._model.job import Job

if TYPE_CHECKING:
    from collections.abc import Callable

_Parameter = inspect.Parameter
_BY_POSITION = (_Parameter.POSITIONAL_ONLY, _Parameter.POSITIONAL_OR_KEYWORD)
_NAMES_JOB = re.compile(r"(?:\w+\.)*Job(?:\[|$)")


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


def parameters_of(handler: Callable[..., Any]) -> tuple[bool, dict[str, inspect.Parameter]]:
    """Return whether a handler takes the job, and its other parameters; raises TypeError if it cannot be a handler."""
    _check_callable(handler)
    name = getattr(handler, "__qualname__", repr(handler))
    rest = list(inspect.signature(handler).parameters.values())
    takes_job = bool(rest) and rest[0].kind in _BY_POSITION and _is_job(handler, rest[0])
    if takes_job:
        del rest[0]
    for parameter in rest:
        if parameter.kind in {_Parameter.POSITIONAL_ONLY, _Parameter.VAR_POSITIONAL, _Parameter.VAR_KEYWORD}:
            raise TypeError(
                f"{name}: {str(parameter).partition(':')[0]}: the payload names every argument: write a named "
                "parameter, such as a list or a dict, not a positional-only one, *args or **kwargs"
            )
        if parameter.name == "job" and _is_job(handler, parameter):
            raise TypeError(f"{name}: the job is the first parameter of a handler, by position: write (job, …)")
    return takes_job, {parameter.name: parameter for parameter in rest}


def _is_job(handler: Callable[..., Any], parameter: inspect.Parameter) -> bool:
    """Return whether a parameter receives the job: it is annotated `Job`, or named `job` and its type is not known."""
    hint = parameter.annotation
    if isinstance(hint, str):
        module = getattr(inspect.unwrap(handler), "__globals__", {})
        try:
            hint = get_type_hints(SimpleNamespace(__annotations__={"hint": hint}), module)["hint"]
        except Exception:  # noqa: BLE001 - a name that exists for type checkers only, or later
            return parameter.name == "job" or _NAMES_JOB.match(hint) is not None
    if hint in {parameter.empty, Any, object}:
        return parameter.name == "job"
    return (get_origin(hint) or hint) is Job
