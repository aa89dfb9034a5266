"""Who asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.store.audit import record_audit

if TYPE_CHECKING:
    from holdfast.ops.role import Role
    from holdfast.store.statement import Statement


@dataclass(frozen=True, slots=True)
class Person:
    """A person or a program, as it is written into the audit table."""

    name: str
    role: Role
    credential: str | None = None
    """How they came in, e.g. `token:0123456789ab`; a name may be given to somebody else later, this is not."""
    address: str | None = None
    """Of the client."""


def written(by: Person, action: str, **what: Any) -> Statement[int]:
    """Write down what they did; `what`: see `record_audit`."""
    return record_audit(by.name, by.role, action, credential=by.credential, address=by.address, **what)
