"""Flask: `flask holdfast …`, and the application context around each handler."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from holdfast._cli import main_with
from holdfast._distribution import require

if TYPE_CHECKING:
    from flask import Flask
    from flask.cli import ScriptInfo

    from holdfast._app.app import Holdfast

__all__ = ["init_app"]

require("holdfast.contrib.flask", "flask", "flask")

_THROUGH = {"ignore_unknown_options": True, "allow_interspersed_args": False}


def init_app(web: Flask, app: Holdfast) -> None:
    """Set `web.extensions["holdfast"]` to the application, and add the command `flask holdfast …`."""
    import click

    web.extensions["holdfast"] = app

    @web.cli.command("holdfast", with_appcontext=False, add_help_option=False, context_settings=_THROUGH)
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    @click.pass_obj
    def command(info: ScriptInfo, arguments: tuple[str, ...]) -> None:
        """Jobs and events that commit with your data."""
        if app.has_own_database:
            os.environ["HOLDFAST_DATABASE_URL"] = app.url  # `site` has the others, if there are several
        if info.app_import_path:  # for the processes that `worker --processes` starts
            os.environ["FLASK_APP"] = info.app_import_path
        sys.exit(main_with("holdfast.contrib.flask.site:app", arguments))
