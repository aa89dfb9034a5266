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
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from holdfast._app.app import chosen, worker_of
from holdfast._cli import arguments as args
from holdfast._cli import load, log_options
from holdfast._cli.arguments import Address
from holdfast._cli.probe import probed
from holdfast._cli.session import CommandError, require
from holdfast._engine import process
from holdfast._engine.foreground import run_in_foreground
from holdfast._engine.supervisor import REFUSED_STATUS, Supervisor
from holdfast._logs.log import Log
from holdfast._model.errors import DatabaseRefused, HoldfastError, SchemaMissing
from holdfast._model.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from holdfast._app.app import Holdfast
    from holdfast._engine.worker import Worker

log = Log(__name__)

_MOST_PROCESSES = 256
_MOST_SLOTS = 10_000
# The supervisor kills a process that still runs this many seconds after its own time limit.
_KILL_SECONDS = 2.0
_MOST_JOBS = 1_000_000_000


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
    parser.add_argument(
        "--concurrency",
        type=args.whole(1, _MOST_SLOTS),
        metavar="N",
        help="run at most N handlers at once (default: HOLDFAST_CONCURRENCY, or the sum of --queues)",
    )
    parser.add_argument(
        "--max-jobs",
        type=args.whole(1, _MOST_JOBS),
        metavar="N",
        help="stop gently after N jobs; with --processes, each process is replaced then",
    )
    log_options.configure(parser)
    parser.add_argument("--supervised", action="store_true", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    app = load.load(arguments.app)
    settings = Settings.load(os.environ, **chosen(concurrency=arguments.concurrency))
    load.databases(app)
    log_options.start_log(arguments, settings)
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

    @asynccontextmanager
    async def made() -> AsyncIterator[Worker]:
        # The probe comes first: what a worker reports to is settled when it is made.
        async with beside or nullcontext(), probed(app, arguments.http, settings) as probe:
            worker = worker_of(
                app, settings, queues=arguments.queues, concurrency=arguments.concurrency, max_jobs=arguments.max_jobs
            )
            probe.watch(worker)
            yield worker

    try:
        return run_in_foreground(made, settings, started=started, supervised=arguments.supervised)
    except (DatabaseRefused, SchemaMissing) as exc:
        raise CommandError(str(exc), status=REFUSED_STATUS) from None
    except (HoldfastError, CommandError):
        raise
    except Exception:
        log.exception("the worker failed")
        return 1


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
    for option in ("concurrency", "max_jobs", "log_format", "log_level"):
        if (value := getattr(arguments, option)) is not None:
            command += [f"--{option.replace('_', '-')}", str(value)]
    return command
