"""Watch jobs, queues, workers, runners and relays in the terminal, and act on them.

Asks one question at a time over one connection. Press ? for the keys.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from typing import TYPE_CHECKING

from psycopg.conninfo import conninfo_to_dict

from holdfast._cli import operator, session
from holdfast._cli.session import CommandError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast._top.application import Top

_THEMES = ("dark", "light")
_FASTEST, _SLOWEST = 0.5, 3600.0
_GONE_SECONDS = 1.0


def configure(parser: argparse.ArgumentParser) -> None:
    session.configure(parser)
    parser.add_argument(
        "--interval", type=_interval, default=2.0, metavar="SECONDS", help="between two looks (default: 2)"
    )
    parser.add_argument("--theme", choices=_THEMES, help="default: by COLORFGBG, else dark; the key t changes it")


def run(arguments: argparse.Namespace) -> None:
    operator.require("top", "textual", "psycopg_pool")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CommandError(
            "this needs a terminal; for programs there are `holdfast queues --json`, `jobs list --json`, …"
        )
    # The driver's messages about a lost connection would overwrite the screen, which shows the loss itself.
    logging.getLogger("psycopg").setLevel(logging.CRITICAL)
    asyncio.run(_watch(arguments))


def _interval(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not _FASTEST <= seconds <= _SLOWEST:
        raise argparse.ArgumentTypeError(f"{text!r}: from {_FASTEST:g} to {_SLOWEST:g} seconds")
    return seconds


async def _watch(arguments: argparse.Namespace) -> None:
    from holdfast._top.application import Top
    from holdfast._top.palette import DARK, LIGHT, theme_of

    theme = {"dark": DARK, "light": LIGHT, None: theme_of(os.environ)}[arguments.theme]
    where = shown(conninfo_to_dict(session.address(arguments)))
    async with operator.opened(arguments) as opened:
        top = Top(opened, operator.person(), where=where, interval=arguments.interval, theme=theme)
        leaving = asyncio.create_task(_leave_with_terminal(top))
        try:
            await top.run_async()
        finally:
            leaving.cancel()


async def _leave_with_terminal(top: Top) -> None:
    """Exit when the terminal is gone, because it may be closed without a signal."""
    while sys.stdin.isatty():  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(_GONE_SECONDS)
    top.exit()


def shown(given: Mapping[str, object]) -> str:
    """Return the database's name and host, without the password."""
    return f"{given.get('dbname') or '-'}@{given.get('host') or given.get('hostaddr') or 'local'}"
