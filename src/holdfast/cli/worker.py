"""Run jobs until told to stop.

SIGINT and SIGTERM stop gently: nothing more is taken, what has not started is given back, what runs may finish within
the shutdown timeout. A second signal stops at once. Exit status: 0 when every job was finished or given back, else 1.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import sys
from functools import partial
from typing import TYPE_CHECKING

from holdfast.cli import load, process
from holdfast.cli.address import Address
from holdfast.cli.desk import require
from holdfast.cli.probe import probed
from holdfast.cli.stop import Stop
from holdfast.engine.supervisor import Supervisor
from holdfast.errors import HoldfastError
from holdfast.settings import Settings

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.engine.worker import Worker

log = logging.getLogger(__name__)

_MOST_PROCESSES = 256
_MOST_SLOTS = 10_000


def configure(parser: argparse.ArgumentParser) -> None:
    load.configure(parser)
    parser.add_argument(
        "--processes", type=_processes, metavar="N", help="supervise N processes and restart those that die"
    )
    parser.add_argument(
        "--queues",
        type=queues,
        metavar="NAME=N,…",
        help="serve these queues alone, each with so many handlers at once (default: those that the kinds name)",
    )
    parser.add_argument(
        "--http",
        type=Address.parse,
        metavar="HOST:PORT",
        help="serve /live, /ready and /metrics of this process there; with --processes, each at the next port",
    )
    process.configure(parser)
    parser.add_argument("--supervised", action="store_true", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    app = load.load(arguments.app)
    settings = Settings.load(os.environ)
    load.addresses(app, settings)
    process.start_log(arguments, settings)
    if arguments.http is not None:
        require("ops", "starlette", "uvicorn")
        require("prometheus", "prometheus_client")
    if arguments.processes is not None:
        _command(arguments, arguments.processes - 1)  # there must be a port for the last of them too
        return asyncio.run(_supervise(arguments))
    status = 1
    try:
        status = asyncio.run(_work(app, arguments, settings))
    except (HoldfastError, Stop):
        raise
    except Exception:
        log.exception("the worker failed")
    process.leave_threads(status)
    return status


def queues(text: str) -> dict[str, int]:
    """Read `default=10,pdf=2`."""
    wanted: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, number = (piece.strip() for piece in part.partition("="))
        if not name or not number.isdecimal() or not 1 <= int(number) <= _MOST_SLOTS or name in wanted:
            raise argparse.ArgumentTypeError(
                f"{part!r}: write name=number,name=number, each name once, numbers from 1 to {_MOST_SLOTS}"
            )
        wanted[name] = int(number)
    if not wanted:
        raise argparse.ArgumentTypeError("name at least one queue, e.g. default=10")
    return wanted


def _processes(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= _MOST_PROCESSES:
        raise argparse.ArgumentTypeError(f"{text!r}: from 1 to {_MOST_PROCESSES}")
    return int(text)


async def _supervise(arguments: argparse.Namespace) -> int:
    supervisor = Supervisor(partial(_command, arguments), arguments.processes)
    process.on_signals(supervisor.signalled)
    return 0 if await supervisor.run() else 1


def _command(arguments: argparse.Namespace, place: int) -> list[str]:
    command = [sys.executable, "-m", "holdfast", "worker", arguments.app, "--supervised"]
    if arguments.queues is not None:
        command += ["--queues", ",".join(f"{name}={number}" for name, number in arguments.queues.items())]
    if arguments.http is not None:
        command += ["--http", str(arguments.http.next(place))]
    for option in ("log_format", "log_level"):
        if (value := getattr(arguments, option)) is not None:
            command += [f"--{option.replace('_', '-')}", value]
    return command


async def _work(app: Holdfast, arguments: argparse.Namespace, settings: Settings) -> int:
    stops = _Stops()
    process.on_signals(stops.told)
    if arguments.supervised:
        _watch_parent(stops)
    async with probed(app, arguments.http, settings) as probe:
        worker = app.worker(queues=arguments.queues)
        probe.watch(worker)
        await _run(worker, stops)
    left = sum(len(pipeline.held) for pipeline in worker.pipelines)
    if left:
        log.error("jobs are left to the reaper: %d", left)
    return 1 if left else 0


async def _run(worker: Worker, stops: _Stops) -> None:
    try:
        async with worker:
            stops.starting = None
            await stops.first.wait()
            await _stop(worker, stops)
    except asyncio.CancelledError:
        if not stops.second.is_set():
            raise
        log.warning("stopped before it had started")


async def _stop(worker: Worker, stops: _Stops) -> None:
    log.info("stopping: running jobs may finish; a second signal stops at once")
    gently = asyncio.create_task(worker.stop())
    hurried = asyncio.create_task(stops.second.wait())
    await asyncio.wait((gently, hurried), return_when=asyncio.FIRST_COMPLETED)
    hurried.cancel()
    if gently.done():
        await gently
        return
    log.warning("stopping at once")
    gently.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await gently
    await worker.stop(at_once=True)


class _Stops:
    """What signals ask for: stopping, and stopping at once. A third one has its usual effect."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        self.starting: asyncio.Task[object] | None = asyncio.current_task()
        """What a second signal cancels while the worker has not started."""

    def told(self) -> None:
        if not self.first.is_set():
            self.first.set()
            return
        self.second.set()
        if self.starting is not None:
            self.starting.cancel()
        process.leave_signals()


def _watch_parent(stops: _Stops) -> None:
    """Stop gently when the supervisor is gone: nobody would pass signals on any more."""
    loop = asyncio.get_running_loop()
    lifeline = sys.stdin.fileno()

    def ended() -> None:
        loop.remove_reader(lifeline)
        if not stops.first.is_set():
            log.error("the supervisor is gone")
            stops.told()

    loop.add_reader(lifeline, ended)
