"""Everything Holdfast raises on purpose.

    HoldfastError
    ├── InvalidJob              a kind, an option or an argument that cannot be enqueued or run
    ├── PayloadTooLarge         kind, size, limit
    ├── DuplicateJob            existing_id
    ├── UnknownKind
    ├── KindTaken
    ├── UnsupportedConnection   a pool, an engine, a library we do not know, sync where async is needed or the reverse
    ├── SchemaMissing           the database was never migrated
    ├── SchemaOutdated          the database is older than this code
    ├── SchemaUnknown           the database is newer than this code, or was changed by hand
    └── Aborted                 reason: a running job was told to stop
        └── LeaseLost           and is no longer held by this worker

A class's docstring is its default message.
"""

# ruff: noqa: N818 - a name says what happened
from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.abort import AbortReason


class HoldfastError(Exception):
    """Holdfast could not do what was asked."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or inspect.cleandoc(type(self).__doc__ or type(self).__name__))


class InvalidJob(HoldfastError):
    """This is not a valid job."""


class PayloadTooLarge(HoldfastError):
    """The payload is larger than the codec allows."""

    def __init__(self, *, kind: str, size: int, limit: int) -> None:
        super().__init__(f"{kind or 'payload'}: {size} bytes of JSON, and the limit is {limit}")
        self.kind = kind
        self.size = size
        self.limit = limit

    def __reduce__(self) -> tuple[Any, ...]:
        return _payload_too_large, (self.kind, self.size, self.limit)


class DuplicateJob(HoldfastError):
    """A job with this unique key exists already."""

    def __init__(self, existing_id: int | None = None) -> None:
        super().__init__(None if existing_id is None else f"A job with this unique key exists already: {existing_id}")
        self.existing_id = existing_id

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.existing_id,)


class UnknownKind(HoldfastError):
    """No handler is registered for this kind."""


class KindTaken(HoldfastError):
    """Another handler is registered for this kind."""


class UnsupportedConnection(HoldfastError):
    """Holdfast cannot run a statement on this object."""


class SchemaMissing(HoldfastError):
    """This database has no Holdfast schema: run `holdfast migrate`."""


class SchemaOutdated(HoldfastError):
    """The Holdfast schema of this database is older than this code: run `holdfast migrate`."""


class SchemaUnknown(HoldfastError):
    """This code does not know the Holdfast schema of this database: it is newer, or was changed by hand."""


class Aborted(HoldfastError):
    """This job was told to stop."""

    def __init__(self, reason: AbortReason) -> None:
        super().__init__(f"{inspect.cleandoc(type(self).__doc__ or '').rstrip('.')}: {reason}")
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason,)


class LeaseLost(Aborted):
    """This job is no longer held by this worker."""


def _payload_too_large(kind: str, size: int, limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(kind=kind, size=size, limit=limit)
