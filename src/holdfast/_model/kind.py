"""Kinds: handlers under their names, and the typed way to make jobs for them."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, make_dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    ParamSpec,
    TypeVar,
    get_args,
    get_origin,
    overload,
)

from pydantic import ConfigDict, TypeAdapter, ValidationError

from holdfast._logs.failure import Failure
from holdfast._model.errors import ChainFailed, InvalidJob
from holdfast._model.job import Blocker, Job
from holdfast._model.lease import Lease
from holdfast._model.new_job import Envelope, NewJob
from holdfast._model.payload import adapter_of, check_secrets, dump_typed, from_json, hints_of, invalid, to_json
from holdfast._model.result import Result
from holdfast._model.retry import Retry
from holdfast._model.settings import read_retry

if TYPE_CHECKING:
    from holdfast._model.codec import JsonCodec
    from holdfast._model.new_job import Continue
    from holdfast._model.outcome import Signal

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")
T_co = TypeVar("T_co", covariant=True)

Executor = Literal["thread", "process"]
Upgrade = Callable[[dict[str, Any]], dict[str, Any]]
UpgradeT = TypeVar("UpgradeT", bound=Upgrade)

MOST_IN_A_BATCH = 10_000
# The default `max_runtime`, in leases.
LEASES_OF_A_RUN = 3
_Parameter = inspect.Parameter
_CONFIG = ConfigDict(extra="forbid", ser_json_bytes="base64", val_json_bytes="base64", arbitrary_types_allowed=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """How the jobs of a kind are run."""

    retry: Retry | None = None
    """Default: the worker's, with OUTBOX_MAX_ATTEMPTS of the process that makes the job."""
    lease: Lease | None = None
    """Default: the worker's."""
    max_runtime: timedelta | None = None
    """Default: three times the lease."""
    executor: Executor = "thread"
    """Where a plain function runs. Default: in a thread of the worker."""
    batch: int | None = None
    """The most jobs that a batch handler takes in one call. Default: None, it is not a batch handler."""

    def __post_init__(self) -> None:
        check_option("retry", self.retry, Retry, "Retry(max_attempts=5)")
        check_option("lease", self.lease, Lease, "Lease(seconds=30)")
        check_option("max_runtime", self.max_runtime, timedelta, "timedelta(minutes=10)")
        if self.executor not in get_args(Executor):
            raise ValueError(f"executor: one of {', '.join(get_args(Executor))}")
        if self.batch is not None and (type(self.batch) is not int or not 1 <= self.batch <= MOST_IN_A_BATCH):
            raise ValueError(f"a batch is of 1 to {MOST_IN_A_BATCH} jobs")
        if self.max_runtime is not None and self.max_runtime <= timedelta(0):
            raise ValueError("max_runtime must be longer than nothing")

    def limit(self, lease: Lease) -> dict[str, int]:
        """Return the setting that limits the handler's time, in milliseconds. `lease`: used if the kind has none."""
        if self.max_runtime is None:
            return {"lease": (self.lease or lease).milliseconds}
        return {"max_runtime": round(self.max_runtime.total_seconds() * 1000)}

    def longest(self, lease: Lease) -> float:
        """Return how many seconds a handler may run if its job has this lease."""
        return LEASES_OF_A_RUN * lease.seconds if self.max_runtime is None else self.max_runtime.total_seconds()


