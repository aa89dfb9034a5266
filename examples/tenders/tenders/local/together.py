"""Starts what is missing, and serves the application with a worker in one process, until it is stopped."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, TypeAlias

import uvicorn

from tenders.local.objects import temporary_objects
from tenders.local.postgres import temporary_postgres
from tenders.local.server import LocalServer, variables
from tenders.migrate import migrate

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from starlette.applications import Starlette

Site: TypeAlias = "tuple[Starlette, socket.socket]"

_DATABASE = ("HOLDFAST_DATABASE_URL", "DATABASE_URL")
_BUCKET = ("HOLDFAST_ARCHIVE_BUCKET", "ARCHIVE_BUCKET")
_SHARED = (*_DATABASE, *_BUCKET, "ARCHIVE_", "HOLDFAST_ARCHIVE_", "AWS_")
_SOURCES = ("CHILECOMPRA_API_URL", "CHILECOMPRA_PAGE_URL", "EXPO_URL")


def run(*, port: int, local_port: int, env_file: Path | None = None) -> None:
    """Start everything. Ctrl-C and SIGTERM end it, and nothing is left behind.

    `env_file`: gets the addresses, as commands of a shell. Default: none.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sites: list[Site] = []
    with ExitStack() as ends:
        listening = ends.enter_context(_listen(port))
        database = start_stores(ends)
        sites += start_sources(ends, local_port)
        # The environment is complete only now.
        from tenders.api import create_web
        from tenders.app import config

        for name in migrate(config.database_url):
            print(f"applied {name}", flush=True)
        token = _token() if database else None
        if env_file is not None:
            ends.enter_context(_written(env_file))
        sites.append((create_web(), listening))
        asyncio.run(_serve(sites, _welcome(_address(listening), config.database_url, token)))


def start_stores(ends: ExitStack) -> bool:
    """Start the object store and PostgreSQL, if they are missing. Return whether PostgreSQL was."""
    store = None
    if not any(os.environ.get(name) for name in _BUCKET):
        print("Starting an object store …", flush=True)
        store = ends.enter_context(temporary_objects())
    missing = not any(os.environ.get(name) for name in _DATABASE)
    if missing:
        print("Starting a PostgreSQL …", flush=True)
        os.environ["HOLDFAST_DATABASE_URL"] = ends.enter_context(temporary_postgres())
    if store is not None:
        os.environ.update(store())
    return missing


def start_sources(ends: ExitStack, port: int) -> list[Site]:
    """Return a server for ChileCompra and Expo, if an address of theirs is missing."""
    if all(os.environ.get(name) for name in _SOURCES):
        return []
    listening = ends.enter_context(_listen(port))
    ours = variables(_address(listening))
    os.environ.update({name: value for name, value in ours.items() if not os.environ.get(name)})
    print(f"Market and provider of this machine: {_address(listening)}/control", flush=True)
    return [(LocalServer().web, listening)]


@contextmanager
def _written(env_file: Path) -> Generator[None]:
    """Write the settings to a file that only its owner can read, and remove it at the end of the block."""
    named = {name: value for name, value in os.environ.items() if name.startswith(_SHARED) or name in _SOURCES}
    env_file.touch(mode=0o600)
    env_file.write_text("".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(named.items())))
    try:
        yield
    finally:
        env_file.unlink(missing_ok=True)


def _token() -> str:
    """Make a token for the dashboard of a database that is thrown away."""
    command = [sys.executable, "-m", "holdfast", "tokens", "make", "local", "--role", "operator", "--expires", "1d"]
    made = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - Holdfast's own command
    return made.stdout.splitlines()[0]


def _welcome(address: str, database: str, token: str | None) -> str:
    signed = f"sign in with {token}" if token else "sign in with a token of `holdfast tokens make`"
    return f"""
Tenders      {address}/licitaciones
Cycles       {address}/worker_runs
Dashboard    {address}/ops/  {signed}
Database     {database}

Press Ctrl-C to stop. All that this command has started is removed then.
"""


async def _serve(sites: list[Site], welcome: str) -> None:
    """Serve the sites, and run a worker beside them, until a signal comes."""
    from tenders.app import app

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    servers = [_Server(uvicorn.Config(web, log_level="warning", access_log=False)) for web, _ in sites]
    async with asyncio.TaskGroup() as tasks:
        for server, (_, listening) in zip(servers, sites, strict=True):
            tasks.create_task(server.serve([listening]))
        try:
            async with app.worker():
                while not all(server.started for server in servers):  # noqa: ASYNC110 - uvicorn has no event for it
                    await asyncio.sleep(0.01)
                print(welcome, flush=True)
                await stop.wait()
        finally:
            for server in servers:
                server.should_exit = True


class _Server(uvicorn.Server):
    """Leaves signals to the application."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def _listen(port: int) -> socket.socket:
    return socket.create_server(("127.0.0.1", port))


def _address(listening: socket.socket) -> str:
    return f"http://127.0.0.1:{listening.getsockname()[1]}"
