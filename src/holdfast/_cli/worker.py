"""Run jobs until stopped.

SIGINT and SIGTERM stop gently: nothing more is taken, what has not started is given back, what runs may finish within
the shutdown timeout. A second signal stops at once. The process ends within the shutdown timeout and ten seconds,
whatever handlers do. Exit status: 0 when every job was finished or given back, 3 when the process had not stopped in
time and was ended, 4 when a loop of the worker ended again and again, so that it could not go on, 5 when the
database or the role does not exist, the password is wrong or the schema is missing, else 1.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

from holdfast._cli import arguments as args
from holdfast._cli import load, process
from holdfast._cli.arguments import Address
from holdfast._cli.probe import probed
from holdfast._cli.session import CommandError, require
from holdfast._engine.keeper import BROKEN_STATUS
from holdfast._engine.supervisor import REFUSED_STATUS, Supervisor
from holdfast._logs.log import Log
from holdfast._model.errors import DatabaseRefused, HoldfastError, SchemaMissing
from holdfast._model.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from holdfast._app.app import Holdfast
    from holdfast._engine.worker import Worker

log = Log(__name__)

_MOST_PROCESSES = 256
_MOST_SLOTS = 10_000
# The supervisor kills a process that still runs this many seconds after its own time limit.
_KILL_SECONDS = 2.0
# A cancelled gentle stop may still wait for the database, but no longer than this many seconds.
_CALLED_OFF_SECONDS = 1.0


def configure(parser: argparse.ArgumentParser) -> None:
    load.configure(parser)
    processes = args.whole(1, _MOST_PROCESSES)
    parser.add_argument(
        "--processes", type=processes, metavar="N", help="supervise N processes and restart those that die"
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
    load.databases(app)
    process.start_log(arguments, settings)
    if warning := load.elsewhere(app, settings):
        log.warning("%s", warning)
    if arguments.http is not None:
        require("ops", "starlette", "uvicorn")
        require("prometheus", "prometheus_client")
    if arguments.processes is not None:
        _command(arguments, arguments.processes - 1)  # checks that the last process has a port too
        return asyncio.run(_supervise(arguments, settings))
    return run_worker(app, arguments, settings)


def run_worker(
    app: Holdfast,
    arguments: argparse.Namespace,
    settings: Settings,
    *,
    beside: AbstractAsyncContextManager[object] | None = None,
    started: Callable[[], object] = lambda: None,
) -> int:
    """Run a worker until stopped, and return the exit status of the process.

    `beside`: entered before the worker starts and left after it stopped. Default: nothing. `started()` is called when
    the worker runs.
    """
    status, place = 1, process.Process(settings)
    try:
        status = place.run(_work(app, arguments, settings, place, beside=beside or nullcontext(), started=started))
    except (DatabaseRefused, SchemaMissing) as exc:
        place.fail()
        raise CommandError(str(exc), status=REFUSED_STATUS) from None
    except (HoldfastError, CommandError):
        place.fail()
        raise
    except Exception:
        log.exception("the worker failed")
    place.leave(status)
    return status


def queues(text: str) -> dict[str, int]:
    """Parse `default=10,pdf=2`."""
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


async def _supervise(arguments: argparse.Namespace, settings: Settings) -> int:
    seconds = settings.shutdown_timeout.total_seconds() + process.GRACE_SECONDS + _KILL_SECONDS
    supervisor = Supervisor(partial(_command, arguments), arguments.processes, seconds=seconds)
    process.on_signals(supervisor.signalled)
    well = await supervisor.run()
    return REFUSED_STATUS if supervisor.refused else 0 if well else 1


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


async def _work(  # noqa: PLR0913 - one place calls it
    app: Holdfast,
    arguments: argparse.Namespace,
    settings: Settings,
    place: process.Process,
    *,
    beside: AbstractAsyncContextManager[object],
    started: Callable[[], object],
) -> int:
    stops = _Stops()
    place.on_signals(stops.gently, stops.at_once, supervised=arguments.supervised)
    if arguments.supervised:
        _watch_parent(stops, partial(place.end_within, settings.shutdown_timeout.total_seconds()))
    async with beside, probed(app, arguments.http, settings) as probe:
        worker = app.worker(queues=arguments.queues)
        probe.watch(worker)
        await _run(worker, stops, partial(place.end_within, settings.shutdown_timeout.total_seconds()), started)
    left = sum(len(pipeline.held) for pipeline in worker.pipelines)
    if left:
        log.error("jobs are left to the reaper: %d", left)
    for refused in filter(None, (pipeline.refused for pipeline in worker.pipelines)):
        raise refused
    if worker.broken.is_set():
        return BROKEN_STATUS
    return 1 if left else 0


async def _run(worker: Worker, stops: _Stops, end_soon: Callable[[], object], started: Callable[[], object]) -> None:
    try:
        async with worker:
            stops.starting = None
            started()
            await _signalled_or_broken(worker, stops)
            if worker.broken.is_set() and not any(pipeline.refused for pipeline in worker.pipelines):
                log.critical("a loop cannot go on: the worker stops with exit status %d", BROKEN_STATUS)
                end_soon()
            await _stop(worker, stops)
    except asyncio.CancelledError:
        if not stops.second.is_set():
            raise
        log.warning("stopped before it had started")


async def _signalled_or_broken(worker: Worker, stops: _Stops) -> None:
    """Return when a signal asks to stop, or when a loop of the worker cannot go on."""
    waiting = [asyncio.create_task(event.wait()) for event in (stops.first, worker.broken)]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()


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
    await asyncio.wait((gently,), timeout=_CALLED_OFF_SECONDS)
    await worker.stop(at_once=True)


class _Stops:
    """The requests made by signals: to stop gently, and to stop at once."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        self.starting: asyncio.Task[object] | None = asyncio.current_task()
        """The task to cancel on a stop at once, while the worker has not started."""

    def gently(self) -> None:
        self.first.set()

    def at_once(self) -> None:
        self.first.set()
        self.second.set()
        if self.starting is not None:
            self.starting.cancel()


def _watch_parent(stops: _Stops, end_in_time: Callable[[], None]) -> None:
    """Stop gently when the supervisor is gone, because it can no longer forward signals."""
    loop = asyncio.get_running_loop()
    lifeline = sys.stdin.fileno()

    def ended() -> None:
        loop.remove_reader(lifeline)
        if not stops.first.is_set():
            log.error("the supervisor is gone")
            end_in_time()
            stops.gently()

    loop.add_reader(lifeline, ended)
