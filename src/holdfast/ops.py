"""The operations API and dashboard as an ASGI application. Needs the extra `holdfast-pg[ops]`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast._lazy import lazy

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast._ops.application import end_streams, operations
    from holdfast._ops.caller import Person, Role
    from holdfast._ops.jwt import JwtAccess

__all__ = ["JwtAccess", "Person", "Role", "end_streams", "operations"]

__getattr__: Callable[[str], Any] = lazy(
    __name__,
    {
        "JwtAccess": "holdfast._ops.jwt",
        "Person": "holdfast._ops.caller",
        "Role": "holdfast._ops.caller",
        "end_streams": "holdfast._ops.application",
        "operations": "holdfast._ops.application",
    },
    extra="ops",
)
