"""Watch jobs, queues, workers, runners and relays in the terminal, and act on them.

Asks one question at a time over one connection. Press ? for the keys. With several databases it lists them first, and
Enter opens one.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast._cli import arguments as args
from holdfast._cli import session
from holdfast._cli.session import CommandError

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncGenerator, Mapping

    from holdfast._cli.session import Database
    from holdfast._top.application import Top
    from holdfast._top.screen import ShownDatabase

_FASTEST, _SLOWEST = 0.5, 3600.0
_GONE_SECONDS = 1.0
# Detect a silently lost connection within half a minute.
_WATCHED: dict[str, Any] = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}


def configure(parser: argparse.ArgumentParser) -> None:
    session.configure(parser)
    parser.add_argument(
        "--interval",
        type=args.number(_FASTEST, _SLOWEST, "seconds"),
        default=2.0,
        metavar="SECONDS",
        help="between two looks (default: 2)",
    )


def run(arguments: argparse.Namespace) -> None:
    session.require("top", "textual", "psycopg_pool")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CommandError(
            "this needs a terminal; for programs there are `holdfast queues --json`, `jobs list --json`, …"
        )
    # The driver's messages about a lost connection would overwrite the screen, which shows the loss itself.
    logging.getLogger("psycopg").setLevel(logging.CRITICAL)
    session.run_async(_watch(arguments))


async def _watch(arguments: argparse.Namespace) -> None:
    from holdfast._top.application import Top

    databases = session.listed(arguments)
    if len(databases) == 1:
        with session.opened(databases[0]):  # reports a wrong address more precisely than the service
            pass
    async with AsyncExitStack() as stack:
        watched = [await stack.enter_async_context(_watched(database)) for database in databases]
        top = Top(watched, session.person(), interval=arguments.interval)
        leaving = asyncio.create_task(_leave_with_terminal(top))
        try:
            await top.run_async()
        finally:
            leaving.cancel()


@asynccontextmanager
async def _watched(database: Database) -> AsyncGenerator[ShownDatabase, None]:
    """Yield a database that is connected to on the first read."""
    from holdfast._ops.service import Service
    from holdfast._top.screen import ShownDatabase

    session.options(database.source, database.url)
    given = conninfo_to_dict(database.url)
    async with Service(make_conninfo("", **(_WATCHED | given)), connections=1) as service:
        yield ShownDatabase(service, shown(given), database.name, database.draining)


async def _leave_with_terminal(top: Top) -> None:
    """Exit when the terminal is gone, because it may be closed without a signal."""
    while sys.stdin.isatty():  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(_GONE_SECONDS)
    top.exit()


def shown(given: Mapping[str, object]) -> str:
    """Return the database's name and host, without the password."""
    return f"{given.get('dbname') or '-'}@{given.get('host') or given.get('hostaddr') or 'local'}"
