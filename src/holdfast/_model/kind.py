"""Kinds: handlers under their names, and the typed way to make jobs for them."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import field, make_dataclass, replace
from functools import cached_property
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    NoReturn,
    ParamSpec,
    Protocol,
    TypeVar,
    overload,
)

from pydantic import ConfigDict, TypeAdapter

from holdfast._logs.failure import Failure
from holdfast._model.call import explained, parameter_text, suggestion, type_name
from holdfast._model.codec import adapter_of, as_json_data, check_secrets, from_json, hints_of
from holdfast._model.errors import ChainFailed, InvalidJob
from holdfast._model.handle import Handle
from holdfast._model.handler import check_importable, is_async, parameters_of
from holdfast._model.limit import check_argument
from holdfast._model.new_job import Envelope, NewJob
from holdfast._model.result import Result
from holdfast._model.settings import read_retry
from holdfast._model.unique import Unique
from holdfast._model.work import check_option

if TYPE_CHECKING:
    from holdfast._model.codec import JsonCodec
    from holdfast._model.continuation import Continue
    from holdfast._model.job import Blocker, Job
    from holdfast._model.limit import Limit
    from holdfast._model.outcome import Signal
    from holdfast._model.retry import Retry
    from holdfast._model.work import Work

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)
P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
T_co = TypeVar("T_co", covariant=True)

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]
UpgradeT = TypeVar("UpgradeT", bound=Upgrade)

# The options of a job, which newcomers pass as arguments of the handler.
OPTIONS = frozenset(inspect.signature(NewJob.options).parameters) - {"self"}
# The names of methods that enqueue in other libraries.
_ELSEWHERE = frozenset(
    {"apply_async", "defer", "defer_async", "delay", "enqueue", "insert", "kiq", "kicker", "s", "send"}
)
_CONFIG = ConfigDict(extra="forbid", ser_json_bytes="base64", val_json_bytes="base64", arbitrary_types_allowed=False)


class TakesJob(Protocol[Q, T_co]):
    """A kind whose handler takes the job. It is a protocol because mypy erases a Concatenate in `self`."""

    def __call__(self, job: Job[Any], /, *args: Q.args, **kwargs: Q.kwargs) -> T_co: ...


class Kind(Generic[P, T_co]):
    """A handler under its name. `new` makes a job for it; calling the kind runs the function directly.

    P are the handler's parameters. The payload is a JSON object of them without the job: `{"invoice_id": 7}`.
    """

    def __init__(  # noqa: PLR0913 - one keyword per part of a kind
        self,
        handler: Callable[..., Any],
        envelope: Envelope,
        *,
        work: Work,
        codec: JsonCodec,
        unique: str | Unique | None = None,
        limits: tuple[Limit, ...] = (),
        tenant: str | None = None,
    ) -> None:
        self.handler = handler
        self.work = work
        self.is_async: bool = is_async(handler)
        self.codec = codec
        self._envelope = envelope
        self.takes_job: bool
        self.parameters: dict[str, inspect.Parameter]
        self.takes_job, self.parameters = parameters_of(handler)
        if work.in_process:
            check_importable(self.name, handler, is_async=self.is_async)
        self._upgrades: dict[int, Upgrade] = {}
        self._unique = unique_of(unique)
        if self._unique is not None:
            self._unique.check(self.name, self.parameters)
        self._limits = limits
        for limit in limits:
            limit.check(self.name, self.parameters)
        self._tenant = tenant_of(tenant)
        if self._tenant is not None:
            check_argument(self.name, f"tenant={tenant!r}", self._tenant, self.parameters)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @property
    def name(self) -> str:
        """The name under which its jobs are stored."""
        return self._envelope.kind

    @property
    def version(self) -> int:
        """The payload version that this handler takes."""
        return self._envelope.payload_version

    @cached_property
    def envelope(self) -> Envelope:
        """The job's options, built at first use, when the environment's limit of attempts is available."""
        return self._envelope if self.work.retry is not None else with_attempts(self._envelope)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> T_co:
        try:
            result: T_co = self.handler(*args, **kwargs)
        except TypeError as exc:
            # The only entry of the traceback is the call itself: the handler was never entered.
            if exc.__traceback__ is None or exc.__traceback__.tb_next is not None:
                raise
            raise TypeError(
                f"{self.name}: calling a kind runs its handler, and the arguments do not fit. To make a job, "
                f"write {self._example_call()}"
            ) from None
        return result

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            cure = f": to enqueue a job, write app.enqueue(conn, {self._example_call()})" if name in _ELSEWHERE else ""
            raise AttributeError(f"the kind {self.name} has no {name}{cure}", name=name, obj=self)

    # The overloads are here and not where the handler is registered: there, an Any among a handler's parameters would
    # match several of them, and mypy would infer Any for the whole kind. A handler that always returns Continue has its
    # own overload, because mypy does not infer R from a lone Continue[R].
    # Those with a job come first: the arguments of `new` are the parameters after it.
    @overload
    def new(
        self: TakesJob[Q, Coroutine[Any, Any, Continue[R] | Signal]],
        /,
        *args: Q.args,
        **kwargs: Q.kwargs,
    ) -> NewJob[R]: ...
    @overload
    def new(
        self: TakesJob[Q, Coroutine[Any, Any, R | Continue[R] | Signal]],
        /,
        *args: Q.args,
        **kwargs: Q.kwargs,
    ) -> NewJob[R]: ...
    @overload
    def new(self: TakesJob[Q, Continue[R] | Signal], /, *args: Q.args, **kwargs: Q.kwargs) -> NewJob[R]: ...
    @overload
    def new(self: TakesJob[Q, R | Continue[R] | Signal], /, *args: Q.args, **kwargs: Q.kwargs) -> NewJob[R]: ...
    @overload
    def new(
        self: Kind[P, Coroutine[Any, Any, Continue[R] | Signal]], /, *args: P.args, **kwargs: P.kwargs
    ) -> NewJob[R]: ...
    @overload
    def new(
        self: Kind[P, Coroutine[Any, Any, R | Continue[R] | Signal]], /, *args: P.args, **kwargs: P.kwargs
    ) -> NewJob[R]: ...
    @overload
    def new(self: Kind[P, Continue[R] | Signal], /, *args: P.args, **kwargs: P.kwargs) -> NewJob[R]: ...
    @overload
    def new(self: Kind[P, R | Continue[R] | Signal], /, *args: P.args, **kwargs: P.kwargs) -> NewJob[R]: ...
    def new(self, /, *args: Any, **kwargs: Any) -> NewJob[Any]:
        """Validate the handler's arguments (without the job) and return a job that can be enqueued."""
        if len(args) > len(self._positional):
            taken = len(self._positional)
            raise InvalidJob(
                f"{self.name}: {len(args)} arguments by position, and it takes {taken}: write {self._example_call()}"
            )
        given: dict[str, object] = dict(zip(self._positional, args, strict=False))
        if not given.keys().isdisjoint(kwargs):
            twice = ", ".join(sorted(given.keys() & kwargs))
            raise InvalidJob(f"{self.name}: {twice} given twice: write {self._example_call()}")
        given.update(kwargs)
        try:
            value = as_json_data(self.name, self.adapter, given, strict=False)
        except InvalidJob:
            self._check_names(given)
            raise
        return self._job(json_object(self.name, value))

    def _check_names(self, given: Mapping[str, object]) -> None:
        """Raise InvalidJob for an argument that the handler does not have, and for one that is missing."""
        for unknown in (name for name in given if name not in self.parameters):
            if unknown in OPTIONS:
                cure = f"it is an option of the job: write {self._example_call()}.options({unknown}=…)"
            else:
                cure = suggestion(unknown, self.parameters) or f"write {self._example_call()}"
            raise InvalidJob(f"{self.name}: the handler has no parameter {unknown}: {cure}")
        for name, parameter in self.parameters.items():
            if parameter.default is parameter.empty and name not in given:
                raise InvalidJob(f"{self.name}: the argument {name} is missing: write {self._example_call()}")

    def _example_call(self) -> str:
        """Return the call that makes a job, for messages: `mail.new(to, copies=…)`."""
        own = getattr(self.handler, "__name__", "kind")
        return f"{own}.new({', '.join(parameter_text(parameter) for parameter in self.parameters.values())})"

    def envelope_of(self, arguments: Mapping[str, object]) -> Envelope:
        """Return the options of a job with these JSON arguments: the kind's, and the key if they make one."""
        return self.envelope.with_keys(self._unique, self._limits, self._tenant, arguments)

    def _job(self, value: Mapping[str, object]) -> NewJob[Any]:
        """Return the job with this payload, after checking that a worker can read it."""
        payload = self.codec.encode(value, kind=self.name)
        text = self.codec.plain(payload)
        # Pydantic validates neither defaults nor the fields of an instance that it is given.
        from_json(self.name, self.adapter, text)
        check_secrets(self.name, self.adapter, text)
        return NewJob(self.envelope_of(value), payload, self.read_result, self.returns.plain, value)

    def arguments(self, payload: str, version: int = 1) -> dict[str, Any]:
        """Return the handler's keyword arguments from a stored payload; raises InvalidJob when it is not valid."""
        text = self.codec.plain(payload) if version == self.version else self._upgraded(payload, version)
        return self._as_arguments(from_json(self.name, self.adapter, text))

    def _as_arguments(self, value: object) -> dict[str, Any]:
        return vars(value)

    @overload
    def result(self: Kind[P, Coroutine[Any, Any, R | Continue[R] | Signal]], blocker: Blocker, /) -> R: ...
    @overload
    def result(self: Kind[P, R | Continue[R] | Signal], blocker: Blocker, /) -> R: ...
    def result(self, blocker: Blocker, /) -> Any:
        """Return the result of a blocker that started with this kind; raises ChainFailed when it did not complete."""
        if blocker.status != "completed":
            raise ChainFailed(blocker.chain_id, blocker.status, blocker.error_code, blocker.error)
        return self.read_result(blocker.result)

    @overload
    def handle(self: Kind[P, Coroutine[Any, Any, Continue[R] | Signal]], id: int, /) -> Handle[R]: ...
    @overload
    def handle(self: Kind[P, Coroutine[Any, Any, R | Continue[R] | Signal]], id: int, /) -> Handle[R]: ...
    @overload
    def handle(self: Kind[P, Continue[R] | Signal], id: int, /) -> Handle[R]: ...
    @overload
    def handle(self: Kind[P, R | Continue[R] | Signal], id: int, /) -> Handle[R]: ...
    def handle(self, id: int, /) -> Handle[Any]:  # noqa: A002 - the usual name
        """Return a handle for a job of this kind from its id, with which `app.wait` and `app.get_job` are typed.

        `id`: as in the handle that `enqueue` returned. It must be the first job of its chain. Nothing is looked up.
        """
        check_id(self.name, id)
        return Handle(id, id, created=False, decode=self.read_result, encode=self.returns.plain)

    def read_result(self, text: str | None) -> Any:
        """Return the result of a chain that started with this kind; InvalidJob when it is not of the annotated type."""
        return self.returns.read(self.codec.plain(text or "null"))

    @explained("upgrade")
    def upgrade(self, *, from_version: int) -> Callable[[UpgradeT], UpgradeT]:
        """Register the function that converts a payload of `from_version` to the next version."""
        if not 1 <= from_version < self.version:
            older = f"expected a number from 1 to {self.version - 1}, got {from_version}"
            first = "the kind has version 1: set version=2 in app.job first"
            raise ValueError(f"{self.name}: from_version: {older if self.version > 1 else first}")
        if from_version in self._upgrades:
            raise ValueError(f"{self.name}: version {from_version} has an upgrade already")

        def register(function: UpgradeT) -> UpgradeT:
            self._upgrades[from_version] = function
            return function

        return register

    def _upgraded(self, payload: str, version: int) -> str:
        if version > self.version:
            raise InvalidJob(f"{self.name}: payload version {version} is newer than this code's {self.version}")
        value: Any = self.codec.decode(payload)
        for step in range(version, self.version):
            if step not in self._upgrades:
                raise InvalidJob(f"{self.name}: no upgrade from payload version {step}")
            try:
                value = self._upgrades[step](value)
            except Exception as exc:
                raise InvalidJob(f"{self.name}: upgrade from payload version {step}: {Failure.of(exc).text}") from exc
        try:
            return json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as exc:
            raise InvalidJob(
                f"{self.name}: an upgrade returned a value that is not JSON-serializable ({type(exc).__name__})"
            ) from exc

    @cached_property
    def _positional(self) -> tuple[str, ...]:
        return tuple(p.name for p in self.parameters.values() if p.kind is not inspect.Parameter.KEYWORD_ONLY)

    @cached_property
    def adapter(self) -> TypeAdapter[Any]:
        """The type adapter, built at first use, when every name in the annotations exists."""
        annotated = {name: p.annotation for name, p in self.parameters.items() if p.annotation is not p.empty}
        hints = hints_of(self.name, self.handler, annotated)
        fields = [(name, hints.get(name, Any), _field(parameter)) for name, parameter in self.parameters.items()]
        arguments = make_dataclass(self.name, fields, kw_only=True, namespace={"__pydantic_config__": _CONFIG})
        return adapter_of(self.name, arguments)

    @cached_property
    def returns(self) -> Result:
        """Encodes and decodes the results of this kind."""
        return Result(self.name, self.handler, lambda hint: hint)


