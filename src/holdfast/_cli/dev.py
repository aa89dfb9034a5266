"""Run a worker and the dashboard, and restart them when a Python file changes.

For development: the dashboard listens on 127.0.0.1, and its link signs you in once. The schema is created or updated
after asking, or with --migrate. If a changed file cannot be imported, the error is shown and the last version goes on.
SIGINT (Ctrl-C) and SIGTERM stop gently, a second one stops at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast._cli import arguments as args
from holdfast._cli import lines, load, session
from holdfast._cli.lines import JobLines, log
from holdfast._cli.migrate import translated
from holdfast._cli.reload import EVERY, Reloader, Watch, signal_ready
from holdfast._cli.serve import shown
from holdfast._cli.session import CommandError, require
from holdfast._cli.worker import queues, run_worker
from holdfast._engine import process
from holdfast._logs import log as logs
from holdfast._model.errors import HoldfastError
from holdfast._model.settings import Settings
from holdfast._store import schema

if TYPE_CHECKING:
    import psycopg

_PORT = 8080
# A process that still runs this many seconds after its own time limit is killed.
_KILL_SECONDS = 2.0
# The exit status of a step whose application cannot be imported.
_NOT_LOADED = 6


def configure(parser: argparse.ArgumentParser) -> None:
    load.configure(parser)
    port = args.whole(0, args.LAST_PORT, "a port")
    parser.add_argument(
        "--port", type=port, default=_PORT, help=f"of the dashboard on 127.0.0.1 (default: {_PORT}); 0: any free one"
    )
    parser.add_argument(
        "--migrate", action="store_true", help="create or update the schema without asking, if it is needed"
    )
    parser.add_argument(
        "--watch",
        action="append",
        metavar="FOLDER",
        help="restart when a Python file below it changes; may be repeated (default: the working directory)",
    )
    parser.add_argument(
        "--queues",
        type=queues,
        metavar="NAME=N,…",
        help="serve these queues alone (default: those that the kinds name)",
    )
    parser.add_argument("--log-level", choices=logs.LEVELS, default="info", help="default: info")
    parser.add_argument("--step", choices=("prepare", "serve"), help=argparse.SUPPRESS)
    parser.add_argument("--fds", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    require("ops", "starlette", "uvicorn", "psycopg_pool", "jwt")
    match arguments.step:
        case "prepare":
            return _prepare(arguments)
        case "serve":
            return _serve(arguments)
    lines.start_log(arguments.log_level)
    settings = Settings.load(os.environ)
    folders = [Path(folder) for folder in arguments.watch or ["."]]
    if missing := [str(folder) for folder in folders if not folder.is_dir()]:
        raise CommandError(f"--watch: there is no folder {', '.join(missing)}", status=2)
    watch = Watch(folders)
    while (status := _prepared(arguments)) == _NOT_LOADED:
        log.info("waiting for a change of a file")
        while not watch.changed():
            time.sleep(EVERY)
    if status:
        return status
    seconds = settings.shutdown_timeout.total_seconds() + process.GRACE_SECONDS + _KILL_SECONDS
    with args.Address("127.0.0.1", arguments.port).bind() as listening:
        asyncio.run(_keep(arguments, watch, listening, seconds))
    return 0


async def _keep(arguments: argparse.Namespace, watch: Watch, listening: socket.socket, seconds: float) -> None:
    from holdfast._cli.together import LoginOnce

    login = LoginOnce.new()
    reloader = Reloader(partial(_serving, arguments, listening), login, watch, passed=listening.fileno())
    process.on_signals(reloader.signalled)
    print(f"Dashboard: {shown(listening)}login/{login.code} (the link signs you in once)", flush=True)
    await reloader.run(seconds=seconds)


def _prepared(arguments: argparse.Namespace) -> int:
    """Load the application and look at its database, in a process that may ask; return its exit status."""
    command = [*_command(arguments, "prepare"), *(["--migrate"] if arguments.migrate else [])]
    return subprocess.run(command, check=False).returncode  # noqa: S603 - this command


def _serving(arguments: argparse.Namespace, listening: socket.socket, ready: int) -> list[str]:
    command = [*_command(arguments, "serve"), "--fds", f"{listening.fileno()},{ready}"]
    if arguments.queues is not None:
        command += ["--queues", ",".join(f"{name}={number}" for name, number in arguments.queues.items())]
    return command


def _command(arguments: argparse.Namespace, step: str) -> list[str]:
    options = ["--step", step, "--log-level", arguments.log_level]
    return [sys.executable, "-m", "holdfast", "dev", arguments.app, *options]


def _prepare(arguments: argparse.Namespace) -> int:
    try:
        app = load.load(arguments.app)
    except CommandError as error:
        if error.status != 1:
            raise
        print(f"holdfast dev: {error}", file=sys.stderr)
        return _NOT_LOADED
    for database in load.databases(app):
        with session.connect(database) as conn, translated(conn):
            try:
                schema.check(conn)
            except HoldfastError as error:
                if not arguments.migrate and not _confirmed(conn, str(error)):
                    raise CommandError(f"{error} Or let this command do it: --migrate") from None
                for name in schema.migrate(conn):
                    print(f"applied {name}")
    return 0


def _confirmed(conn: psycopg.Connection[Any], question: str) -> bool:
    """Ask whether to migrate; without a terminal, nothing is changed."""
    if not sys.stdin.isatty():
        return False
    print(question)
    answer = input(f"Run it now, on {conn.info.dbname} at {conn.info.host}:{conn.info.port}? [y/N] ")
    return answer.strip().lower() in {"y", "yes"}


def _serve(arguments: argparse.Namespace) -> int:
    from holdfast._cli.together import LoginOnce, dashboard

    formatter = lines.start_log(arguments.log_level)
    listening, ready = (int(number) for number in arguments.fds.split(","))
    login = LoginOnce(*json.loads(_first_line(sys.stdin.fileno())))
    app = load.load(arguments.app)
    app.listeners.append(JobLines(formatter))
    settings = Settings.load(os.environ)
    beside = dashboard(app, None, socket.socket(fileno=listening), login)
    arguments.http, arguments.supervised = None, True
    arguments.concurrency, arguments.max_jobs = None, None
    return run_worker(app, arguments, settings, beside=beside, started=partial(signal_ready, ready))


def _first_line(file: int) -> bytes:
    """Read one line and no byte more: the end of this input means later that the parent is gone."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(file, 1)):
        line += byte
    return line
