"""Reads the steps of a handler from its source, without running it."""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast._engine.jobs.step_results import StepResult
from holdfast._model.errors import HoldfastError
from holdfast._model.kind import Kind
from holdfast._model.message import Message
from holdfast._model.step import Step, returned_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# The places of a step's name and function among the arguments of each verb.
_VERBS = {"step": (0, 1), "step_on": (1, 2), "sleep": (0, None), "receive": (0, None), "gather": (0, None)}
_UNKNOWN = object()


@dataclass(frozen=True, slots=True)
class SourceStep:
    """A step as the source names it."""

    verb: str
    read: Callable[[str], object] | None = None
    """Decodes its result from JSON text; None: its type is not known."""


@dataclass(slots=True)
class StorySource:
    """The steps that a handler's source names."""

    steps: dict[str, list[SourceStep]] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)
    """Calls whose step is computed, with their lines."""


def story_source(kind: Kind[..., Any]) -> StorySource:
    """Return the steps of a handler, and of the functions that it passes its job to."""
    found = StorySource()
    if kind.takes_job:
        handler = inspect.unwrap(kind.handler)
        _read(handler, next(iter(inspect.signature(handler).parameters)), kind, found, set())
    return found


def _read(function: Callable[..., Any], job: str, kind: Kind[..., Any], found: StorySource, seen: set[object]) -> None:
    """Read one function, in which the job has this name."""
    if (function, job) in seen:
        return
    seen.add((function, job))
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        found.unreadable.append(f"{getattr(function, '__qualname__', function)} has no source")
        return
    scope = {**vars(builtins), **getattr(function, "__globals__", {}), **inspect.getclosurevars(function).nonlocals}
    first = function.__code__.co_firstlineno - 1
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        verb = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if verb in _VERBS and ast.unparse(call.func.value) in {job, f"{job}.sync"}:  # type: ignore[attr-defined]
            if not _add(call, verb, scope, kind, found):
                found.unreadable.append(f"line {first + call.lineno}: {ast.unparse(call)[:60]}")
            continue
        for name in _passed(call, job, _value(call.func, scope)):
            if name is None:
                found.unreadable.append(f"line {first + call.lineno}: {ast.unparse(call)[:60]}")
            else:
                _read(inspect.unwrap(_value(call.func, scope)), name, kind, found, seen)


def _passed(call: ast.Call, job: str, function: object) -> Iterator[str | None]:
    """Yield the name that a called function has for the job, if it gets it; None: not known."""
    given = [*enumerate(call.args), *((keyword.arg, keyword.value) for keyword in call.keywords)]
    for place, value in given:
        if not isinstance(value, ast.Name) or value.id != job:
            continue
        if not inspect.isfunction(function):
            yield None
        elif isinstance(place, int):
            names = [*inspect.signature(inspect.unwrap(function)).parameters]
            yield names[place] if place < len(names) else None
        else:
            yield place


def _add(call: ast.Call, verb: str, scope: dict[str, Any], kind: Kind[..., Any], found: StorySource) -> bool:
    """Add the step of this call; return whether its name could be read."""
    place, of = _VERBS[verb]
    if len(call.args) <= place or isinstance(call.args[place], ast.Starred):
        return False
    given = call.args[place]
    name: Any
    returns: Any = _UNKNOWN
    if isinstance(given, ast.Call) and _value(given.func, scope) is Step:
        returns = next((_value(k.value, scope) for k in given.keywords if k.arg == "returns"), _UNKNOWN)
        named = [*given.args[:1], *(k.value for k in given.keywords if k.arg == "name")]
        name = _value(named[0], scope) if named else _UNKNOWN
    else:
        name = _value(given, scope)
    read: Callable[[str], object] | None = None
    if isinstance(name, Message):
        name, read = name.name, name.decode
    elif isinstance(name, Step):
        name, returns = name.name, _UNKNOWN if name.returns is None else name.returns
    if not isinstance(name, str):
        return False
    if verb == "gather":
        read = _read_child(call, scope)
    elif of is not None and len(call.args) > of:
        read = _read_result(name, returns, _value(call.args[of], scope), kind)
    found.steps.setdefault(name, []).append(SourceStep(verb, read))
    return True


def _read_result(name: str, returns: Any, function: Any, kind: Kind[..., Any]) -> Callable[[str], object] | None:
    if returns is _UNKNOWN:
        if not callable(function):
            return None
        try:
            returns = returned_type(Step(name), function)
        except HoldfastError:
            return None
    result = StepResult(name, returns)
    return lambda text: result.read(kind.codec.plain(text))


def _read_child(call: ast.Call, scope: dict[str, Any]) -> Callable[[str], object] | None:
    """Return what decodes the results of the gathered jobs, if all are of one kind."""
    made = [
        _value(node.func.value, scope)
        for argument in call.args[1:]
        for node in ast.walk(argument)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "new"
    ]
    return made[0].read_result if made and isinstance(made[0], Kind) and all(one is made[0] for one in made) else None


def _value(node: ast.expr, scope: dict[str, Any]) -> Any:
    """Return the value of a constant or of a name, which nothing is run for."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return scope.get(node.id, _UNKNOWN)
    if isinstance(node, ast.Attribute):
        owner = _value(node.value, scope)
        return _UNKNOWN if owner is _UNKNOWN else inspect.getattr_static(owner, node.attr, _UNKNOWN)
    return _UNKNOWN
