"""The handle of an enqueued job, which names its chain and decodes the chain's result."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Handle(Generic[R]):
    """A job that was enqueued, or the existing job with the same unique key.

    R is the type of its chain's result: `wait` returns it and `complete_chain` takes it, so Handle is invariant.
    """

    id: int
    chain_id: int
    created: bool
    """False when a job with this unique key existed already."""
    decode: Callable[[str | None], R] | None = field(default=None, repr=False, compare=False)
    """Decodes the chain's result from JSON text."""
    encode: Callable[[Any], object] | None = field(default=None, repr=False, compare=False)
    """Converts the chain's result to JSON-serializable values."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Handle, (self.id, self.chain_id, self.created)


class HasResult(Protocol[R_co]):
    """An object that names a chain and decodes its result, as a Handle does.

    Unlike Handle it is covariant, because it is only read from.
    """

    @property
    def chain_id(self) -> int: ...
    @property
    def decode(self) -> Callable[[str | None], R_co] | None: ...
