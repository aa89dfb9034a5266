"""One replica: `python -m labs.chaos.worker`. Its environment says who it is; SIGTERM stops it gently."""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast._engine.keeper import BROKEN_STATUS
from labs.chaos import events, trouble, typed, upgrade, versions  # noqa: F401 - typed: its kind is registered
from labs.chaos.application import QUEUES, Book, Lines, State, app

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from holdfast import Holdfast
    from holdfast._engine.worker import Worker


@asynccontextmanager
async def lifespan(_: Holdfast) -> AsyncGenerator[State, None]:
    name = os.environ["CHAOS_NAME"]
    yield State(name, Book(Path(os.environ["CHAOS_FOLDER"]), name), Lines(os.environ["CHAOS_URL"]))


EXPLAINED = "That is all."


def explain() -> None:
    """Print the stacks of all threads and tasks: for a replica without heartbeats."""
    faulthandler.dump_traceback(sys.stderr)
    for task in asyncio.all_tasks():
        task.print_stack(file=sys.stderr)
    print(EXPLAINED, file=sys.stderr, flush=True)


def strike(worker: Worker, name: str) -> None:
    """Let the loop end that the lab has named in a file: a fault of our own code, with no cause outside."""
    role = (Path(os.environ["CHAOS_FOLDER"]) / f"{name}.strike").read_text("utf-8")
    for kept in [kept for kept in worker.loops if kept.role == role][:1]:
        kept.strike(RuntimeError(f"the lab lets the {kept.name} end"))


async def work() -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGUSR1, explain)
    app.url = os.environ["CHAOS_URL"]
    app.lifespan = lifespan
    name = os.environ["CHAOS_NAME"]
    worker = app.worker(id=name, queues=QUEUES)
    async with worker:
        loop.add_signal_handler(signal.SIGUSR2, strike, worker, name)
        broken = loop.create_task(worker.broken.wait())
        broken.add_done_callback(lambda _: stop.set())
        print("ready", flush=True)
        await stop.wait()
        broken.cancel()
    return BROKEN_STATUS if worker.broken.is_set() else 0


def main() -> None:
    logging.basicConfig(stream=sys.stderr, level=os.environ.get("CHAOS_LOG_LEVEL", "WARNING"), format="%(message)s")
    if name := os.environ.get("HOLDFAST_CHAOS_BREAK"):
        from labs.chaos.breaks import apply

        apply(name)
    upgrade.adopt_named()
    versions.adopt_named()
    trouble.shorten_grace()
    events.serve_named()
    sys.exit(asyncio.run(work()))


if __name__ == "__main__":
    main()
