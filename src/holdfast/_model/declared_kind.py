"""Kinds whose handlers run in another service."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar

from holdfast._model.codec import adapter_of, as_json_data, check_secrets
from holdfast._model.handle import Handle
from holdfast._model.kind import check_id, json_object, tenant_of, unique_of, with_attempts
from holdfast._model.new_job import Envelope, NewJob

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from holdfast._model.codec import JsonCodec
    from holdfast._model.limit import Limit
    from holdfast._model.unique import Unique

A = TypeVar("A")


class DeclaredKind(Generic[A]):
    """A kind whose handler runs in another service: its jobs can be enqueued here, but not run."""

    def __init__(  # noqa: PLR0913 - one keyword per part of a kind
        self,
        model: type[A],
        envelope: Envelope,
        *,
        codec: JsonCodec,
        own_limit: bool,
        unique: str | Unique | None = None,
        limits: tuple[Limit, ...] = (),
        tenant: str | None = None,
    ) -> None:
        self.model = model
        self._envelope = envelope
        self._codec = codec
        self._own_limit = own_limit
        self._unique = unique_of(unique)
        self._limits = limits
        self._tenant = tenant_of(tenant)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @property
    def name(self) -> str:
        """The name under which its jobs are stored."""
        return self._envelope.kind

    @cached_property
    def envelope(self) -> Envelope:
        """The job's options, built at first use as in `Kind`."""
        return self._envelope if self._own_limit else with_attempts(self._envelope)

    def new(self, args: A) -> NewJob[object]:
        """Validate the arguments and return a job that can be enqueued."""
        value = as_json_data(self.name, self.adapter, args, strict=True)
        payload = self._codec.encode(arguments := json_object(self.name, value), kind=self.name)
        # The payload is not decoded here as in `Kind`: the other service may use other names and formats.
        check_secrets(self.name, self.adapter, self._codec.plain(payload))
        return NewJob(
            self.envelope.with_keys(self._unique, self._limits, self._tenant, arguments), payload, arguments=arguments
        )

    def handle(self, id: int, /) -> Handle[object]:  # noqa: A002 - the usual name
        """Return a handle for a job of this kind from its id. Its result is plain JSON."""
        check_id(self.name, id)
        return Handle(id, id, created=False)

    @cached_property
    def adapter(self) -> TypeAdapter[A]:
        return adapter_of(self.name, self.model)
