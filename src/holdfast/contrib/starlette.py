"""Starlette: the lifespan, and access to the application from a request."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from holdfast._model.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from contextlib import AbstractAsyncContextManager

    from starlette.requests import HTTPConnection

    from holdfast._app.app import Holdfast

__all__ = ["holdfast_of", "lifespan"]


def lifespan(app: Holdfast, **options: Any) -> Callable[[Any], AbstractAsyncContextManager[dict[str, Any]]]:
    """Return a lifespan that sets `request.state.holdfast`, and runs a worker if HOLDFAST_WORKER_ENABLED is true.

    `options` are those of `app.embedded_worker`.
    """

    @asynccontextmanager
    async def run(_web: object) -> AsyncGenerator[dict[str, Any], None]:
        async with app.embedded_worker(**options):
            yield {"holdfast": app}

    return run


def holdfast_of(connection: HTTPConnection) -> Holdfast:
    """Return the Holdfast application of this request."""
    found: Holdfast | None = getattr(connection.state, "holdfast", None)
    if found is None:
        raise HoldfastError(
            "the state of this request has no Holdfast: give the web application lifespan=lifespan(app), or let its "
            "own yield what that yields; a TestClient runs it in a `with` block"
        )
    return found
