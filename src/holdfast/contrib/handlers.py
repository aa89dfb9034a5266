"""What a framework wants around each handler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.kind import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.app import Holdfast


def wrap_handlers(app: Holdfast, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace every handler by what `wrap` makes of it. One with `executor="process"` runs there as it was written."""
    for kind in app.kinds.values():
        if isinstance(kind, Kind):
            kind.handler = wrap(kind.handler)
