"""Batch kinds: a handler that takes several jobs in one call, each with its arguments."""

from __future__ import annotations

import inspect
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from types import UnionType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Union, get_args, get_origin, overload

from holdfast._model.codec import adapter_of, as_json_data, hints_of
from holdfast._model.errors import InvalidJob
from holdfast._model.handle import Handle
from holdfast._model.handler import is_async
from holdfast._model.kind import Kind, json_object, tenant_of, unique_of
from holdfast._model.result import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from pydantic import TypeAdapter

    from holdfast._model.codec import JsonCodec
    from holdfast._model.continuation import Continue
    from holdfast._model.job import Job
    from holdfast._model.limit import Limit
    from holdfast._model.new_job import Envelope, NewJob
    from holdfast._model.outcome import Signal
    from holdfast._model.unique import Unique
    from holdfast._model.work import Work

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)
R = TypeVar("R")
T_co = TypeVar("T_co", covariant=True)


# No slots, for the same reason as NewJob.
@dataclass(frozen=True)
class Item(Generic[A_co]):
    """One job of a batch, with its arguments; a batch handler receives a list of them."""

    job: Job[Any]
    args: A_co


class BatchKind(Kind[[list[Item[A]]], T_co]):
    """A batch handler under its name: it takes `list[Item[A]]`, A being a pydantic model, dataclass or TypedDict."""

    def __init__(  # noqa: PLR0913 - one keyword per part of a kind
        self,
        handler: Callable[[list[Item[A]]], T_co],
        envelope: Envelope,
        *,
        work: Work,
        codec: JsonCodec,
        unique: str | Unique | None = None,
        limits: tuple[Limit, ...] = (),
        tenant: str | None = None,
    ) -> None:
        super().__init__(_alone, envelope, work=work, codec=codec)
        # The names in it are those of a job's arguments, which are compared when a job is made.
        self._unique = unique_of(unique)
        self._limits = limits
        self._tenant = tenant_of(tenant)
        self.handler = handler
        self.is_async: bool = is_async(handler)
        _check(self.name, handler)

    # The arguments of `new` are those of one job; the handler takes many.
    @overload  # type: ignore[override]
    def new(self: BatchKind[A, Coroutine[Any, Any, None]], args: A, /) -> NewJob[None]: ...
    @overload
    def new(self: BatchKind[A, Coroutine[Any, Any, Sequence[R | Continue[R] | Signal]]], args: A, /) -> NewJob[R]: ...
    @overload
    def new(self: BatchKind[A, None], args: A, /) -> NewJob[None]: ...
    @overload
    def new(self: BatchKind[A, Sequence[R | Continue[R] | Signal]], args: A, /) -> NewJob[R]: ...
    def new(self, args: A, /) -> NewJob[Any]:
        """Validate the arguments of one job and return a job that can be enqueued."""
        value = as_json_data(self.name, self.adapter, args, strict=False)
        return self._job(json_object(self.name, value))

    @overload
    def handle(self: BatchKind[A, Coroutine[Any, Any, None]], id: int, /) -> Handle[None]: ...
    @overload
    def handle(
        self: BatchKind[A, Coroutine[Any, Any, Sequence[R | Continue[R] | Signal]]], id: int, /
    ) -> Handle[R]: ...
    @overload
    def handle(self: BatchKind[A, None], id: int, /) -> Handle[None]: ...
    @overload
    def handle(self: BatchKind[A, Sequence[R | Continue[R] | Signal]], id: int, /) -> Handle[R]: ...
    def handle(self, id: int, /) -> Handle[Any]:  # noqa: A002 - the usual name
        """Return a handle for a job of this kind from its id. See `Kind.handle`."""
        return Handle(id, id, created=False, decode=self.read_result, encode=self.returns.plain)

    def _as_arguments(self, value: object) -> dict[str, Any]:
        return {"args": value}

    @cached_property
    def adapter(self) -> TypeAdapter[Any]:
        """The type adapter, built at first use, when every name in the annotations exists."""
        return adapter_of(self.name, _arguments_of(self.name, self.handler))

    @cached_property
    def returns(self) -> Result:
        return Result(self.name, self.handler, _each)


def _each(hint: Any) -> Any:
    """Return the type of one job's result from the type of a batch's results."""
    members = get_args(hint) if get_origin(hint) in {Union, UnionType} else (hint,)
    each = [get_args(member)[0] for member in members if get_args(member)]
    return Union[tuple(each)] if each else type(None)  # noqa: UP007 - built at run time


def _alone(job: Job[Any]) -> None:
    """Replace the handler while the kind is constructed, because a batch handler has other parameters."""


def _check(kind: str, handler: Callable[..., Any]) -> None:
    parameters = list(inspect.signature(handler).parameters.values())
    if len(parameters) != 1 or parameters[0].annotation is inspect.Parameter.empty:
        raise _misshapen(kind)
    # A name that does not exist yet is resolved when the first job is made.
    with suppress(NameError, AttributeError, InvalidJob):
        _arguments_of(kind, handler)


def _arguments_of(kind: str, handler: Callable[..., Any]) -> Any:
    """Return the A of `list[Item[A]]`."""
    [parameter] = inspect.signature(handler).parameters.values()
    [hint] = hints_of(kind, handler, {parameter.name: parameter.annotation}).values()
    match get_args(hint):
        case [item] if get_origin(item) is Item:
            [arguments] = get_args(item)
            return arguments
    raise _misshapen(kind)


def _misshapen(kind: str) -> TypeError:
    return TypeError(
        f"{kind}: a batch handler has one parameter, a list of items: write (items: list[Item[Model]]), where Model is "
        "the type of its arguments"
    )