def unique_of(given: str | Unique | None) -> Unique | None:
    """Return the policy of a kind: text is a key."""
    unique = Unique(given) if isinstance(given, str) else given
    check_option("unique", unique, Unique, '"nightly", or Unique.by("customer_id")')
    return unique


def tenant_of(given: str | None) -> str | None:
    """Return the name of the argument by whose values the jobs of a kind take turns."""
    check_option("tenant", given, str, 'the name of an argument, such as "account_id"')
    return given


def json_object(kind: str, value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise InvalidJob(f"{kind}: the payload is not a JSON object")
    return value


def retries_of(kinds: Mapping[str, Kind[..., Any]], default: Retry) -> dict[str, Retry]:
    """Return the retry policy of each kind. `default`: for kinds that have none."""
    return {name: kind.work.retry or default for name, kind in kinds.items()}


def with_attempts(envelope: Envelope) -> Envelope:
    return replace(envelope, max_attempts=read_retry(os.environ).max_attempts)


def check_id(kind: str, given: object) -> None:
    if type(given) is not int:
        raise TypeError(f"{kind}.handle: expected the id of a job, which is a whole number, got {type_name(given)}")


def _field(parameter: inspect.Parameter) -> Any:
    if parameter.default is parameter.empty:
        return field()
    return field(default_factory=lambda: parameter.default)
