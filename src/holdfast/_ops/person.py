"""The caller, the roles, and the refusal of a request."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from holdfast._store.access import record_audit

if TYPE_CHECKING:
    from holdfast._store.statement import Statement


@dataclass(frozen=True, slots=True)
class Person:
    """A person or a program, as recorded in the audit table."""

    name: str
    role: Role
    credential: str | None = None
    """How they authenticated, e.g. `token:0123456789ab`. Unlike a name, it is never reused."""
    address: str | None = None
    """The client's address."""


def written(by: Person, action: str, **what: Any) -> Statement[int]:
    """Return the statement that records an action in the audit. For `what`, see `record_audit`."""
    return record_audit(by.name, by.role, action, credential=by.credential, address=by.address, **what)


class Role(StrEnum):
    """The rights of a person: a viewer reads, an operator can also act, a developer can also run the outbox."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    DEVELOPER = "developer"

    def may(self, needed: Role) -> bool:
        """Return whether this role includes the rights of another."""
        return _RANK[self] >= _RANK[needed]


_RANK = {role: rank for rank, role in enumerate(Role)}


class RequestRefused(Exception):  # noqa: N818 - a refusal is an answer, not an error
    """An answer other than 200: its HTTP status, a code for programs, a message for people."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