def is_async(handler: Callable[..., Any]) -> bool:
    """Return whether the handler returns a coroutine: an `async def`, or an object whose `__call__` is one."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)


class Kind(Generic[P, T_co]):
    """A handler under its name. `new` makes a job for it; calling the kind runs the function directly.

    The payload is a JSON object of the handler's parameters after the job: `{"invoice_id": 7, "to": "a@b.c"}`.
    """

    def __init__(self, handler: Callable[..., Any], envelope: Envelope, *, work: Work, codec: JsonCodec) -> None:
        self.handler = handler
        self.work = work
        self.is_async = is_async(handler)
        self.codec = codec
        self._envelope = envelope
        self.parameters = _parameters(handler)
        if self.is_async and work.executor == "process":
            raise TypeError(f'{self.name}: executor="process" is for a plain function: write def, or leave it out')
        self._upgrades: dict[int, Upgrade] = {}

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
        return self._envelope if self.work.retry is not None else _with_attempts(self._envelope)

    def __call__(self, job: Job[Any], /, *args: P.args, **kwargs: P.kwargs) -> T_co:
        result: T_co = self.handler(job, *args, **kwargs)
        return result

    # The overloads are here and not where the handler is registered: there, an Any among a handler's parameters would
    # match several of them, and mypy would infer Any for the whole kind. A handler that always returns Continue has its
    # own overload, because mypy does not infer R from a lone Continue[R].
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
    def new(self, /, *args: P.args, **kwargs: P.kwargs) -> NewJob[Any]:
        """Validate the handler's arguments (without the job) and return a job that can be enqueued."""
        if len(args) > len(self._positional):
            raise InvalidJob(f"{self.name}: {len(args)} arguments by position, and it takes {len(self._positional)}")
        given: dict[str, object] = dict(zip(self._positional, args, strict=False))
        if not given.keys().isdisjoint(kwargs):
            raise InvalidJob(f"{self.name}: {', '.join(sorted(given.keys() & kwargs))} given twice")
        given.update(kwargs)
        try:
            value = self._adapter.dump_python(
                self._adapter.validate_python(given), mode="json", by_alias=True, warnings=False
            )
        except ValueError as exc:
            raise invalid(self.name, exc) from None
        return self._job(value)

    def _job(self, value: object) -> NewJob[Any]:
        """Return the job with this payload, after checking that a worker can read it."""
        payload = self.codec.encode(value, kind=self.name)
        text = self.codec.plain(payload)
        # Pydantic validates neither defaults nor the fields of an instance that it is given.
        self._read(text)
        check_secrets(self.name, self._adapter, text)
        return NewJob(self.envelope, payload, self.read_result, self.returns.plain)

    def arguments(self, payload: str, version: int = 1) -> dict[str, Any]:
        """Return the handler's keyword arguments from a stored payload; raises InvalidJob when it is not valid."""
        text = self.codec.plain(payload) if version == self.version else self._upgraded(payload, version)
        return self._as_arguments(self._read(text))

    def _read(self, text: str) -> object:
        try:
            return from_json(self._adapter, text)
        except ValidationError as exc:
            raise invalid(self.name, exc) from None

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

    def read_result(self, text: str | None) -> Any:
        """Return the result of a chain that started with this kind; InvalidJob when it is not of the annotated type."""
        return self.returns.read(self.codec.plain(text or "null"))

    def upgrade(self, *, from_version: int) -> Callable[[UpgradeT], UpgradeT]:
        """Register the function that converts a payload of `from_version` to the next version."""
        if not 1 <= from_version < self.version:
            raise ValueError(
                f"{self.name}: from_version must be from 1 to {self.version - 1}, as its version is {self.version}"
            )
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
        return to_json(self.name, value)

    @cached_property
    def _positional(self) -> tuple[str, ...]:
        return tuple(p.name for p in self.parameters.values() if p.kind is not inspect.Parameter.KEYWORD_ONLY)

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
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


class DeclaredKind(Generic[A]):
    """A kind whose handler runs in another service: its jobs can be enqueued here, but not run."""

    def __init__(self, model: type[A], envelope: Envelope, *, codec: JsonCodec, own_limit: bool) -> None:
        self.model = model
        self._envelope = envelope
        self._codec = codec
        self._own_limit = own_limit

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @property
    def name(self) -> str:
        """The name under which its jobs are stored."""
        return self._envelope.kind

    @cached_property
    def envelope(self) -> Envelope:
        """The job's options, built at first use as in `Kind`."""
        return self._envelope if self._own_limit else _with_attempts(self._envelope)

    def new(self, args: A) -> NewJob[object]:
        """Validate the arguments and return a job that can be enqueued."""
        try:
            value = dump_typed(self._adapter, args)
        except ValueError as exc:
            raise invalid(self.name, exc) from None
        if not isinstance(value, Mapping):
            raise InvalidJob(f"{self.name}: the payload is not a JSON object")
        payload = self._codec.encode(value, kind=self.name)
        # The payload is not decoded here as in `Kind`: the other service may use other names and formats.
        check_secrets(self.name, self._adapter, self._codec.plain(payload))
        return NewJob(self.envelope, payload)

    @cached_property
    def _adapter(self) -> TypeAdapter[A]:
        return adapter_of(self.name, self.model)


def retries_of(kinds: Mapping[str, Kind[..., Any]], otherwise: Retry) -> dict[str, Retry]:
    """Return the retry policy of each kind. `otherwise`: for kinds that have none."""
    return {name: kind.work.retry or otherwise for name, kind in kinds.items()}


def _with_attempts(envelope: Envelope) -> Envelope:
    return replace(envelope, max_attempts=read_retry(os.environ).max_attempts)


def check_option(name: str, value: object, expected: type, example: str) -> None:
    """Raise a TypeError that shows the right spelling unless the value is None or of the expected type."""
    if value is not None and not isinstance(value, expected):
        raise TypeError(f"{name}: write {name}={example}, not {type(value).__name__}")


def _parameters(handler: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the handler's parameters after the job; raises TypeError when it cannot be a handler."""
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


def _field(parameter: inspect.Parameter) -> Any:
    if parameter.default is parameter.empty:
        return field()
    return field(default_factory=lambda: parameter.default)
