"""Run the selected runners once, in order, within their budgets, and end. For cron and its kin.

HOLDFAST_TICK_RUNNERS selects and orders the runners. SIGINT and SIGTERM end it early, what runs being given back.
Exit status: 0 when no runner failed and no job outlasted the tick, else 1.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

from holdfast._app.app import application_of
from holdfast._cli import load, log_options, table
from holdfast._cli.session import CommandError
from holdfast._engine import process
from holdfast._engine.once import run_tick
from holdfast._logs.log import Log
from holdfast._model.errors import HoldfastError
from holdfast._model.settings import Settings
from holdfast._ops.wording import counts

if TYPE_CHECKING:
    import argparse

    from holdfast._app.app import Holdfast
    from holdfast._engine.once import TickResult
    from holdfast._engine.report.transition import Ticked

log = Log(__name__)


def configure(parser: argparse.ArgumentParser) -> None:
    load.configure(parser)
    table.configure(parser)
    log_options.configure(parser)


def run(arguments: argparse.Namespace) -> int:
    app = load.load(arguments.app)
    settings = Settings.load(os.environ)
    load.databases(app)
    log_options.start_log(arguments, settings)
    status, place = 1, process.Process(settings)
    try:
        result = place.run(_tick(app, settings, place))
        status = result.exit_code
        _print(result, as_json=arguments.json)
    except asyncio.CancelledError:
        log.warning("stopped by a signal before every runner had its turn")
    except (HoldfastError, CommandError):
        place.fail()
        raise
    except Exception:
        log.exception("the tick failed")
    place.leave(status)
    return status


async def _tick(app: Holdfast, settings: Settings, place: process.Process) -> TickResult:
    task = asyncio.create_task(run_tick(application_of(app, settings)))
    place.on_signals(task.cancel, task.cancel)
    return await task


def _print(result: TickResult, *, as_json: bool) -> None:
    if as_json:
        runners = [_object(ticked) for ticked in result.runners]
        table.print_json({"exit_code": result.exit_code, "seconds": round(result.seconds, 3), "runners": runners})
        return
    several = len({ticked.database for ticked in result.runners}) > 1
    columns = ("runner", *(("database",) if several else ()), "outcome", "took", "counts, or why")
    table.print_table(columns, [_line(ticked, several=several) for ticked in result.runners])


def _object(ticked: Ticked) -> dict[str, Any]:
    return {
        "runner": ticked.runner,
        "database": ticked.database,
        "outcome": ticked.outcome,
        "counts": dict(ticked.counts),
        "seconds": round(ticked.seconds, 3),
        "why": ticked.why,
        "error_code": ticked.failure and ticked.failure.code,
        "error": ticked.failure and ticked.failure.text,
    }


def _line(ticked: Ticked, *, several: bool) -> tuple[object, ...]:
    failure = ticked.failure and f"{ticked.failure.code}: {ticked.failure.text}"
    database = (ticked.database,) if several else ()
    return (
        ticked.runner,
        *database,
        ticked.outcome,
        f"{ticked.seconds:.3f} s",
        failure or ticked.why or counts(ticked.counts),
    )
