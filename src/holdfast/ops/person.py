"""Who asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.ops.role import Role


@dataclass(frozen=True, slots=True)
class Person:
    """A person or a program, as it is written into the audit table."""

    name: str
    role: Role
