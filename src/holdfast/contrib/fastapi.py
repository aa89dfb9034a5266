"""FastAPI: Starlette's lifespan and `while_connected`, and a parameter `app: App` for path operations."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from holdfast._app.app import Holdfast
from holdfast._distribution import needed
from holdfast.contrib.starlette import holdfast_of, lifespan, while_connected

with needed("holdfast.contrib.fastapi", "fastapi"):
    from fastapi import Depends
    from fastapi.requests import HTTPConnection  # noqa: TC002 - FastAPI reads the annotation

__all__ = ["App", "lifespan", "while_connected"]


def _app(connection: HTTPConnection) -> Holdfast:
    return holdfast_of(connection)


App: TypeAlias = Annotated[Holdfast, Depends(_app)]
"""The type of a parameter of a path operation that receives the Holdfast application."""
