"""Operations: the API, the dashboard and who may use them, as an ASGI application. It needs the extra `ops`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.ops.application import end_streams, operations
    from holdfast.ops.jwt import JwtAccess
    from holdfast.ops.person import Person
    from holdfast.ops.role import Role

__all__ = ["JwtAccess", "Person", "Role", "end_streams", "operations"]

_HOMES = {
    "JwtAccess": "jwt",
    "Person": "person",
    "Role": "role",
    "end_streams": "application",
    "operations": "application",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for: `holdfast top` and `holdfast tokens` need neither a web framework nor JWTs."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
