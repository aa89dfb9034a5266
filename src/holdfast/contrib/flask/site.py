"""The Holdfast of the Flask application given by `--app` or FLASK_APP, for `holdfast worker`."""

from __future__ import annotations

import os
from functools import wraps
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

import click
from flask.cli import ScriptInfo

from holdfast.contrib._handlers import wrap_handlers

if TYPE_CHECKING:
    from collections.abc import Callable

    from flask import Flask

    from holdfast._app.app import Holdfast


def _loaded() -> Flask:
    """Return the application that `flask` has loaded. In a process started by `holdfast`, load it."""
    context = click.get_current_context(silent=True)
    info = context.find_object(ScriptInfo) if context is not None else None
    return (info or ScriptInfo(os.environ.get("FLASK_APP"))).load_app()


def _in_context(handler: Callable[..., Any]) -> Callable[..., Any]:
    """Push the context in the handler's thread, because its teardown may belong to that thread."""

    @wraps(handler)
    def run(*args: Any, **kwargs: Any) -> Any:
        with web.app_context():
            return handler(*args, **kwargs)

    @wraps(handler)
    async def run_async(*args: Any, **kwargs: Any) -> Any:
        with web.app_context():
            return await handler(*args, **kwargs)

    return run_async if iscoroutinefunction(handler) else run


web: Flask = _loaded()
app: Holdfast = web.extensions["holdfast"]
wrap_handlers(app, _in_context)
