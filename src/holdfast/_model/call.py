"""Calls of the public API: where the caller wrote them, which of their arguments do not fit, and which are refused."""

from __future__ import annotations

import asyncio
import difflib
import inspect
import os
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast._model.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import FrameType

C = TypeVar("C", bound=Callable[..., Any])
T = TypeVar("T")

_Parameter = inspect.Parameter
_BY_POSITION = (_Parameter.POSITIONAL_ONLY, _Parameter.POSITIONAL_OR_KEYWORD)
_PACKAGE = __name__.partition(".")[0]

IMPORTING = "holdfast-importing"
"""The name of a process for handlers until it has imported the application."""


def explained(name: str, **hints: str) -> Callable[[C], C]:
    """Decorate a public function so that a call with wrong arguments names the right ones.

    `name`: of the function as users write it, e.g. `app.job`. `hints`: by keyword that it does not take, the advice.
    """

    def decorate(function: C) -> C:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except TypeError as exc:
                # The only entry of the traceback is the call itself: the function was never entered.
                if exc.__traceback__ is None or exc.__traceback__.tb_next is not None:
                    raise
            raise TypeError(misfit(name, function, args[1:], kwargs, hints))

        @wraps(function)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            try:
                return await function(*args, **kwargs)
            except TypeError as exc:
                if exc.__traceback__ is None or exc.__traceback__.tb_next is not None:
                    raise
            raise TypeError(misfit(name, function, args[1:], kwargs, hints))

        return call_async if inspect.iscoroutinefunction(function) else call  # type: ignore[return-value]

    return decorate


def explains(cls: type[T]) -> type[T]:
    """Decorate a public class so that wrong arguments of its constructor name the right ones."""
    cls.__init__ = explained(cls.__name__)(cls.__init__)  # type: ignore[method-assign]
    return cls


def explained_methods(owner: str, hints: Mapping[str, str] | None = None) -> Callable[[type[T]], type[T]]:
    """Decorate a public class so that wrong arguments of its public methods name the right ones.

    `owner`: of the methods as users write it, e.g. `app`. `hints`: see `explained`. Default: none.
    """

    def decorate(cls: type[T]) -> type[T]:
        for name, method in list(vars(cls).items()):
            if inspect.isfunction(method) and not name.startswith("_"):
                setattr(cls, name, explained(f"{owner}.{name}", **(hints or {}))(method))
        return cls

    return decorate


def misfit(
    name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], hints: Mapping[str, str]
) -> str:
    """Return what is wrong with the arguments of a call. The function's first parameter, `self`, is not counted."""
    _, *parameters = inspect.signature(function).parameters.values()
    positional = [parameter.name for parameter in parameters if parameter.kind in _BY_POSITION]
    known = [parameter.name for parameter in parameters]
    for unknown in (given for given in kwargs if given not in known):
        advice = hints.get(unknown) or suggestion(unknown, known) or f"it takes {', '.join(known) or 'no arguments'}"
        return f"{name}: there is no parameter {unknown}: {advice}"
    cure = f"write {name}({', '.join(map(parameter_text, parameters))})"
    if len(args) > len(positional) and not any(parameter.kind is _Parameter.VAR_POSITIONAL for parameter in parameters):
        count = "1 argument" if len(args) == 1 else f"{len(args)} arguments"
        return f"{name}: {count} by position, and it takes {len(positional)}: {cure}"
    if twice := [given for given in positional[: len(args)] if given in kwargs]:
        return f"{name}: {twice[0]} is given twice: {cure}"
    missing = [
        parameter.name
        for parameter in parameters[len(args) :]
        if parameter.default is parameter.empty and parameter.name not in kwargs and not _is_rest(parameter)
    ]
    return f"{name}: the argument {', '.join(missing)} is missing: {cure}"


def parameter_text(parameter: inspect.Parameter) -> str:
    """Return a parameter as it is written in a call: `to`, `copies=…`, `*topics`."""
    if _is_rest(parameter):
        return str(parameter).partition(":")[0]
    required = parameter.default is parameter.empty
    if parameter.kind in _BY_POSITION and required:
        return parameter.name
    return f"{parameter.name}=…"


def type_name(value: object) -> str:
    """Return the name of a value's type for a message; `None` for None."""
    return "None" if value is None else type(value).__name__


def suggestion(name: str, known: Iterable[str], *, likeness: float = 0.6) -> str:
    """Return `did you mean …?` with the nearest known name, or nothing.

    `likeness`: the least one, from 0 to 1. Default: 0.6.

    >>> suggestion("que", ["queue", "retry"])
    'did you mean queue?'
    """
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=likeness)
    return f"did you mean {close[0]}?" if close else ""


def in_event_loop() -> bool:
    """Return whether an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def refuse_in_child(verb: str) -> None:
    """Raise a HoldfastError while a child imports the application: what a module does there, every child would do."""
    multiprocessing = sys.modules.get("multiprocessing")
    if multiprocessing is not None and multiprocessing.current_process().name == IMPORTING:
        raise HoldfastError(
            f"{verb}: this module is imported in a process for handlers, and would do again what the worker's program "
            'does: put what runs under `if __name__ == "__main__":`'
        )


def callers_frame() -> FrameType | None:
    """Return the innermost frame of the application: the first one outside of this package."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - documented, and much faster than inspect.stack
    while frame is not None and is_of_package(frame):
        frame = frame.f_back
    return frame


def is_of_package(frame: FrameType) -> bool:
    """Return whether a frame runs code of this package, also code without a file, as a dataclass's `__init__`."""
    return str(frame.f_globals.get("__name__")).partition(".")[0] == _PACKAGE


def callers_place() -> str:
    """Return the line of the application that made this call, such as `shop/jobs.py line 12`."""
    frame = callers_frame()
    return "an unknown line" if frame is None else shown_place(frame.f_code.co_filename, frame.f_lineno)


def shown_place(filename: str, line: int) -> str:
    """Return a file and a line for a message; a file below the working directory without the path to it."""
    path, here = Path(filename), Path.cwd()
    return f"{os.path.relpath(path, here) if path.is_relative_to(here) else filename} line {line}"


def _is_rest(parameter: inspect.Parameter) -> bool:
    return parameter.kind in {_Parameter.VAR_POSITIONAL, _Parameter.VAR_KEYWORD}
