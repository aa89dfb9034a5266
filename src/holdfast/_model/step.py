"""Steps of a story: how they are named, and what their functions must be."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache, partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, get_args, get_origin, get_type_hints

from holdfast._model.call import explains
from holdfast._model.duration import MORE_THAN_ZERO, as_timedelta
from holdfast._model.errors import InvalidStep
from holdfast._model.option import KEY_LIMIT, KIND_LIMIT, check_number, check_text

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast._model.duration import Duration
    from holdfast._model.message import Receivable
    from holdfast._model.new_job import NewJob

MOST_ATTEMPTS = 100
UNKNOWN: Final = object()
"""The result type of a function that declares none."""


@explains
@dataclass(frozen=True, slots=True)
class Step:
    """The name of a step, with options: give it in the place of the name.

    >>> Step("charge", key=7, attempts=3).name
    'charge'
    """

    name: str
    """At most 200 bytes. It finds what was recorded, so it must not change while stories run."""
    _: KW_ONLY
    key: str | int | None = None
    """Tells the steps of a loop apart. Default: none."""
    attempts: int = 1
    """The number of calls before a failure reaches the handler, 1 to 100. Default: 1."""
    timeout: Duration | None = None
    """Of each call of an async function, in seconds or a timedelta. Default: none."""
    returns: Any = None
    """The type of the result, for a function that declares none. Default: the declared one."""

    def __post_init__(self) -> None:
        check_text("step", self.name, KIND_LIMIT)
        if self.key is not None:
            check_text("key", str(self.key), KEY_LIMIT)
        check_number("attempts", self.attempts, 1, MOST_ATTEMPTS)
        if self.timeout is not None:
            as_timedelta("timeout", self.timeout, least=MORE_THAN_ZERO)

    def __str__(self) -> str:
        return repr(self.name) if self.key is None else f"{self.name!r} with key {str(self.key)!r}"

    @property
    def at(self) -> tuple[str, str | None]:
        """The name and the key, by which it is found."""
        return self.name, None if self.key is None else str(self.key)


def step_of(name: str | Step) -> Step:
    return name if isinstance(name, Step) else Step(name)


class Steps(Protocol):
    """The services that a worker provides to the verbs of a story."""

    def ordinal(self, name: str) -> int: ...
    async def step(self, step: Step, fn: Callable[..., Any], call: Callable[[], Any]) -> Any: ...
    async def step_on(self, conn: Any, step: Step, fn: Callable[..., Any], call: Callable[[], Any]) -> Any: ...
    async def sleep(self, step: Step, until: Duration | datetime) -> None: ...
    async def receive(self, message: Receivable[Any], key: str | int | None, timeout: Duration | None) -> Any: ...  # noqa: ASYNC109 - see Story
    async def gather(self, step: Step, jobs: Sequence[NewJob[Any]]) -> list[Any]: ...
    def step_sync(self, step: Step, fn: Callable[..., Any], call: Callable[[], Any]) -> Any: ...
    def step_on_sync(self, conn: Any, step: Step, fn: Callable[..., Any], call: Callable[[], Any]) -> Any: ...
    def sleep_sync(self, step: Step, until: Duration | datetime) -> None: ...
    def receive_sync(self, message: Receivable[Any], key: str | int | None, timeout: Duration | None) -> Any: ...
    def gather_sync(self, step: Step, jobs: Sequence[NewJob[Any]]) -> list[Any]: ...


def returned_type(step: Step, fn: Callable[..., Any]) -> Any:
    """Return the type of a step's results. Raises InvalidStep if nothing declares it: it could not be read again."""
    hint = _declared(fn) if step.returns is None else step.returns
    if hint is UNKNOWN:
        name = getattr(fn, "__qualname__", type(fn).__qualname__)
        raise InvalidStep(
            f"step {step}: {name} declares no result type, so its result could not be read again: annotate it, or give "
            f"Step({step.name!r}, returns=…)"
        )
    return hint


def is_async(fn: Callable[..., Any]) -> bool:
    """Return whether calling the function only makes a coroutine: then it runs in the event loop."""
    while isinstance(fn, partial):
        fn = fn.func
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__)


def _declared(fn: Callable[..., Any]) -> Any:
    while isinstance(fn, partial):
        fn = fn.func
    try:
        return _declared_once(fn)
    except TypeError:  # not hashable
        return _declared_by(fn)


@lru_cache(maxsize=1024)
def _declared_once(fn: Callable[..., Any]) -> Any:
    return _declared_by(fn)


def _declared_by(fn: Callable[..., Any]) -> Any:
    if isinstance(fn, type):
        return UNKNOWN if getattr(fn, "__parameters__", ()) else fn
    inner: Any = inspect.unwrap(fn)
    inner = vars(inner).get("handler", inner) if hasattr(inner, "__dict__") else inner  # of a kind
    if not hasattr(inner, "__globals__") and not inspect.isroutine(inner):
        inner = type(inner).__call__
    annotation = getattr(inner, "__annotations__", {}).get("return", UNKNOWN)
    if annotation is UNKNOWN:
        return UNKNOWN
    # Only this one: the types of parameters may be imported for type checkers only.
    holder, module = SimpleNamespace(__annotations__={"return": annotation}), getattr(inner, "__globals__", {})
    try:
        hint = get_type_hints(holder, module, include_extras=True)["return"]
    except NameError as exc:
        if exc.name in {parameter.__name__ for parameter in getattr(inner, "__type_params__", ())}:
            return UNKNOWN
        raise InvalidStep(
            f"{inner.__qualname__}: its result type names {exc.name}, which its module does not have at run time: "
            "import it, and not only for type checkers"
        ) from exc
    except TypeError:
        return UNKNOWN
    origin = get_origin(hint)
    if origin is Coroutine:
        hint = get_args(hint)[2]
    elif origin is Awaitable:
        (hint,) = get_args(hint)
    return UNKNOWN if _is_open(hint) else hint


def _is_open(hint: Any) -> bool:
    """Return whether a type variable is anywhere in it."""
    return isinstance(hint, TypeVar) or any(_is_open(part) for part in get_args(hint))
