"""Wrapping of handlers by a framework."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast._model.kind import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast._app.app import Holdfast


def wrap_handlers(app: Holdfast, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace every handler by `wrap(handler)`. In another process (`executor="process"`) handlers run unwrapped."""
    for kind in app.kinds.values():
        if isinstance(kind, Kind):
            kind.handler = wrap(kind.handler)
