"""Who may do what: a viewer looks, an operator looks and acts, a developer may all."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    VIEWER = "viewer"
    OPERATOR = "operator"
    DEVELOPER = "developer"

    def may(self, needed: Role) -> bool:
        """Tell whether this role has the rights of another."""
        return _RANK[self] >= _RANK[needed]


_RANK = {role: rank for rank, role in enumerate(Role)}
