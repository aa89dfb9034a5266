"""One replica: `python -m chaos.worker`. Its environment says who it is; SIGTERM stops it gently."""

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

from chaos import events, trouble, upgrade
from chaos.application import QUEUES, Book, Lines, State, app

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from holdfast import Holdfast


@asynccontextmanager
async def lifespan(_: Holdfast) -> AsyncGenerator[State, None]:
    name = os.environ["CHAOS_NAME"]
    yield State(name, Book(Path(os.environ["CHAOS_FOLDER"]), name), Lines(os.environ["CHAOS_URL"]))


EXPLAINED = "That is all."


def explain() -> None:
    """Say where everybody is: for a replica that the lab hears nothing of."""
    faulthandler.dump_traceback(sys.stderr)
    for task in asyncio.all_tasks():
        task.print_stack(file=sys.stderr)
    print(EXPLAINED, file=sys.stderr, flush=True)


async def work() -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGUSR1, explain)
    app.url = os.environ["CHAOS_URL"]
    app.lifespan = lifespan
    async with app.worker(id=os.environ["CHAOS_NAME"], queues=QUEUES):
        print("ready", flush=True)
        await stop.wait()


def main() -> None:
    logging.basicConfig(stream=sys.stderr, level=os.environ.get("CHAOS_LOG_LEVEL", "WARNING"), format="%(message)s")
    if name := os.environ.get("HOLDFAST_CHAOS_BREAK"):
        from chaos.breaks import apply

        apply(name)
    upgrade.adopt_named()
    trouble.shorten_grace()
    events.serve_named()
    asyncio.run(work())


if __name__ == "__main__":
    main()
