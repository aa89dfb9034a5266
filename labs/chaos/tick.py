"""One tick: `python -m labs.chaos.tick`. As cron starts it, beside the workers that run all the time."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from functools import partial

import holdfast._engine.once
from holdfast._app.app import application_of
from holdfast._engine.worker import Worker
from holdfast._model.settings import Settings
from labs.chaos import events, typed, upgrade, versions  # noqa: F401 - typed: its kind is registered
from labs.chaos.application import app
from labs.chaos.worker import lifespan


async def tick() -> int:
    app.url = os.environ["CHAOS_URL"]
    app.lifespan = lifespan
    task = asyncio.ensure_future(holdfast._engine.once.run_tick(application_of(app, Settings.load(os.environ))))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        return (await task).exit_code
    except asyncio.CancelledError:
        return 0


def _be_named(name: str) -> None:
    """Let its worker have this name: the judge knows workers by the names that the lab gave them."""
    vars(holdfast._engine.once)["Worker"] = partial(Worker, id=name)


def main() -> None:
    logging.basicConfig(stream=sys.stderr, level="WARNING", format="%(message)s")
    upgrade.adopt_named()
    versions.adopt_named()
    events.serve_named()
    _be_named(os.environ["CHAOS_NAME"])
    sys.exit(asyncio.run(tick()))


if __name__ == "__main__":
    main()
